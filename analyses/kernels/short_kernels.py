"""How much the GPU runs in kernels too short to pay for their launch."""

from typing import Annotated, Literal

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import (
    build_numbers,
    build_texts,
    match_texts,
    read_lengths,
    read_numbers,
    read_times,
)
from htk.base.columns.groups import Groups
from htk.base.columns.intervals import Spans, merge_spans
from htk.base.columns.order import order_by
from htk.base.columns.types import NONE, Ints, Mask
from htk.base.core.analysis import analysis, with_coverage
from htk.base.core.chart import Bar
from htk.base.names.rows_by import By
from htk.base.schema import BOOL, FLOAT64, INT64, TEXT, table
from htk.quantities.measures.breakdown import build_percent
from htk.quantities.measures.kernels_by import NamingTables, SourceDepth, tell_apart

ShortBy = Literal["duration", By]

RETURNS = table(
    label=(TEXT, "Range of durations; or what the row stands for, as asked for."),
    from_us=(FLOAT64, "Shortest duration of the range; null by anything else."),
    to_us=(FLOAT64, "End of the range, not in it; null for the last."),
    short=(BOOL, "Shorter than the threshold."),
    count=(INT64, "Kernels."),
    total_ns=(INT64, "Sum of durations."),
    kernels_pct=(FLOAT64, "Of all kernels."),
    kernel_time_pct=(FLOAT64, "Share of the summed time of all activities."),
    shorter_than_launch=(
        INT64,
        "Kernels that took less time than their call, or their share of a graph's.",
    ),
    call_ns=(INT64, "Time of their launch calls, a graph's shared by what it launched."),
    idle_before_ns=(INT64, "Time right before them in which their GPU ran nothing."),
)


@analysis(
    returns=RETURNS,
    chart=Bar("label", "count", "short"),
    needs=("kernels",),
    null_without={"launches": ("shorter_than_launch", "call_ns")},
)
def short_kernels(
    kernels: pa.Table,
    kernel_links: pa.Table,
    activities: pa.Table,
    naming: NamingTables,
    *,
    by: Annotated[
        ShortBy, "What a row stands for: a range of durations; or, of short kernels, a kernel, …"
    ] = "duration",
    source_depth: SourceDepth = 1,
    threshold_us: Annotated[float, "Kernels shorter than this are short."] = 10,
    bins: Annotated[int, "Ranges of equal width below the threshold."] = 10,
    n: Annotated[int, "Rows to show, most time first; 0: all."] = 20,
) -> pa.Table:
    """How much runs in kernels too short to pay for their launch?

    A kernel that takes less time than its launch call keeps the GPU waiting for the CPU, unless
    enough work was queued ahead. Copies and sets do not count.
    """
    study = _Study(kernels, kernel_links, activities)
    limit = max(round(threshold_us * 1000), 1)
    short = study.length < limit
    if by == "duration":
        edges = np.unique(np.linspace(0, limit, max(bins, 1) + 1).round().astype(np.int64))
        edges = np.append(edges, [10 * limit, 100 * limit])
        groups = Groups.by_keys(np.searchsorted(edges, study.length, side="right") - 1)
        bin_of_row = groups.keys[:, 0] if len(groups) else np.empty(0, np.int64)
        table = study.rows(
            groups,
            np.ones(len(short), bool),
            limit,
            edges[bin_of_row],
            _list_bin_ends(edges)[bin_of_row],
        )
        return with_coverage(table, short_kernels=int(short.sum()), kernels=len(short))
    rows_by, _ = tell_apart(by, naming, source_depth)
    groups = Groups.by_keys(rows_by.codes[study.row][short])
    names = [rows_by.texts[k] for k in groups.keys[:, 0].tolist()]
    table = study.rows(groups, short, limit, None, None, names)
    order = order_by(-read_numbers(table["count"]), -read_numbers(table["total_ns"]))
    shown = order[:n] if n else order
    return with_coverage(table.take(pa.array(shown)), rows_left_out=len(order) - len(shown))


