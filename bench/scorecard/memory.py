"""Does it fit, and how much does it take? The memory model against published jobs.

Layouts of LLaMA 13B that ran or ran out of memory, peaks of torchtitan's and BLOOM's jobs. What the
allocator loses, what communicators take and how far peaks miss are fitted to the other sources each
time, so that a source is judged by what it did not teach.
"""

import csv
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from pathlib import Path

import numpy as np

from htk.base.columns.types import Floats, Mask
from htk.physics.decoder import Decoder
from htk.physics.hardware import gpu
from htk.physics.memory import (
    COMMUNICATOR,
    CONTEXT,
    FRAGMENTATION,
    SIGMA,
    Layout,
    compute_peak_memory,
    model_size,
    p_oom,
)
from htk.physics.presets import decoder

_FRAGMENTATIONS = (0.02, 0.04, 0.06, 0.08, 0.1)
_COMMUNICATORS = (0.0, 1e9, 2e9, 2.5e9, 3e9)
_SIGMAS = (0.04, 0.05, 0.06, 0.07, 0.08, 0.09, 0.1, 0.11, 0.12, 0.15)
_UNLIKELY = 1e-4  # no row weighs more than this
# GB: between the smallest and the largest that GPUs come in, close enough that alike jobs do not
# all fall on one side of a size.
_SIZES = tuple(16 * 12 ** (k / 59) for k in range(60))
BINS = (0.0, 0.05, 0.2, 0.4, 0.6, 0.8, 0.95, 1.0)


@dataclass(frozen=True)
class Job:
    """A job whose memory is known: by its peak, or by whether it ran out."""

    source: str
    held: float  # what tensors take by the model
    communicators: int
    peak: float | None = None
    ran_out: bool | None = None
    capacity: float = 0.0
    whole_device: bool = True  # else the peak is the allocator's own


@dataclass(frozen=True)
class Slack:
    """What is fitted: beyond what tensors take, and how far the sum misses."""

    fragmentation: float
    communicator: float
    sigma: float

    def peak(self, job: Job) -> float:
        libraries = CONTEXT + self.communicator * job.communicators
        return job.held * (1 + self.fragmentation) + (libraries if job.whole_device else 0.0)


@dataclass(frozen=True)
class Bin:
    """Answers of about one probability, and how often what they speak of came to pass."""

    low: float
    high: float
    n: int
    stated_pct: float
    failed_pct: float


@dataclass(frozen=True)
class Fits:
    """How often the answer was right, by a model fitted to other sources."""

    n: int
    right_pct: float
    missed: int  # ran out, said to fit
    false_alarms: int
    majority_pct: float  # always the more frequent answer
    peaks: tuple[tuple[str, int, float, float], ...]  # source, n, median and mean error in percent
    outcomes: tuple[Bin, ...]  # of jobs that ran or ran out
    sizes: tuple[Bin, ...]  # of measured peaks on GPUs of all sizes


def classified(folder: Path) -> Fits:
    rows = jobs(folder)
    sources = sorted({job.source for job in rows})
    shipped = Slack(FRAGMENTATION, COMMUNICATOR, SIGMA)
    others = {s: [j for j in rows if j.source != s] for s in sources}
    taught = {s: fitted(taken) if taken else shipped for s, taken in others.items()}
    tried = [j for j in rows if j.ran_out is not None]
    chance = np.array(
        [p_oom(taught[j.source].peak(j), j.capacity, taught[j.source].sigma) for j in tried]
    )
    out = np.array([bool(j.ran_out) for j in tried])
    predicted_out = chance > 0.5
    share = float(out.mean())
    return Fits(
        len(tried),
        100 * float((predicted_out == out).mean()),
        int((out & ~predicted_out).sum()),
        int((predicted_out & ~out).sum()),
        100 * max(share, 1 - share),
        tuple(_errors(rows, taught, source) for source in sources if _peaks(rows, source)),
        reliability(chance, out),
        reliability(*_on_all_sizes(rows, taught)),
    )


def jobs(folder: Path) -> list[Job]:
    return [*_layouts(folder), *_torchtitan(folder), *_bloom(folder)]


def fitted(rows: Sequence[Job]) -> Slack:
    """Return the slack under which these rows are likeliest; each source weighs as much."""
    weight = {job.source: 1 / sum(j.source == job.source for j in rows) for job in rows}
    return max(
        (Slack(*values) for values in product(_FRAGMENTATIONS, _COMMUNICATORS, _SIGMAS)),
        key=lambda slack: sum(weight[job.source] * _likelihood(job, slack) for job in rows),
    )


def reliability(chance: Floats, came: Mask) -> tuple[Bin, ...]:
    """Return what was stated and what came to pass, by bins of probability."""
    bins = []
    for low, high in pairwise(BINS):
        inside = (chance >= low) & ((chance < high) | (high == 1))
        if inside.any():
            stated, failed = 100 * chance[inside].mean(), 100 * came[inside].mean()
            bins.append(Bin(low, high, int(inside.sum()), float(stated), float(failed)))
    return tuple(bins)


def _likelihood(job: Job, slack: Slack) -> float:
    """Logarithm of it."""
    expected = slack.peak(job)
    if job.peak is not None:
        over = p_oom(expected, job.peak, slack.sigma)  # the density of a logistic: p (1 - p)
        return math.log(max(4 * over * (1 - over), _UNLIKELY)) - math.log(slack.sigma)
    chance = p_oom(expected, job.capacity, slack.sigma)
    return math.log(max(chance if job.ran_out else 1 - chance, _UNLIKELY))


