"""Findings on idle time, by what the host did meanwhile."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import codes_of, numbers, truths
from htk.base.columns.types import NONE, Ints, Mask
from htk.base.core.humanize import format_duration, pluralize
from htk.quantities.derived.idle import CAUSES
from htk.quantities.derived.idle_totals import cause_numbers
from htk.verdicts.causes.advice.finding import Advice, costliest, longest, mostly

LAUNCH_BOUND = "launch-bound: the host launches slower than the GPU works"
BUSY_HOST = "the GPU waits while the host works on something else"
FULL_ALLOCATOR = "the caching allocator is full: it frees and allocates inside the step"
_HOST = ("host_operator", "host_runtime_call", "host_python", "launch_latency")

# Findings by the causes of idle time that they stand for: what they mean, and what to do.
RULES: dict[str, tuple[tuple[str, ...], str]] = {
    "the GPU waits for data": (
        ("host_data_loading",),
        "more DataLoader workers, prefetch_factor, pin_memory, persistent_workers; "
        "move decoding off the main thread",
    ),
    LAUNCH_BOUND: (_HOST, ""),
    BUSY_HOST: (
        _HOST,
        "take this work out of the step: to another thread or process, to the GPU, or to "
        "once every n steps",
    ),
    "memory is allocated from the driver inside the step": (
        ("host_allocation",),
        "expandable_segments:True, allocate once, leave reserve memory to the caching allocator",
    ),
    "Python collects garbage in the step": (
        ("host_gc",),
        "gc.disable(), and collect between steps",
    ),
    "code is compiled in the recorded steps": (
        ("host_compilation",),
        "record after warm-up; mark dynamic shapes, look at recompiles (TORCH_LOGS=recompiles)",
    ),
    "the recording holds the start-up of the job": (
        ("host_start_up", "host_lazy_loading"),
        "record after warm-up (schedule(wait=…, warmup=…)): contexts, streams, handles, modules "
        "and first launches cost this once, not in every step",
    ),
    "streams wait for events while the device is idle": (
        ("stream_event_wait",),
        "look at what records the event late; fewer streams, or events recorded sooner",
    ),
    "a call blocks while nothing recorded runs: the recording lacks GPU work": (
        ("unrecorded_gpu_work_suspected",),
        "do not read this as idle time: see whether another process or an unprofiled library "
        "uses the GPU, and record a longer window",
    ),
    "the profiler itself holds the GPU up": (
        ("profiler_overhead",),
        "record fewer steps, without stacks and memory",
    ),
    "synchronising calls drain the GPU": (
        ("host_sync",),
        "keep values on the GPU (no .item, no print of tensors), copy from pinned memory with "
        "non_blocking=True, log every n steps",
    ),
}


@dataclass(frozen=True)
class Idle:
    """The columns of table `idle_costs`: a row for pieces of idle time that are alike."""

    rank: Ints
    cycle: Ints
    step: Ints  # NONE: in none
    cause: Ints  # in `CAUSES`
    is_long: Mask
    name: Ints  # of what the host waited in, in `names` (NONE: nothing, or unnamed)
    names: list[str | None]
    blocks: Mask  # that is a blocking call
    frees: Mask  # memory was given back to the driver meanwhile
    pieces: Ints
    length: Ints
    blocked: Ints  # ns that a blocking call explains
    longest_start: Ints
    longest_ns: Ints

    def of_causes(self, chosen: tuple[str, ...]) -> Mask:
        return np.isin(self.cause, [k for k, name in enumerate(CAUSES) if name in chosen])

    @classmethod
    def of(cls, idle_costs: pa.Table) -> "Idle":
        name, names = codes_of(idle_costs["name"])

        def int64s(column: str) -> Ints:
            return numbers(idle_costs[column], NONE).astype(np.int64)

        return cls(
            rank=int64s("rank"),
            cycle=int64s("cycle"),
            step=int64s("step"),
            cause=cause_numbers(idle_costs["cause"]),
            is_long=truths(idle_costs["long"]),
            name=name.astype(np.int64),
            names=names.to_pylist(),
            blocks=truths(idle_costs["blocking"]),
            frees=truths(idle_costs["frees"]),
            pieces=int64s("pieces"),
            length=int64s("idle_ns"),
            blocked=int64s("blocked_ns"),
            longest_start=int64s("longest_start_ns"),
            longest_ns=int64s("longest_ns"),
        )


def idle_findings(
    idle: Idle, gpus: int, waits: Mapping[str, tuple[int, str]], launch_advice: str
) -> list[Advice]:
    """Findings on idle time, each with what other ranks wait for the same cause: `waits`, by
    finding, is how long, and in words for whom."""
    findings = []
    for finding, (causes, advice) in RULES.items():
        rows, cost = _share(finding, idle, idle.of_causes(causes))
        row = _finding(finding, idle, rows, cost, gpus, advice or launch_advice)
        if finding in waits:
            row = row.with_waits(*waits[finding])
        if row.gain_ns:
            findings.append(row)
    return findings


def finding_of(cause: str, long: bool) -> str:
    """Return the finding that stands for a cause of idle time."""
    if cause in _HOST:
        return BUSY_HOST if long else LAUNCH_BOUND
    return next((name for name, (causes, _) in RULES.items() if cause in causes), "")


def _share(finding: str, idle: Idle, of_cause: Mask) -> tuple[Mask, Ints]:
    """Return the pieces that a finding speaks of, and how much of each is its own."""
    if finding == "synchronising calls drain the GPU":
        # Also what follows a call until the next launch; of pieces in none all that is left.
        cost = np.where(of_cause, idle.length, idle.blocked)
        return cost > 0, cost
    cost = np.where(of_cause, idle.length - idle.blocked, 0)
    if finding == LAUNCH_BOUND:
        cost = np.where(idle.is_long, 0, cost)
    if finding == BUSY_HOST:
        cost = np.where(idle.is_long, cost, 0)
    return cost > 0, cost


def _finding(finding: str, idle: Idle, rows: Mask, cost: Ints, gpus: int, advice: str) -> Advice:
    called = idle.name[rows]
    if "synchron" not in finding:  # a call that blocks has a finding of its own
        called = np.where(idle.blocks[rows], NONE, called)
    events = costliest(idle.names, called, cost[rows])
    parts = []
    for k in np.unique(idle.cause[rows]).tolist():  # of a dozen causes
        of_cause = rows & (idle.cause == k)
        spent = format_duration(int(cost[of_cause].sum()) / gpus)
        gaps = int(idle.pieces[of_cause].sum())
        parts.append(f"{CAUSES[k]} {spent} in {pluralize(gaps, 'gap')}")
    where = mostly(idle.rank[rows], cost[rows], "on rank", idle.rank)
    where += mostly(idle.step[rows], cost[rows], "in step", idle.step)
    if events:
        where += f"; meanwhile {', '.join(events)}"
    if "host_allocation" in RULES[finding][0] and _steps_that_free(idle, rows) > 1:
        finding = FULL_ALLOCATOR
        advice = (
            "less memory: activation checkpointing, smaller micro-batches with accumulation, more "
            "sharding; against fragments expandable_segments:True"
        )
    start = idle.longest_start[rows]
    return Advice(
        finding,
        f"GPU idle: {', '.join(parts)}{where}" if parts else "no GPU is idle for it itself",
        advice,
        int(cost[rows].sum()),
        "host_stalls" if "synchron" in finding else "idle_breakdown",
        events,
        longest(idle.rank[rows], start, start + idle.longest_ns[rows]),
    )


def _steps_that_free(idle: Idle, rows: Mask) -> int:
    """In how many steps memory is given back to the driver while a GPU is idle for it. A job that
    starts up does so once, or in no step."""
    freed = rows & idle.frees & (idle.step >= 0)
    return len(np.unique(np.column_stack([idle.cycle, idle.step])[freed], axis=0))
