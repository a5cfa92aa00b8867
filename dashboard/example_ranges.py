"""Where in the timeline a finding can be seen: one instance, the worst, as a range of time."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import match_texts, read_numbers, read_times
from htk.base.columns.groups import Groups
from htk.base.columns.intervals import merge_spans
from htk.base.columns.order import order_by
from htk.base.errors import HtkError
from htk.dashboard.page import Visit


@dataclass(frozen=True)
class Instance:
    """A range of time since the trace began, and whose it is."""

    what: str
    from_ns: int
    to_ns: int
    rank: int | None = None
    gpu: int | None = None  # of a rank with several


def link_to_timeline(visit: Visit, example: Instance) -> str:
    """Return the timeline there, with a margin on both sides."""
    margin = max((example.to_ns - example.from_ns) // 4, 1000)
    low = max(example.from_ns - margin, 0)
    high = example.to_ns + margin
    whose = {} if example.rank is None else {"ranks": str(example.rank)}
    times = {"from": f"{low / 1e6:.6f}ms", "to": f"{high / 1e6:.6f}ms"}
    return visit.view.link("timeline", **times, **whose)


def find_worst_instance(visit: Visit, analysis: str) -> Instance | None:
    """Return the worst instance of what an analysis shows; None where none can be told."""
    try:
        find = _FINDERS.get(analysis, find_longest_step)
        worst: Instance | None = visit.kept(("instance", analysis), lambda: find(visit))
    except HtkError:
        return None
    return worst


def find_longest_step(visit: Visit) -> Instance | None:
    """Return the longest step."""
    table = visit.ask("step_times").table
    row = _find_longest_row(table, "duration_ns")
    if row is None:
        return None
    start = int(row["start_ns"]) - visit.trace.origin_ns
    what = f"the longest step ({row['step']}, rank {row['rank']})"
    return Instance(what, start, start + int(row["duration_ns"]))


def find_longest_wait(visit: Visit) -> Instance | None:
    """Return the collective that was waited in longest."""
    row = _find_longest_row(visit.ask("late_arrivals", n=1).table, "wait_total_ns")
    if row is None:
        return None
    start = int(row["start_ns"]) - visit.trace.origin_ns
    length = int(row["wait_ns_max"]) + int(row["span_ns"])
    return Instance(f"the {row['type']} waited in longest", start - length, start + length)


def find_exposed_collective(visit: Visit) -> Instance | None:
    """Return the collective that hides worst behind compute."""
    table = visit.ask("comm_compute_overlap", by="collective").table
    row = _find_longest_row(table, "exposed_comm_ns")
    if row is None:
        return None
    activities = visit.trace.tables["activities"]
    chosen = read_numbers(activities["rank"], -1) == row["rank"]
    chosen &= read_numbers(activities["event"], -1) == row["event"]
    return _find_longest_span(visit, activities, chosen, f"the most exposed {row['type']}")


def find_longest_kernel(visit: Visit) -> Instance | None:
    """Return the longest kernel that computes."""
    activities = visit.trace.tables["activities"]
    computes = match_texts(activities["kind"], "compute".__eq__)
    return _find_longest_span(visit, activities, computes, "the longest kernel")


def find_longest_copy(visit: Visit) -> Instance | None:
    """Return the longest copy."""
    activities = visit.trace.tables["activities"]
    return _find_longest_span(
        visit, activities, match_texts(activities["kind"], "memory".__eq__), "the longest copy"
    )


def find_longest_gap(visit: Visit) -> Instance | None:
    """Return the longest time that a GPU stood still."""
    longest = find_longest_gaps(visit, 1)
    return longest[0] if longest else None


def find_longest_gaps(visit: Visit, most: int) -> list[Instance]:
    """Return the longest times that a GPU stood still between activities."""
    table = visit.trace.tables["activities"]
    start, end = read_times(table)
    low, high = _find_window_bounds(visit)
    rows = np.flatnonzero((end > low) & (start < high))
    gpus = Groups.by_keys([read_numbers(table[column], -1)[rows] for column in ("rank", "device")])
    several = len(gpus) > len(np.unique(gpus.keys[:, 0]))
    rows = rows[order_by(gpus.group_ids)]
    last = np.cumsum(gpus.count).tolist()
    instances: list[Instance] = []
    for who, count, after in zip(gpus.keys.tolist(), gpus.count.tolist(), last, strict=True):
        on_gpu = rows[after - count : after]
        spans = merge_spans(start[on_gpu], end[on_gpu])
        length = spans.start[1:] - spans.end[:-1]
        for k in np.argsort(-length)[:most].tolist():
            a = int(spans.end[k]) - visit.trace.origin_ns
            b = int(spans.start[k + 1]) - visit.trace.origin_ns
            gpu = who[1] if several else None
            instances.append(Instance(f"the longest gap (rank {who[0]})", a, b, who[0], gpu))
    return sorted(instances, key=lambda g: g.from_ns - g.to_ns)[:most]


def find_memory_peak(visit: Visit) -> Instance | None:
    """Return the time when most memory was in use, 0.5 ms on either side."""
    row = _find_longest_row(visit.ask("memory_peaks").table, "peak_bytes")
    if row is None:
        return None
    time = int(row["peak_ns"]) - visit.trace.origin_ns
    return Instance(f"the peak of memory (rank {row['rank']})", time - 500_000, time + 500_000)


def _find_window_bounds(visit: Visit) -> tuple[int, int]:
    """Return the first start and last end of the selection's recorded windows, absolute, ns."""
    windows = visit.trace.tables["rank_windows"]
    if not windows.num_rows:
        return 0, np.iinfo(np.int64).max
    return int(read_numbers(windows["start_ns"]).min()), int(read_numbers(windows["end_ns"]).max())


def _find_longest_row(table: pa.Table, column: str) -> dict[str, int] | None:
    if not table.num_rows:
        return None
    index = int(np.argmax(read_numbers(table[column], -1)))
    row: dict[str, int] = table.slice(index, 1).to_pylist()[0]
    return row


def _find_longest_span(
    visit: Visit, table: pa.Table, chosen: np.ndarray, what: str
) -> Instance | None:
    start, end = read_times(table)
    low, high = _find_window_bounds(visit)
    chosen = chosen & (end > low) & (start < high)
    if not chosen.any():
        return None
    index = int(np.argmax(np.where(chosen, end - start, -1)))
    origin = visit.trace.origin_ns
    rank = int(read_numbers(table["rank"], -1)[index])
    what = f"{what} (rank {rank})"
    return Instance(what, int(start[index]) - origin, int(end[index]) - origin, rank)


_FINDERS: dict[str, Callable[[Visit], Instance | None]] = {
    "stragglers": find_longest_wait,
    "comm_wait": find_longest_wait,
    "late_arrivals": find_longest_wait,
    "comm_compute_overlap": find_exposed_collective,
    "comm_overlap_by_group": find_exposed_collective,
    "kernel_top": find_longest_kernel,
    "kernel_families": find_longest_kernel,
    "kernel_occupancy": find_longest_kernel,
    "roofline": find_longest_kernel,
    "memory_bandwidth": find_longest_copy,
    "idle_breakdown": find_longest_gap,
    "host_stalls": find_longest_gap,
    "launch_stats": find_longest_gap,
    "memory_peaks": find_memory_peak,
}