def _peaks(rows: Sequence[Job], source: str) -> list[Job]:
    return [j for j in rows if j.source == source and j.peak is not None]


def _errors(
    rows: Sequence[Job], taught: dict[str, Slack], source: str
) -> tuple[str, int, float, float]:
    off = [abs(taught[source].peak(j) / (j.peak or 1) - 1) for j in _peaks(rows, source)]
    return source, len(off), 100 * float(np.median(off)), 100 * float(np.mean(off))


def _on_all_sizes(rows: Sequence[Job], taught: dict[str, Slack]) -> tuple[Floats, Mask]:
    """Would each measured peak have fitted GPUs of other sizes?"""
    chance, out = [], []
    for job, size in product([j for j in rows if j.peak is not None], _SIZES):
        slack = taught[job.source]
        chance.append(p_oom(slack.peak(job), size * 2**30, slack.sigma))
        out.append((job.peak or 0.0) > size * 2**30)
    return np.array(chance), np.array(out, bool)


def _read(folder: Path, name: str) -> list[dict[str, str]]:
    if not (folder / name).exists():
        return []
    with (folder / name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def _job(
    source: str,
    model: Decoder,
    layout: Layout,
    peak: float | None = None,
    ran_out: bool | None = None,
    capacity: float = 0.0,
    whole_device: bool = True,
) -> Job:
    need = compute_peak_memory(model_size(model), layout)
    held = need.held + need.left
    return Job(source, held, layout.communicators, peak, ran_out, capacity, whole_device)


def _layouts(folder: Path) -> Iterator[Job]:
    """LLaMA 13B in all layouts; its vocabulary follows from the MFU that the sweep states: 14.0
    billion parameters."""
    model = decoder("llama2-13b", vocab=128000)
    for row in _read(folder, "alephalpha_layout_sweep.csv"):
        if not row["step_time_s"] and row["error"] != "OOM Error":
            continue
        tensor, pipeline, micro = int(row["tp"]), int(row["pp"]), int(row["micro_batch"])
        data = int(row["n_gpus"]) // (tensor * pipeline)
        layout = Layout(
            "zero1",
            data,
            1,
            tensor,
            pipeline,
            micro_batch=micro,
            seq=int(row["seq_len"]),
            micro_batches=max(1, int(row["global_batch"]) // (data * micro)),
            checkpointing="full" if row["act_ckpt"] == "every_layer" else "none",
            sequence_parallel=row["seq_parallel"] in ("1", "1.0", "True"),
            flash=row["attn_kernel"].startswith("flash"),
            fused_norms=row["rms_kernel"] == "True",
            split_logits=False,  # as it gathers them
        )
        yield _job(
            "Aleph Alpha", model, layout, ran_out=row["error"] == "OOM Error",
            capacity=gpu("a100-80gb").memory_bytes,
        )  # fmt: skip


_LLAMAS = {
    "Llama3.1-8B": decoder("llama3-8b"),
    "Llama3.1-70B": decoder("llama3-70b"),
    "Llama3.1-405B": decoder("llama3-405b"),
}


def _torchtitan(folder: Path) -> Iterator[Job]:
    """Peaks that PyTorch's allocator reserved. Pipelines cut a batch into as many micro-batches as
    they have stages."""
    for row in _read(folder, "torchtitan_benchmarks.csv"):
        if not row["mem_gib"]:
            continue
        pipeline, context = int(row["pp"]), int(row["cp"])
        layout = Layout(
            "full_shard",
            int(row["fsdp"]) * context,
            1,
            int(row["tp"]),
            pipeline,
            context,
            micro_batch=int(row["local_batch"]) / pipeline,
            seq=int(row["seq_len"]),
            micro_batches=pipeline,
            checkpointing="full" if row["ac"] == "full" else "selective",
            sequence_parallel=True,
        )
        peak = float(row["mem_gib"]) * 2**30
        yield _job("torchtitan", _LLAMAS[row["model"]], layout, peak=peak, whole_device=False)


def _bloom(folder: Path) -> Iterator[Job]:
    """GPT of 180 to 205 billion parameters in many layouts. Those of the last round, whose
    embedding is a layer of its own in the balance of stages, are not described."""
    for row in _read(folder, "bigscience_sweeps.csv"):
        billions = row["size"].removesuffix("B")
        described = all(row.get(n) for n in ("pp", "tp", "dp", "mbs", "mem"))
        if "Rebalancing" in row["section"] or row["gpu"] != "A100-80GB" or not described:
            continue
        ran_out = row["mem"] == "OOM"
        digits = row["mem"].removesuffix("GB")
        if not billions.isdigit() or int(billions) < 100 or not (ran_out or digits.isdigit()):
            continue
        hidden, heads = int(float(row["nhidden"] or 14336)), int(float(row["nheads"] or 112))
        layers = round((int(billions) * 1e9 - 50304 * hidden) / (12 * hidden**2))
        model = Decoder("bloom", layers, hidden, heads, heads, 4 * hidden, 50304, False, True)
        layout = Layout(
            "zero1",
            1 if row["ZS"] == "0" else int(float(row["dp"])),
            1,
            int(row["tp"]),
            int(row["pp"]),
            micro_batch=int(row["mbs"]),
            micro_batches=1000,
            checkpointing="full",
            flash=False,
        )
        yield _job(
            "BLOOM",
            model,
            layout,
            peak=None if ran_out else float(digits) * 1e9,
            ran_out=True if ran_out else None,
            capacity=gpu("a100-80gb").memory_bytes,
        )
