"""Hold what-ifs of random jobs and random edits to the same jobs simulated with these edits.

    python -m bench.whatif_properties [--runs 5000] [--seconds S] [--seed N] [--json FILE] [-v]

A run draws a job and one or two edits, of which some make a job that cannot be. Found are answers
to impossible jobs, errors that are no refusals, edits to what is so already that change a step or
its interval, jobs out of memory that are said to fit, and intervals of 90 % that miss the simulated
step or peak more than 12 % of the time; exit code 1 where there are any.
"""

import argparse
import json
import math
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields, replace
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from htk.base.errors import HtkError, UsageError
from htk.recording.simulate.config import Config, check_config
from htk.recording.simulate.job import simulate_job
from htk.traces.trace.opening import OpenOptions, open_trace
from htk.whatif.baseline import build_baseline
from htk.whatif.predict import predict_answer
from htk.whatif.recorded_step import Baseline

MOST_MISSED = 0.12  # of intervals that say they hold nine in ten
_EDITS_OF_A_JOB = 5
_LIKELY_FITS = 0.05
_NINE_TENTHS = 1.645  # standard deviations
# What the simulator alone asks for.
_NOT_SIMULATED = (
    *("stages of", "goes with", "does not go with", "graphs hold", "gpus_per_node"),
    *("would be written", "virtual_stages", "has no tf32"),
)
# Edits that the simulator can make as well, drawn three times as often.
_TWINNED = (
    *("tp", "cp", "pp", "sp", "world", "batch", "seq", "accumulation", "checkpointing"),
    *("precision", "sharding", "hardware", "loss", "optimizer", "lora", "no_sync"),
)
_STRATEGIES = ("ddp", "full_shard", "shard_grad_op", "hybrid_shard")


class Impossible(Exception):
    """There can be no job after an edit."""


class Unsimulated(Exception):
    """The simulator has no such job."""


@dataclass(frozen=True)
class Case:
    """A job, its edits, and what came of them."""

    job: dict[str, Any]
    edits: tuple[tuple[str, str], ...]
    outcome: str
    words: str = ""
    off_pct: float | None = None
    memory_off_pct: float | None = None
    is_held: bool | None = None
    is_memory_held: bool | None = None


class Drawn(NamedTuple):
    """An edit by its name and value."""

    name: str
    value: str


def draw_job(rng: random.Random) -> Config:
    """Return a random job that can be."""
    while True:
        strategy = rng.choice((*_STRATEGIES, "ddp", "full_shard"))
        pipeline = rng.choice((1, 1, 1, 1, 2))
        config = Config(
            model="drawn",
            layers=rng.choice((2, 4)),
            hidden=rng.choice((512, 1024, 2048)),
            heads=rng.choice((8, 16)),
            ffn=4096,
            vocab=rng.choice((8000, 32000)),
            gpu=rng.choice(("a100-80gb", "a100-40gb", "h100")),
            nodes=rng.choice((1, 1, 2)),
            gpus_per_node=rng.choice((1, 2, 4, 4)),
            strategy=strategy,
            fsdp=rng.choice((1, 2, 2)),
            tensor_parallel=rng.choice((1, 1, 1, 2)),
            context_parallel=rng.choice((1, 1, 1, 2)),
            pipeline_parallel=pipeline,
            accumulation=rng.choice((1, 1, 2, 4)) * pipeline,
            micro_batch=rng.choice((1, 2, 4, 8)),
            seq=rng.choice((512, 1024, 2048)),
            checkpointing=rng.random() < 0.2,
            precision=rng.choice(("bf16", "bf16", "bf16", "tf32")),
            optimizer=rng.choice(("adam", "adam", "adam-foreach")),
            seed=rng.randrange(1000),
            steps=3,
            stacks=False,
        )
        if config.ranks == 1:  # which shows no strategy
            config = replace(config, strategy="ddp")
        try:
            return check_config(config)
        except UsageError:
            continue


