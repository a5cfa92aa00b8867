"""The part of a trace that is looked at, and what that leaves of each table.

Time tables keep all activities and narrow the windows; kernel tables keep what the selection
launched; operators are marked, not dropped, so that row numbers of `cpu_ops` hold.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from htk.base.columns.arrow import boolean, matching, number, numbers, truths, valid, with_column
from htk.base.columns.groups import event_keys, row_of
from htk.base.columns.intervals import Spans, union
from htk.base.columns.types import NO_TIME, NONE, Mask
from htk.base.errors import UsageError
from htk.quantities.derived import registry
from htk.quantities.measures.user_ranges import held_by

_ROW_BY_ROW = ("collective_matches", "aligned_matches", "collective_facts")


@dataclass(frozen=True)
class Selection:
    """The part of the trace that is looked at. Times are ns from the recording's start."""

    ranks: frozenset[int] | None = None
    steps: frozenset[int] | None = None
    from_ns: int | None = None
    to_ns: int | None = None
    annotation: str | None = None
    cycles: frozenset[int] | None = None
    since_serving: bool = False  # from_ns is where a server begins to serve, which nobody asked for

    @property
    def as_asked(self) -> "Selection":
        """The part of the selection that somebody asked for."""
        return replace(self, from_ns=None, since_serving=False) if self.since_serving else self

    def serving_from(self, start_ns: int | None) -> "Selection":
        """Return the selection without what a server does before it serves, unless it chooses
        times, steps or recordings itself."""
        chosen = (self.steps, self.from_ns, self.to_ns, self.cycles)
        if start_ns is None or any(choice is not None for choice in chosen):
            return self
        return replace(self, from_ns=start_ns, since_serving=True)

    @property
    def of_files(self) -> "Selection":
        """The part of the selection that chooses recordings, and leaves each whole."""
        return Selection(self.ranks, cycles=self.cycles)

    @property
    def narrows(self) -> bool:
        """Whether the selection leaves out part of a recording."""
        return any(x is not None for x in (self.steps, self.from_ns, self.to_ns, self.annotation))


EVERYTHING = Selection()


def pattern(annotation: str) -> re.Pattern[str]:
    try:
        return re.compile(annotation)
    except re.error as error:
        why = f"annotation {annotation!r} is not a regular expression: {error}"
        raise UsageError(why) from None


