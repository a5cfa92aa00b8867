"""Published measurements as jobs that can be simulated.

A job with a pipeline is described by one stage of it: a step of m micro-batches through p stages
takes as long as m + p - 1 of them take one stage. A step of many micro-batches is simulated with a
few of them.
"""

import csv
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import permutations
from pathlib import Path
from typing import Any

from bench.scorecard.jobs import Job
from htk.recording.simulate.config import Pass

_MOST_SLOTS = 2
_NOISE = 0.02  # of real clusters: GPUs and steps differ more than the simulator's own
_RANKS = 4  # recorded, at most
_PLAIN = "gpt3-5b"  # its kind of layer, in other sizes
_TILES = ((128, 64, 1.0),)  # a library that picks well loses little to part-filled waves
# Attention before FlashAttention-2 ran at a quarter to 40 % of the peak (Dao, 2023) where matrix
# products reach three quarters.
_EARLY_ATTENTION = (0.36, 0.42)
# Eager RMSNorm computes in single precision; a fused one reads and writes once.
_EAGER_NORM = (
    Pass("rms_norm_to_copy", 3, 3, "rms_norm_backward"),
    Pass("rms_norm_pow", 4, 6, "rms_norm_backward"),
    Pass("rms_norm_mean", 2, 2, "rms_norm_backward"),
    Pass("rms_norm_mul", 4, 8, "rms_norm_backward"),
    Pass("rms_norm_to_copy", 3, 3, "rms_norm_backward"),
    Pass("rms_norm_mul", 2, 4, "rms_norm_backward"),
)
# MaxText's scripts for A3: sharded within a node, replicated between nodes, each of which has four
# network cards of 200 Gb/s for its GPUs (Google's documentation of A3 High).
_MAXTEXT: dict[str, Any] = {"strategy": "hybrid_shard", "inter_gbps": 100.0}
_FUSED_NORM = (Pass("rms_norm", 2, 4, "rms_norm_backward"),)


@dataclass(frozen=True)
class Row:
    """A measured job: what is simulated of it, and how long its own step took."""

    source: str
    family: str  # what two rows must share to be held against each other
    group: str  # what is left out as one
    job: Job
    step_ns: float
    slots: int = 1  # micro-batches of the step, in the time of a stage
    pipeline: int = 1
    norm_kernel: bool = False  # fused norms
    precision: str = "bf16"
    sequence_parallel: bool = False  # such a row is not simulated, only held against

    @property
    def simulated_ns(self) -> float:
        """What the simulated part of the step took."""
        return self.step_ns * self.job.accumulation / self.slots

    @property
    def samples(self) -> float:
        """Of the simulated part, on a GPU."""
        return self.job.micro_batch * self.job.accumulation


@dataclass(frozen=True)
class Pair:
    """From one measured row to another."""

    kind: str
    start: Row
    end: Row
    edits: tuple[tuple[str, str], ...]

    @property
    def slots(self) -> int:
        """Micro-batches of the end that are predicted, in the time of a stage."""
        return self.end.slots if self.kind == "pp" else self.start.job.accumulation

    @property
    def truth_ns(self) -> float:
        """What the end took for them."""
        return self.end.step_ns * self.slots / self.end.slots


def load(folder: Path) -> list[Row]:
    """All rows that describe a job which can be simulated."""
    return [
        *_foundry(folder),
        *_layouts(folder),
        *_vtrain(folder),
        *_scaling(folder),
        *_torchtitan(folder),
    ]