def draw_edit(rng: random.Random, job: Config) -> Drawn:
    """Return a random edit of a job, sensible or not."""
    ways = ("1", "2", "3", "4", "8", "16")
    values: dict[str, tuple[str, ...]] = {
        "tp": ways,
        "cp": ways,
        "pp": ("1", "2", "3", "4"),
        "sp": ("on", "off"),
        "world": ("1", "2", "4", "8", "16", "3", "1x8", "2x4", "4x2", "7", "1000000"),
        "batch": ("2x", "0.5x", "0.3x", "1x", "4x", "3", "global=8", "global=7", "global=32"),
        "seq": ("2x", "0.5x", "1024", "1x", "100000"),
        "accumulation": ("1", "2", "4", "2x", "0.5x", "1x", "global=32", "global=5"),
        "checkpointing": ("on", "off"),
        "precision": ("bf16", "tf32", "fp32", "fp8"),
        "sharding": (*_STRATEGIES, "zero1", "zero2", "hybrid_shard:2", "hybrid_shard:3"),
        "hardware": ("h100", "a100-80gb", "v100-32gb", "t4", "h200"),
        "loss": ("fused",),
        "optimizer": ("fused", "8bit"),
        "attention": ("flash",),
        "lora": ("8", "64"),
        "no_sync": ("on", "off"),
        "gradients": ("0.5x", "1x", "2x"),
        "compile": ("on",),
        "graphs": ("on",),
        "host": ("2x", "1x"),
        "workers": ("2x",),
        "overlap": ("perfect", "serial", "realistic", "today"),
        "no_skew": ("on",),
        "fix_rank": ("all", "0", "99"),
        "bucket": ("100MB", "25MB", "1MB"),
        "prefetch_depth": ("0", "1", "2"),
        "network": ("bandwidth=2x", "bandwidth=0.5x", "inter_gbps=25", "lost=1"),
        "replace": ("gemm=2x", "optimizer=gone", "nothing=2x"),
        "ep": ("1", "2"),
        "split": ("tensor=2",),
    }
    name = rng.choice((*values, *_TWINNED * 2))
    return Drawn(name, rng.choice(values[name]))