@dataclass(frozen=True)
class Narrowing:
    """The tables as a selection narrows them; what it chooses of each is found once."""

    selection: Selection
    origin_ns: int
    unselected: Callable[[str], pa.Table]  # a table of the chosen ranks, not narrowed

    def table(self, name: str) -> pa.Table:
        """Return a table, narrowed."""
        if name in registry.OF_WHAT_IS_LEFT:
            maker = registry.maker(name)
            return maker.function(*(self.table(read) for read in maker.reads))
        unfiltered = self.unselected(name)
        if name in ("kernels", "kernel_links", "kernel_passes"):
            return unfiltered.filter(pa.array(self._chosen_kernels))
        if name == "op_links":
            return with_column(unfiltered, "selected", boolean(self._chosen_ops))
        if name in ("rank_windows", "step_windows"):
            return self._narrow_windows(unfiltered, name == "step_windows")
        if name in ("collectives", *_ROW_BY_ROW):
            return unfiltered.filter(pa.array(self._chosen_collectives))
        if name == "job_operations":
            return unfiltered.filter(pa.array(self._in_steps(unfiltered)))
        return self._chosen_steps(unfiltered) if name == "annotations" else unfiltered

    def _chosen_steps(self, annotations: pa.Table) -> pa.Table:
        """Return the annotations, in which steps not chosen lose their number; row numbers hold."""
        chosen, step = self.selection, annotations["step"]
        keep = valid(step)
        if chosen.steps is not None:
            keep &= np.isin(numbers(step, -1), list(chosen.steps))
        if chosen.from_ns is not None:
            keep &= numbers(annotations["end_ns"]) > self.origin_ns + chosen.from_ns
        if chosen.to_ns is not None:
            keep &= numbers(annotations["start_ns"]) < self.origin_ns + chosen.to_ns
        return with_column(annotations, "step", number(numbers(step, -1), step.type, keep))

    @cached_property
    def _chosen_kernels(self) -> Mask:
        links, kernels = self.unselected("kernel_links"), self.unselected("kernels")
        keep = self._in_steps(links)
        keep &= self._in_time(numbers(kernels["start_ns"]))
        if self.selection.annotation is not None:
            keep &= self._in_ranges(kernels, links)
        return keep

    @cached_property
    def _chosen_ops(self) -> Mask:
        ops = self.unselected("cpu_ops")
        start = numbers(ops["start_ns"])
        keep = self._in_steps(self.unselected("op_links")) & self._in_time(start)
        if self.selection.annotation is not None:
            keep &= self._in_ranges(ops, self.unselected("op_links"))
        return keep

    @cached_property
    def _chosen_collectives(self) -> Mask:
        """The collectives whose GPU activity is chosen; records without one are chosen by time."""
        rows = self.unselected("collectives")
        kernels = self.unselected("kernels")
        ours = event_keys(kernels.filter(pa.array(self._chosen_kernels)))
        from_profile = matching(rows["source"], "kineto".__eq__)
        keys = event_keys(rows)
        on_gpu = row_of(event_keys(kernels), keys) != NONE
        by_time = self._in_time(numbers(rows["start_ns"], NO_TIME))
        return np.where(from_profile & on_gpu, row_of(ours, keys) != NONE, by_time)

    def _in_steps(self, links: pa.Table) -> Mask:
        if self.selection.steps is None:
            return np.ones(links.num_rows, bool)
        return np.isin(numbers(links["step"], -1), list(self.selection.steps))

    def _in_time(self, start: NDArray[np.int64]) -> Mask:
        keep = np.ones(len(start), bool)
        if self.selection.from_ns is not None:
            keep &= start >= self.origin_ns + self.selection.from_ns
        if self.selection.to_ns is not None:
            keep &= start < self.origin_ns + self.selection.to_ns
        return keep

    def _in_ranges(self, rows: pa.Table, links: pa.Table) -> Mask:
        """Return which rows lie in a matching user range, on any thread that works for it."""
        wanted = pattern(self.selection.annotation or "")
        ranges = self.unselected("annotations")
        named = matching(ranges["name"], lambda name: bool(wanted.search(name)))
        return held_by(named, ranges, self.unselected("annotation_links"), links, rows)

    def _ranges(self, *, on_gpu: bool = False) -> dict[int, Spans]:
        """Return where the chosen user ranges lie, for each rank."""
        wanted = pattern(self.selection.annotation or "")
        table = self.unselected("annotations")
        chosen = matching(table["name"], lambda n: bool(wanted.search(n)))
        chosen &= truths(table["on_gpu"]) == on_gpu
        ranks = numbers(table["rank"], -1)
        start, end = numbers(table["start_ns"]), numbers(table["end_ns"])
        return {
            int(r): union(start[chosen & (ranks == r)], end[chosen & (ranks == r)])
            for r in np.unique(ranks[chosen])
        }

    def _narrow_windows(self, windows: pa.Table, by_step: bool) -> pa.Table:
        if self.selection.steps is not None:
            steps = self.unselected("step_windows")
            steps = steps.filter(pc.is_in(steps["step"], pa.array(sorted(self.selection.steps))))
            windows = steps if by_step else _joined(steps)
        start, end = numbers(windows["start_ns"]), numbers(windows["end_ns"])
        pieces = np.arange(len(start))
        if self.selection.annotation is not None:
            pieces, start, end = self._cut_to_ranges(numbers(windows["rank"], -1), start, end)
        if self.selection.from_ns is not None:
            start = np.maximum(start, self.origin_ns + self.selection.from_ns)
        if self.selection.to_ns is not None:
            end = np.minimum(end, self.origin_ns + self.selection.to_ns)
        keep = end > start
        cut = windows.take(pa.array(pieces[keep]))
        cut = with_column(cut, "start_ns", number(start[keep], pa.int64()))
        return with_column(cut, "end_ns", number(end[keep], pa.int64()))

    def _cut_to_ranges(
        self, rank: NDArray[np.int64], start: NDArray[np.int64], end: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Return windows, cut to where the chosen ranges' GPU work runs."""
        spans = self._ranges(on_gpu=True) or self._launched_spans()
        rows, starts, ends = [], [], []
        for k in range(len(start)):  # a few windows
            ranges = spans.get(int(rank[k]))
            if ranges is None:
                continue
            low, high = np.maximum(ranges.start, start[k]), np.minimum(ranges.end, end[k])
            keep = high > low
            rows.append(np.full(int(keep.sum()), k))
            starts.append(low[keep])
            ends.append(high[keep])
        empty = np.empty(0, np.int64)
        return (
            np.concatenate([*rows, empty]).astype(np.int64),
            np.concatenate([*starts, empty]),
            np.concatenate([*ends, empty]),
        )

    def _launched_spans(self) -> dict[int, Spans]:
        """Return the spans of chosen ranges that have no copies on the GPU: each from the first
        start to the last end of what it launched."""
        kernels, links = self.unselected("kernels"), self.unselected("kernel_links")
        launched = numbers(links["launch_start_ns"], NO_TIME)
        ranks = numbers(kernels["rank"], -1)
        start, end = numbers(kernels["start_ns"]), numbers(kernels["end_ns"])
        spans_of_rank = {}
        for of_rank, spans in self._ranges().items():  # one rank after the other
            range_index = np.searchsorted(spans.start, launched, side="right") - 1
            inside = (
                (ranks == of_rank)
                & (range_index >= 0)
                & (launched < spans.end[np.maximum(range_index, 0)])
            )
            low = np.full(len(spans.start), np.iinfo(np.int64).max)
            high = np.full(len(spans.start), np.iinfo(np.int64).min)
            np.minimum.at(low, range_index[inside], start[inside])
            np.maximum.at(high, range_index[inside], end[inside])
            spans_of_rank[of_rank] = union(low[high > low], high[high > low])
        return spans_of_rank


def _joined(steps: pa.Table) -> pa.Table:
    """Return neighbouring step windows of a device as one window without a number."""
    order = [("rank", "ascending"), ("cycle", "ascending"), ("device", "ascending")]
    steps = steps.sort_by([*order, ("start_ns", "ascending")])
    who = np.stack([numbers(steps[c], -1) for c in ("rank", "cycle", "device")])
    start, end = numbers(steps["start_ns"]), numbers(steps["end_ns"])
    if not len(start):
        return steps
    new = np.append(True, (who[:, 1:] != who[:, :-1]).any(axis=0) | (start[1:] != end[:-1]))
    first = np.flatnonzero(new)
    last = np.append(first[1:], len(start)) - 1
    joined = steps.take(pa.array(first))
    joined = with_column(joined, "end_ns", number(end[last], pa.int64()))
    return with_column(joined, "step", pa.nulls(len(first), pa.int32()))