def _read(folder: Path, name: str) -> list[dict[str, str]]:
    if not (folder / name).exists():
        return []
    with (folder / name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


# LLM-Foundry's models: hidden, layers, heads.
_MPT = {
    "125m": (768, 12, 12),
    "760m": (1536, 24, 12),
    "1b": (2048, 24, 16),
    "3b": (2560, 32, 20),
    "7b": (4096, 32, 32),
    "30b": (7168, 48, 56),
    "70b": (8192, 64, 64),
}
_FOUNDRY_GPUS = {"a100_40gb": "a100-40gb", "a100_80gb": "a100-80gb", "h100_80gb": "h100"}


def _foundry(folder: Path) -> Iterator[Row]:
    for row in _read(folder, "llmfoundry_throughput.csv"):
        if row["model"] not in _MPT:
            continue
        hidden, layers, heads = _MPT[row["model"]]
        seq, micro = int(row["seq_len"]), int(row["micro_batch"])
        ranks = int(row["n_gpus"])
        job = Job(
            model=_PLAIN,
            hidden=hidden,
            layers=layers,
            heads=heads,
            kv_heads=heads,
            ffn=4 * hidden,
            vocab=50368,
            gpu=_FOUNDRY_GPUS[row["gpu"]],
            nodes=max(1, ranks // 8),
            gpus_per_node=min(8, ranks),
            strategy=row["sharding"].lower(),
            fsdp=1,
            micro_batch=micro,
            seq=seq,
            checkpointing=row["act_ckpt"] == "True",
            ranks_only=_written(ranks),
            steps=3,
            noise=_NOISE,
            tile_sizes=_TILES,
            attention_rate=_EARLY_ATTENTION,
        )
        step = 1e9 * micro * seq / float(row["tokens_per_s_per_gpu"])
        precision = "fp8" if row["precision"] == "amp_fp8" else "bf16"
        family = f"{row['model']} {row['sharding']}"
        yield Row("LLM-Foundry", family, row["model"], job, step, precision=precision)


def _layouts(folder: Path) -> Iterator[Row]:
    for row in _read(folder, "alephalpha_layout_sweep.csv"):
        if not row["step_time_s"] or row["attn_kernel"] in ("torch", "fused"):
            continue
        stage = _stage(
            row, "llama2-13b", layers=40, vocab=128000, ranks=int(row["n_gpus"]),
            checkpointing=row["act_ckpt"] == "every_layer", batch=int(row["global_batch"]),
        )  # fmt: skip
        if stage is None:
            continue
        job, slots = stage
        early = row["attn_kernel"] != "flash_attention2"
        job = replace(
            job,
            passes=_FUSED_NORM if row["rms_kernel"] == "True" else _EAGER_NORM,
            attention_rate=_EARLY_ATTENTION if early else job.attention_rate,
        )
        family = f"13B {row['seq_len']} {row['n_gpus']} {row['attn_kernel']}"
        yield Row(
            "Aleph Alpha", family, f"{row['seq_len']} {row['attn_kernel']}", job,
            1e9 * float(row["step_time_s"]), slots, int(row["pp"]), row["rms_kernel"] == "True",
            sequence_parallel=row["seq_parallel"] == "1",
        )  # fmt: skip


def _vtrain(folder: Path) -> Iterator[Row]:
    for row in _read(folder, "vtrain_megatron_deepspeed_multi_node.csv"):
        stage = _stage(
            row, _PLAIN, layers=int(row["layers"]), vocab=51200,
            ranks=int(row["n_gpus"]), checkpointing=True, batch=int(row["global_batch"]),
            hidden=int(row["hidden"]), heads=int(row["heads"]),
        )  # fmt: skip
        if stage is not None:
            job, slots = replace(stage[0], attention_rate=_EARLY_ATTENTION), stage[1]
            yield Row(
                "vTrain", f"{row['params_b']}B {row['n_gpus']}", row["params_b"], job,
                1e6 * float(row["iter_ms"]), slots, int(row["pp"]),
            )  # fmt: skip


def _stage(
    row: dict[str, str], model: str, *, layers: int, vocab: int, ranks: int, batch: int,
    checkpointing: bool, hidden: int | None = None, heads: int | None = None,
) -> tuple[Job, int] | None:  # fmt: skip
    """One stage on one tensor-parallel group, and the micro-batch slots of a step."""
    tensor, pipeline, micro = int(row["tp"]), int(row["pp"]), int(row["micro_batch"])
    count = batch // (ranks // (tensor * pipeline)) // micro
    if tensor > 8 or layers % pipeline or count < 1:
        return None
    slots = count + pipeline - 1
    kept = min(slots, _MOST_SLOTS)
    sizes = (
        {"hidden": hidden, "heads": heads, "kv_heads": heads, "ffn": 4 * hidden} if hidden else {}
    )
    job = Job(
        model=model,
        **sizes,
        layers=layers // pipeline,
        vocab=vocab,
        nodes=1,
        gpus_per_node=tensor,
        tensor_parallel=tensor,
        strategy="ddp",
        micro_batch=micro,
        seq=int(row["seq_len"]),
        accumulation=kept,
        checkpointing=checkpointing,
        ranks_only=tuple(range(min(tensor, 2))),
        steps=3,
        noise=_NOISE,
        tile_sizes=_TILES,
        optimizer_ranks=ranks / (tensor * pipeline) * slots / kept,  # once in a whole step
    )
    return job, slots


def _scaling(folder: Path) -> Iterator[Row]:
    """Jobs that grow in nodes, each GPU's work the same: sharded over all ranks."""
    for row in _read(folder, "weak_scaling.csv"):
        ranks = int(row["n_gpus"])
        if row["tokens_per_s"] and row["model"] in ("GPT-3 5B", "GPT-3 126M"):
            model = row["model"].lower().replace(" ", "-").replace("gpt-3-", "gpt3-")
            job = Job(model=model, gpu="a100-80gb", micro_batch=4 if "5b" in model else 8)
            rate = float(row["tokens_per_s"]) / ranks
        elif row["tflops_per_gpu"] and row["model"].startswith("Llama2-7B"):
            job = Job(model="llama2-7b", gpu="h100", micro_batch=4, seq=4096, **_MAXTEXT)
            rate = float(row["tflops_per_gpu"]) * 1e12 / (6 * 6.74e9 + 12 * 32 * 4096 * 4096)
        else:
            continue
        job = replace(
            job,
            strategy="shard_grad_op" if job.model != "llama2-7b" else job.strategy,
            nodes=ranks // 8,
            ranks_only=_written(ranks),
            steps=3,
            noise=_NOISE,
            tile_sizes=_TILES,
        )
        step = 1e9 * job.micro_batch * job.seq / rate
        family = f"{row['model']} {row['platform']}"
        yield Row("weak scaling", family, row["model"], job, step)


def _torchtitan(folder: Path) -> Iterator[Row]:
    """Llama 3.1 8B, sharded over all ranks."""
    for row in _read(folder, "torchtitan_benchmarks.csv"):
        alone = row["tp"] == row["pp"] == row["cp"] == "1"
        if not alone or row["model"] != "Llama3.1-8B" or row["seq_len"] != "8192":
            continue
        ranks, micro = int(row["n_gpus"]), int(row["local_batch"])
        job = Job(
            model="llama3-8b",
            gpu="h200" if row["gpu"].startswith("H200") else "h100",
            nodes=ranks // 8,
            micro_batch=micro,
            seq=8192,
            ranks_only=_written(ranks),
            steps=3,
            noise=_NOISE,
            tile_sizes=_TILES,
        )
        step = 1e9 * micro * 8192 / float(row["tps_per_gpu"])
        family = f"{row['technique']} {row['gpu']}"
        yield Row("torchtitan", family, row["technique"], job, step)


def batches(folder: Path) -> list[Row]:
    """BLOOM while its global batch grew: a stage of six layers, checkpointed."""
    recordings = []
    for row in _read(folder, "bigscience_sweeps.csv"):
        if not row["section"].endswith("Batchsize Warmup") or row["gpu"] != "A100-80GB":
            continue
        tensor, pipeline, micro = (int(float(row[n])) for n in ("tp", "pp", "mbs"))
        slots = int(float(row["gbs"])) // int(float(row["dp"])) // micro + pipeline - 1
        job = Job(
            model=_PLAIN,
            hidden=14336,
            layers=6,
            heads=112,
            kv_heads=112,
            ffn=4 * 14336,
            vocab=250880,
            gpus_per_node=tensor,
            tensor_parallel=tensor,
            strategy="ddp",
            micro_batch=micro,
            accumulation=_MOST_SLOTS,
            checkpointing=True,
            ranks_only=(0, 1),
            steps=3,
            noise=_NOISE,
            tile_sizes=_TILES,
            optimizer_ranks=1e6,  # what is done once is part of what is measured twice
        )
        recordings.append(
            Row("BLOOM", "182B", "182B", job, 1e9 * float(row["sec_per_it"]), slots, pipeline)
        )
    return sorted(recordings, key=lambda r: r.slots)


def _written(ranks: int) -> tuple[int, ...]:
    """A few ranks, from the first to the last."""
    few = min(_RANKS, ranks)
    return tuple(k * (ranks - 1) // (few - 1) for k in range(few))


def pairs(rows: list[Row]) -> Iterator[Pair]:
    """Every ordered pair of a family that one kind of what-if leads from and to."""
    families: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        families.setdefault((row.source, row.family), []).append(row)
    for members in families.values():
        for start, end in permutations(members, 2):
            matched = pair(start, end)
            if matched is not None:
                yield matched


def pair(start: Row, end: Row) -> Pair | None:
    """What is different, if it is one kind of thing."""
    a, b = start.job, end.job
    if start.sequence_parallel:
        return None
    differs = {
        "sequence": end.sequence_parallel,
        "batch": (a.micro_batch, a.seq) != (b.micro_batch, b.seq),
        "world": a.ranks != b.ranks and a.tensor_parallel == b.tensor_parallel == 1,
        "checkpointing": a.checkpointing != b.checkpointing,
        "norms": start.norm_kernel != end.norm_kernel,
        "tensor": a.tensor_parallel != b.tensor_parallel,
        "pipeline": start.pipeline != end.pipeline,
        "hardware": a.gpu != b.gpu,
        "precision": start.precision != end.precision,
    }
    kinds = [kind for kind, is_other in differs.items() if is_other]
    if kinds == ["batch"]:
        return Pair("batch" if a.seq == b.seq else "batch and length", start, end, _batch(a, b))
    if kinds == ["world"]:
        return Pair("world", start, end, _world(a, b))
    if kinds == ["batch", "world"] and a.seq == b.seq:
        return Pair("batch and world", start, end, (*_batch(a, b), *_world(a, b)))
    if kinds == ["checkpointing"]:
        asked = "on" if b.checkpointing else "off"
        return Pair("checkpointing", start, end, (("checkpointing", asked),))
    if kinds == ["norms"] and end.norm_kernel:
        return Pair("fused norms", start, end, (("replace", NORMS),))
    if kinds == ["tensor"] and a.tensor_parallel > 1:  # the links of one GPU alone are not known
        return Pair("tp", start, end, (("tp", str(b.tensor_parallel)),))
    if kinds == ["sequence"] and a.tensor_parallel > 1:
        return Pair("sp", start, end, (("sp", "on"),))
    if kinds == ["pipeline"] and start.pipeline == 1:
        many = end.slots - end.pipeline + 1  # of which a pipeline has as many more as stages
        asked = ("accumulation", str(many // end.pipeline)), ("pp", str(end.pipeline))
        return Pair("pp", start, end, asked) if many % end.pipeline == 0 else None
    if kinds == ["hardware"] and {a.gpu, b.gpu} == {"a100-80gb", "h100"}:
        return Pair("hardware", start, end, (("hardware", b.gpu),))
    if kinds == ["precision"] and end.precision == "fp8":  # stand-ins compute in bf16
        return Pair("precision", start, end, (("precision", end.precision),))
    return None


NORMS = "rms_norm=fused"


def _world(a: Job, b: Job) -> tuple[tuple[str, str], ...]:
    """One node alone does not show that others would be replicas of it."""
    asked = (("world", str(b.ranks)),)
    replicas = a.nodes == 1 and b.nodes > 1 and b.strategy == "hybrid_shard"
    return (*asked, ("sharding", f"hybrid_shard:{a.ranks}")) if replicas else asked


def _batch(a: Job, b: Job) -> tuple[tuple[str, str], ...]:
    """Another micro-batch, another length, or both."""
    samples = b.micro_batch / a.micro_batch
    asked = (("batch", f"{samples:.6g}x"),) if samples != 1 else ()
    return (*asked, ("seq", f"{b.seq}")) if b.seq != a.seq else asked
