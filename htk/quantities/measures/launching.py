"""Calls that launch GPU work, each with what it launched; spans, and what they launched."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import mark_valid, read_numbers, read_times
from htk.base.columns.order import order_by
from htk.base.columns.types import NONE, Ints, fill_none


@dataclass(frozen=True)
class Launched:
    """A row for each call that launched something; a graph launch is one call."""

    call: Ints  # row of `launches`
    count: Ints  # activities
    length: Ints  # sum of their durations
    first: Ints  # row of the activity that started first
    call_length: Ints
    delay: Ints  # from the end of the call to the first start; 0 where it started before

    @classmethod
    def from_kernels(cls, kernels: pa.Table, kernel_links: pa.Table) -> "Launched":
        launch = read_numbers(kernel_links["launch_row"], NONE)
        linked = np.flatnonzero(launch != NONE)
        start, end = read_times(kernels)
        order = linked[order_by(launch[linked], start[linked])]
        call, begin, count = np.unique(launch[order], return_index=True, return_counts=True)
        sums = np.append(0, np.cumsum((end - start)[order]))
        first = order[begin]
        began = read_numbers(kernel_links["launch_start_ns"])[first]
        ended = read_numbers(kernel_links["launch_end_ns"])[first]
        return cls(
            call.astype(np.int64),
            count.astype(np.int64),
            sums[begin + count] - sums[begin],
            first,
            ended - began,
            np.maximum(start[first] - ended, 0),
        )


def launched_within(
    rank: Ints, start: Ints, end: Ints, kernels: pa.Table, kernel_links: pa.Table
) -> Ints:
    """Return for each activity the span that launched it; spans of a rank follow one another."""
    launch = read_numbers(kernel_links["launch_start_ns"])
    linked = mark_valid(kernel_links["launch_start_ns"])
    launcher = fill_none(len(launch))
    owner = read_numbers(kernels["rank"], NONE)
    for rank_id in np.unique(rank).tolist():  # ranks
        spans = np.flatnonzero(rank == rank_id)
        spans = spans[order_by(start[spans])]
        theirs = np.flatnonzero((owner == rank_id) & linked)
        position = np.searchsorted(start[spans], launch[theirs], side="right") - 1
        inside = (position >= 0) & (launch[theirs] < end[spans][position])
        launcher[theirs[inside]] = spans[position[inside]]
    return launcher
