"""The facts a number rests on: ranks recorded and missing, events used, dropped, carried in."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from htk.base.columns.arrow import codes_of, read_booleans, read_numbers
from htk.base.mappings import Facts, Fields
from htk.quantities.derived.recorded import unrecorded_ranks
from htk.traces.trace.trace import Trace

_GPU = {
    "kernels", "kernel_links", "activities", "rank_windows", "step_windows", "idle_causes",
    "rank_window_times", "step_window_times", "rank_idle_times", "step_idle_times", "idle_costs",
    "collective_shares", "own_times",
}  # fmt: skip

SERVING = "serving, without the captures of graphs before it (--from 0ms asks for all)"


def describe_coverage(trace: Trace, reads: Iterable[str], gpu: Facts | None = None) -> Fields:
    """Return the facts that every answer from these tables carries; `gpu`: those of GPU work, if
    they were counted already."""
    facts: Fields = {**_describe_ranks(trace), **_describe_losses(trace)}
    if rests_on_gpu(reads):
        facts |= gpu_coverage(trace) if gpu is None else gpu
    if "aligned_matches" in reads:
        facts |= clock_coverage(trace)
    if "collective_matches" in reads:
        facts |= _count_unrecorded(trace)
    chosen = {
        "steps": sorted(trace.selection.steps) if trace.selection.steps is not None else None,
        "from_ns": trace.selection.as_asked.from_ns,
        "to_ns": trace.selection.to_ns,
        "annotation": trace.selection.annotation,
        "cycles": sorted(trace.selection.cycles) if trace.selection.cycles is not None else None,
        "name": trace.selection.name,
        "streams": sorted(trace.selection.streams) if trace.selection.streams is not None else None,
    }
    narrowed = {k: v for k, v in chosen.items() if v is not None}
    facts["origin_ns"] = trace.origin_ns
    if trace.selection.since_serving:
        facts["phase"] = SERVING
    if cycles := trace.cycles_of_steps:
        facts["cycles_of_steps"] = cycles
    return facts | ({"selection": narrowed} if narrowed else {})


def rests_on_gpu(reads: Iterable[str]) -> bool:
    """Return whether an answer from these tables speaks of GPU work."""
    return bool(_GPU & set(reads))


def _describe_ranks(trace: Trace) -> Fields:
    present = trace.ranks
    sizes = [v for v in trace.tables["ranks"]["world_size"].to_pylist() if v]
    world_size = max(sizes, default=None)
    missing = sorted(set(range(world_size)) - set(present)) if world_size else []
    if trace.selection.ranks is not None:
        missing = sorted(set(trace.selection.ranks) - set(present))
    how = trace.tables["ranks"]["rank_from"].to_pylist()
    guessed = sum(str(reason).startswith("guess") for reason in how)
    facts: Fields = {"ranks": present, "world_size": world_size, "missing_ranks": missing}
    return facts | ({"ranks_guessed": guessed} if guessed else {})


def _count_unrecorded(trace: Trace) -> Fields:
    """Return how many ranks of the job have no file, whichever of the others are looked at."""
    ranks = trace.everything.tables["ranks"]
    missing = unrecorded_ranks(ranks)
    recorded = len(set(ranks["rank"].drop_null().to_pylist()))
    return {"unrecorded_ranks": f"{missing} of {missing + recorded}"} if missing else {}


def _describe_losses(trace: Trace) -> Fields:
    issues = trace.tables["parse_issues"]
    kinds, names = codes_of(issues["kind"])
    counts = np.bincount(kinds, read_numbers(issues["count"], 1), minlength=len(names))
    issue_counts = {k: int(n) for k, n in zip(names.to_pylist(), counts, strict=True) if n}
    return {
        "events": int(read_numbers(trace.tables["ranks"]["events"]).sum()),
        "dropped": sum(issue_counts.values()),
        "issues": issue_counts,
        "files_unread": len(trace.unread),
        "files_failed": len(trace.failed),
    }


def clock_coverage(trace: Trace) -> Fields:
    """Return whether the ranks were put on one clock, and how well their clocks are known."""
    clocks = trace.tables["rank_clocks"]
    leads = read_numbers(clocks["aligned_with"], -1)
    aligned = read_booleans(clocks["aligned"])
    sets = np.unique(leads[leads >= 0])
    shifted = np.unique(leads[aligned])
    word = "applied" if len(shifted) else "not needed" if len(sets) else "not possible"
    if 0 < len(shifted) < len(sets):
        word = f"applied to {len(shifted)} of {len(sets)} sets of ranks"
    placed = leads >= 0
    return {
        "clock_alignment": word,
        "clock_offset_max_ns": int(np.abs(read_numbers(clocks["offset_ns"])).max(initial=0)),
        "clock_residual_max_ns": round(float(read_numbers(clocks["residual_ns"]).max(initial=0.0))),
        "clock_sigma_max_ns": round(
            float(read_numbers(clocks["offset_ns_sigma"]).max(initial=0.0))
        ),
        "clock_sets": len(sets),
        "ranks_unaligned": read_numbers(clocks["rank"])[~placed].tolist(),
    }


def gpu_coverage(trace: Trace) -> Fields:
    """Return how much GPU work was recorded, and how much of it is linked to what launched it."""
    return gpu_facts([trace.gpu_counts])


def gpu_facts(counts: Sequence[Mapping[str, int]]) -> Fields:
    """Return the coverage of GPU work from what was counted of each part of the ranks."""
    total = {name: sum(part[name] for part in counts) for name in counts[0]}
    linked = total.pop("linked_ns")
    recorded = total.pop("total_ns")
    where_any = {
        name: total.pop(name) for name in ("ambiguous_activities", "copies_between_gpus_ns")
    }
    return {
        "gpu_activities": total.pop("gpu_activities"),
        "gpu_activities_linked_pct": round(100 * linked / recorded, 3) if recorded else None,
        **total,
    } | {name: count for name, count in where_any.items() if count}