class _Study:
    """Kernels with what their launch cost, and the idle time before them."""

    def __init__(self, kernels: pa.Table, kernel_links: pa.Table, activities: pa.Table) -> None:
        self.row = np.flatnonzero(match_texts(kernels["activity"], "kernel".__eq__))
        length = read_lengths(kernels)
        self.length = length[self.row]
        launch = read_numbers(kernel_links["launch_row"], NONE)
        call = read_numbers(kernel_links["launch_end_ns"]) - read_numbers(
            kernel_links["launch_start_ns"]
        )
        self.call = _share_call_time(launch, call)[self.row]
        self.whole = int(length.sum())
        self.linked = launch[self.row] != NONE
        self.idle = _idle_before(activities)[self.row]

    def rows(
        self,
        groups: Groups,
        chosen: Mask,
        limit: int,
        low: Ints | None,
        high: Ints | None,
        names: list[str] | None = None,
    ) -> pa.Table:
        length = self.length[chosen]
        call = self.call[chosen]
        loses = (self.linked[chosen] & (length < call)).astype(np.int64)
        total = groups.sum(length)
        size = len(groups)
        if low is None or high is None:
            nothing = pa.nulls(size, FLOAT64)
            spans = [nothing, nothing]
            is_short = np.ones(size, bool)
        else:
            names = [_format_range(a, b) for a, b in zip(low.tolist(), high.tolist(), strict=True)]
            spans = [
                build_numbers(low / 1000, FLOAT64),
                build_numbers(high / 1000, FLOAT64, high >= 0),
            ]
            is_short = low < limit
        return pa.table(
            [
                build_texts(names or []),
                *spans,
                pa.array(is_short.tolist(), BOOL),
                build_numbers(groups.count, INT64),
                build_numbers(total, INT64),
                build_percent(groups.count, np.full(size, len(self.row))),
                build_percent(total, np.full(size, self.whole)),
                build_numbers(groups.sum(loses), INT64),
                build_numbers(groups.sum(call), INT64),
                build_numbers(groups.sum(self.idle[chosen]), INT64),
            ],
            schema=RETURNS,
        )


def _share_call_time(launch: Ints, call: Ints) -> Ints:
    """Return the part of its call's time that each activity has: what a division leaves over goes
    to the first ones, so that the parts add up; 0 without a call."""
    shares = np.zeros(len(launch), np.int64)
    linked = np.flatnonzero(launch != NONE)
    calls = Groups.by_keys(launch[linked])
    many = calls.count[calls.group_ids]
    nth = calls.rank_within(np.arange(len(linked)))
    shares[linked] = call[linked] // many + (nth < call[linked] % many)
    return shares


def _idle_before(activities: pa.Table) -> Ints:
    """Time before each activity in which its device ran nothing; of the first none."""
    start, end = read_times(activities)
    idle = np.zeros(len(start), np.int64)
    who = np.column_stack([read_numbers(activities[c], NONE) for c in ("rank", "cycle", "device")])
    devices = Groups.by_keys(who)
    order = order_by(devices.group_ids)
    for rows in np.split(order, np.cumsum(devices.count)[:-1] if len(devices) else []):
        busy: Spans = merge_spans(start[rows], end[rows])
        if len(busy.start) < 2:
            continue
        gap_after = np.searchsorted(busy.start[1:], start[rows])
        gap_after = np.minimum(gap_after, len(busy.start) - 2)
        first = busy.start[1:][gap_after] == start[rows]
        gap = busy.start[1:] - busy.end[:-1]
        # Of several that end one gap together only one may have it.
        _, chosen = np.unique(np.where(first, gap_after, NONE), return_index=True)
        chosen = chosen[first[chosen]]
        idle[rows[chosen]] = gap[gap_after[chosen]]
    return idle


def _list_bin_ends(edges: Ints) -> Ints:
    return np.append(edges[1:], NONE)


def _format_range(low: int, high: int) -> str:
    if high < 0:
        return f"from {low / 1000:g} µs"
    return f"{low / 1000:g} to {high / 1000:g} µs"