def edited_config(job: Config, edits: tuple[Drawn, ...]) -> Config:
    """Return the job simulated with the edits; raise Impossible or Unsimulated."""
    asked = dict(edits)
    changes: dict[str, Any] = {}
    for name, value in edits:
        if name in ("batch", "accumulation", "pp"):
            continue
        changes |= _change(job, name, value)
    twin = replace(job, **changes)
    if "pp" in asked:
        stages = int(asked["pp"])
        many = _whole(twin.accumulation * stages / twin.pipeline_parallel)
        twin = replace(twin, pipeline_parallel=stages, accumulation=many)
    if twin.tensor_parallel == 1 and "sp" not in asked:
        twin = replace(twin, sequence_parallel=False)
    split = twin.tensor_parallel * twin.pipeline_parallel * twin.context_parallel
    if twin.ranks % split:
        raise Impossible(f"{split} ways of {twin.ranks} ranks")
    return _with_batch(job, twin, asked, twin.ranks // split)


def _with_batch(job: Config, twin: Config, asked: dict[str, str], replicas: int) -> Config:
    batch, many = asked.get("batch", "1x"), asked.get("accumulation", "1x")
    stages = twin.pipeline_parallel // job.pipeline_parallel if "pp" in asked else 1
    if "pp" in asked and "accumulation" in asked:
        raise Unsimulated("micro-batches of other stages")
    if not many.startswith("global="):
        now = twin.accumulation / max(stages, 1)
        twin = replace(twin, accumulation=_whole(_times(many, now) * max(stages, 1)))
    if not batch.startswith("global="):
        twin = replace(twin, micro_batch=_whole(_times(batch, job.micro_batch)))
    if batch.startswith("global=") and many.startswith("global="):
        raise Impossible("two global batches")
    if batch.startswith("global="):
        samples = float(batch.removeprefix("global="))
        twin = replace(twin, micro_batch=_whole(samples / replicas / twin.accumulation))
    if many.startswith("global="):
        samples = float(many.removeprefix("global="))
        twin = replace(twin, accumulation=_whole(samples / replicas / twin.micro_batch))
    return twin


def _times(value: str, now: float) -> float:
    return now * float(value[:-1]) if value.endswith("x") else float(value)


def _whole(value: float) -> int:
    if value < 1 or abs(value - round(value)) > 1e-9:
        raise Impossible(f"{value:g} is no whole number of samples or micro-batches")
    return round(value)


def _change(job: Config, name: str, value: str) -> dict[str, Any]:
    """Return the fields that an edit changes in a simulated job."""
    if name in ("tp", "cp"):
        field = {"tp": "tensor_parallel", "cp": "context_parallel"}[name]
        return {field: int(value)}
    if name == "sp":
        return {"sequence_parallel": value == "on"}
    if name == "world":
        nodes, mark, each = value.partition("x")
        if job.strategy == "hybrid_shard" and (mark or job.nodes == 1):
            raise Unsimulated("shards of nodes that become others, or that show no replicas")
        if mark:
            return {"nodes": int(nodes), "gpus_per_node": int(each)}
        ranks = int(nodes)
        if ranks > 64:
            raise Unsimulated("so many ranks")
        if job.ranks == 1:
            return {"nodes": max(ranks // 8, 1), "gpus_per_node": min(ranks, 8)}
        node = min(ranks, job.gpus_per_node)
        if ranks % node:
            raise Unsimulated("nodes that are not full")
        return {"nodes": ranks // node, "gpus_per_node": node}
    if name == "seq":
        return {"seq": _whole(_times(value, job.seq))}
    if name == "checkpointing":
        return {"checkpointing": value == "on"}
    if name == "precision" and value != "fp8":
        return {"precision": value}
    if name == "sharding" and job.ranks == 1:
        raise Unsimulated("one rank shows no strategy")
    if name == "sharding" and value in _STRATEGIES:
        if value == "hybrid_shard" and job.nodes == 1:
            raise Unsimulated("replicas within a node")
        return {"strategy": value}
    if name == "hardware":
        return {"gpu": value}
    if name == "loss":
        return {"fused_loss": True}
    if name == "optimizer":
        return {"optimizer": {"fused": "adam", "8bit": "adam-8bit"}[value]}
    if name == "lora":
        return {"lora_rank": int(value)}
    if name == "no_sync" and job.strategy == "ddp":
        return {"no_sync": value == "on"}
    if name == "prefetch_depth" or (name, value) == ("bucket", "25MB"):
        raise Unsimulated("as recorded")
    raise Unsimulated(name)


@lru_cache(maxsize=24)
def recorded(job: Config) -> Baseline:
    """Return what predictions from a simulated job start from."""
    with TemporaryDirectory() as folder:
        simulate_job(job, Path(folder))
        return build_baseline(open_trace(folder, OpenOptions(cache=False)).tables)


def cases(seed: int) -> Iterator[Case]:
    """Yield the cases of a job that is drawn from a seed."""
    rng = random.Random(seed)
    job = draw_job(rng)
    for _ in range(_EDITS_OF_A_JOB):
        edits = tuple(draw_edit(rng, job) for _ in range(rng.choice((1, 1, 2))))
        if len({edit.name for edit in edits}) == len(edits):
            yield judged(job, edits)


def judged(job: Config, edits: tuple[Drawn, ...]) -> Case:
    """Ask for the edits of a job and hold the answer to the job simulated with them."""
    plain = Config(stacks=False)
    own = {f.name: v for f in fields(job) if (v := getattr(job, f.name)) != getattr(plain, f.name)}
    case = Case(own, tuple((e.name, e.value) for e in edits), "")
    twin, impossible, out_of_memory = None, "", False
    try:
        twin = edited_config(job, edits)
        check_config(twin)
    except Impossible as error:
        impossible = str(error)
    except Unsimulated:
        twin = None
    except UsageError as error:
        out_of_memory = "out of memory" in str(error)
        if not out_of_memory and not any(words in str(error) for words in _NOT_SIMULATED):
            impossible = str(error)
        twin = None
    start = recorded(job)
    if None in (start.job.pipeline, start.job.context):  # groups without a description
        impossible = ""
    try:
        answer = predict_answer(start, [tuple(edit) for edit in edits])
    except UsageError as error:
        kind = "refused an impossible job" if impossible else "refused"
        return replace(case, outcome=kind, words=str(error))
    except HtkError as error:
        return replace(case, outcome="internal error", words=repr(error))
    except Exception as error:  # what is looked for
        return replace(case, outcome="internal error", words=repr(error))
    if answer.step_ns is None:
        kind = "refused an impossible job" if impossible else "unknown to htk"
        return replace(case, outcome=kind, words=answer.verdict)
    low, high = answer.intervals[2:]
    assert low is not None and high is not None
    if impossible:
        return replace(case, outcome="answered an impossible job", words=impossible)
    if not low <= answer.step_ns <= high or not math.isfinite(high):
        return replace(case, outcome="internal error", words="step outside its interval")
    if out_of_memory and answer.peak and (answer.peak.p_oom or 0.0) <= _LIKELY_FITS:
        return replace(case, outcome="said to fit", words=f"P(OOM) {answer.peak.p_oom}")
    if twin is None:
        return replace(case, outcome="answered without a twin")
    if twin == job:
        plain = predict_answer(start, [])
        is_same = (plain.step_ns, plain.intervals) == (answer.step_ns, answer.intervals)
        kind = "no change" if is_same else "changed by no change"
        return replace(case, outcome=kind, words=f"{plain.intervals} to {answer.intervals} ns")
    truth = recorded(twin)
    if start.refused or truth.refused:
        return replace(case, outcome="refused by the gate")
    case = replace(
        case,
        outcome="answered",
        off_pct=100 * (answer.step_ns / truth.step_ns - 1),
        is_held=low <= truth.step_ns <= high,
    )
    peaks = None if truth.memory is None else truth.memory.peaks
    if answer.peak is None or peaks is None or start.memory is None or start.memory.peaks is None:
        return case
    miss = math.log(answer.peak.allocated / peaks.highest)
    held = abs(miss) <= _NINE_TENTHS * answer.peak.sigma
    return replace(case, memory_off_pct=100 * math.expm1(miss), is_memory_held=held)


def failures(judged_cases: list[Case]) -> list[str]:
    """Return what must not be, in words."""
    bad = ("answered an impossible job", "internal error", "said to fit", "changed by no change")
    words = [f"{case.outcome}: {case.job} {case.edits}: {case.words}" for case in judged_cases
             if case.outcome in bad]  # fmt: skip
    for what, held in (
        ("step", [case.is_held for case in judged_cases if case.is_held is not None]),
        ("peak", [case.is_memory_held for case in judged_cases if case.is_memory_held is not None]),
    ):
        missed = held.count(False)
        if missed > MOST_MISSED * len(held) + 2 * math.sqrt(MOST_MISSED * len(held)):
            words.append(f"intervals of the {what} miss {missed} of {len(held)}")
    return words


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=math.inf, help="stop after that long")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="file to write every case to")
    parser.add_argument("-v", "--verbose", action="store_true")
    args = parser.parse_args()
    began = time.monotonic()
    every: list[Case] = []
    for seed in range(args.seed, args.seed + args.runs):
        for case in cases(seed):
            every.append(case)
            if args.verbose:
                print(seed, case, flush=True)
        if len(every) >= args.runs or time.monotonic() - began > args.seconds:
            break
    for outcome, count in Counter(case.outcome for case in every).most_common():
        print(f"{count:6} {outcome}")
    for what, misses in (
        ("step", [abs(case.off_pct) for case in every if case.off_pct is not None]),
        ("peak", [abs(case.memory_off_pct) for case in every if case.memory_off_pct is not None]),
    ):
        if misses:
            misses.sort()
            held = [case.is_held if what == "step" else case.is_memory_held for case in every]
            print(
                f"{what}: {misses[len(misses) // 2]:.1f} % off at the median, "
                f"{misses[round(0.9 * (len(misses) - 1))]:.1f} % at the 90th; intervals held "
                f"{held.count(True)} of {held.count(True) + held.count(False)}"
            )
    if args.json:
        args.json.write_text(json.dumps([asdict(case) for case in every], indent=1) + "\n")
    words = failures(every)
    for line in words:
        print(line)
    sys.exit(bool(words))


if __name__ == "__main__":
    main()
