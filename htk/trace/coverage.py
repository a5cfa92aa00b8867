"""What a number rests on: ranks at hand and missing, events used, dropped, unlinked, carried in."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from htk.columns.arrow import codes_of, numbers, truths, valid
from htk.trace.trace import Trace

_GPU = {"kernels", "kernel_links", "activities", "rank_windows", "step_windows"}


def coverage(trace: Trace, reads: Iterable[str]) -> dict[str, Any]:
    """The facts that every answer from these tables carries."""
    facts: dict[str, Any] = {**_ranks(trace), **_losses(trace)}
    if _GPU & set(reads):
        facts |= gpu_coverage(trace)
    if "aligned_matches" in reads:
        facts |= clock_coverage(trace)
    chosen = {
        "steps": sorted(trace.selection.steps) if trace.selection.steps is not None else None,
        "from_ns": trace.selection.from_ns,
        "to_ns": trace.selection.to_ns,
        "annotation": trace.selection.annotation,
        "cycles": sorted(trace.selection.cycles) if trace.selection.cycles is not None else None,
    }
    narrowed = {k: v for k, v in chosen.items() if v is not None}
    facts["origin_ns"] = trace.origin_ns
    if cycles := trace.cycles_of_steps:
        facts["cycles_of_steps"] = cycles
    return facts | ({"selection": narrowed} if narrowed else {})


def _ranks(trace: Trace) -> dict[str, Any]:
    present = trace.ranks
    sizes = [v for v in trace.tables["ranks"]["world_size"].to_pylist() if v]
    world_size = max(sizes, default=None)
    missing = sorted(set(range(world_size)) - set(present)) if world_size else []
    if trace.selection.ranks is not None:
        missing = sorted(set(trace.selection.ranks) - set(present))
    return {"ranks": present, "world_size": world_size, "missing_ranks": missing}


def _losses(trace: Trace) -> dict[str, Any]:
    issues = trace.tables["parse_issues"]
    kinds, names = codes_of(issues["kind"])
    counts = np.bincount(kinds, numbers(issues["count"], 1), minlength=len(names))
    issue_counts = {k: int(n) for k, n in zip(names.to_pylist(), counts, strict=True) if n}
    return {
        "events": int(numbers(trace.tables["ranks"]["events"]).sum()),
        "dropped": sum(issue_counts.values()),
        "issues": issue_counts,
        "files_unread": len(trace.unread),
        "files_failed": len(trace.failed),
    }


def clock_coverage(trace: Trace) -> dict[str, Any]:
    """Whether the ranks' times were put on one clock, and how well those clocks are known."""
    clocks = trace.tables["rank_clocks"]
    leads, aligned = numbers(clocks["aligned_with"], -1), truths(clocks["aligned"])
    sets, shifted = np.unique(leads[leads >= 0]), np.unique(leads[aligned])
    word = "applied" if len(shifted) else "not needed" if len(sets) else "not possible"
    if 0 < len(shifted) < len(sets):
        word = f"applied to {len(shifted)} of {len(sets)} sets of ranks"
    placed = leads >= 0
    return {
        "clock_alignment": word,
        "clock_offset_max_ns": int(np.abs(numbers(clocks["offset_ns"])).max(initial=0)),
        "clock_residual_max_ns": round(float(numbers(clocks["residual_ns"]).max(initial=0.0))),
        "clock_sigma_max_ns": round(float(numbers(clocks["offset_ns_sigma"]).max(initial=0.0))),
        "clock_sets": len(sets),
        "ranks_unaligned": numbers(clocks["rank"])[~placed].tolist(),
    }


def gpu_coverage(trace: Trace) -> dict[str, Any]:
    """How much GPU work is at hand, and how much of it is linked to what launched it."""
    kernels, links = trace.tables["kernels"], trace.tables["kernel_links"]
    length = numbers(kernels["end_ns"]) - numbers(kernels["start_ns"])
    linked, carried = valid(links["launch_row"]), truths(links["carry_in"])
    lost = ~linked & ~carried
    ambiguous = int(truths(links["ambiguous"]).sum())
    return {
        "gpu_activities": kernels.num_rows,
        "gpu_activities_linked_pct": _share(linked, length),
        "carry_in_activities": int(carried.sum()),
        "carry_in_ns": int(length[carried].sum()),
        "unlinked_activities": int(lost.sum()),
        "unlinked_ns": int(length[lost].sum()),
    } | ({"ambiguous_activities": ambiguous} if ambiguous else {})


def _share(chosen: Any, weight: Any) -> float | None:
    total = int(weight.sum())
    return round(100 * int(weight[chosen].sum()) / total, 3) if total else None
