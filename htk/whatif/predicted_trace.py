"""The predicted step as trace files: the recorded step's own events, moved to when they would come.

GPU activities and the calls that launch or wait move as the replay has them; everything else on a
CPU thread moves with the calls round it, everything else on the GPU with the activities. What an
edit removes is left out. Shapes, sizes and allocations are those of the edited job, or left out
where these are not known.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from htk.answers.export.rewrite import Written, kineto_parts, sources_of, write_changed_copy
from htk.answers.export.trim import kept_events, target_names
from htk.base.columns.arrow import codes_of, read_booleans, read_numbers
from htk.base.columns.groups import Groups
from htk.base.columns.types import Ints, Mask
from htk.base.core.humanize import format_microseconds
from htk.base.errors import UsageError
from htk.quantities.derived.clocks import compute_corrections
from htk.quantities.graph.build import Graph
from htk.quantities.graph.replay import Replay
from htk.traces.trace.file import TraceFile
from htk.traces.trace.trace import Trace
from htk.whatif.edited_memory import edited_allocations
from htk.whatif.edited_shapes import SAME_SHAPES, EditedShapes, edited_shapes, hide_shapes
from htk.whatif.edited_sizes import EditedSizes
from htk.whatif.edited_step import apply_edits, order_edits
from htk.whatif.predict import check_asked
from htk.whatif.recorded_step import Baseline
from htk.whatif.step_model import StepModel
from htk.whatif.writable import check_writable

_TIME = re.compile(rb'("ts"\s*:\s*)"?-?[\d.eE+]+"?')
_LENGTH = re.compile(rb'("dur"\s*:\s*)"?-?[\d.eE+]+"?')
_BOTH = ("start_ns", "end_ns")
_ON_THREADS = {
    **dict.fromkeys(("cpu_ops", "launches", "python_calls", "overheads", "annotations"), _BOTH),
    **dict.fromkeys(("memory", "flows"), ("time_ns",)),
}
_STREAM = re.compile(rb'("(?:tid|stream)"\s*:\s*)"?\d+"?')
_RESHAPING = frozenset({"tp", "sp", "cp", "ep", "serving"})  # and no shapes of theirs are known
_NEW_STREAM = 9000  # pieces of split transfers stand on a stream of their own


def write_predicted(
    trace: Trace, start: Baseline, edits: Sequence[tuple[str, str]], folder: Path
) -> list[Written]:
    """Return one file for each rank's file, under the recorded file's name."""
    if start.refused:
        raise UsageError(f"nothing to write: {start.gate.verdict}")
    asked = order_edits(edits)
    check_asked(start, asked, start.step_ns)
    edited, after = apply_edits(start, asked)
    check_writable(start, edited, asked)
    shapes = _shapes_after(start, edited, asked)
    sizes = EditedSizes.from_models(start.model, edited)
    times = _time_nodes(start, after)
    graph = start.graph
    cycles = None if graph.cycle is None else [graph.cycle]
    chosen = trace if graph.step is None else trace.sel(steps=[graph.step], cycles=cycles)
    parts = kineto_parts(chosen.selected_files)
    sources = sources_of([part.file for part in parts])
    written = []
    for part, name in zip(parts, target_names(parts), strict=True):
        moved = _Moved.from_trace(trace, chosen, part, start, edited, times)
        moved.shapes = shapes
        allocations = edited_allocations(part, start, asked, sizes.ratio)
        moved.sizes = replace(sizes, allocations=allocations)
        target = folder / name
        written.append(
            write_changed_copy(sources[part.file], target, moved.sizes.entry, moved.event)
        )
    return written


def _time_nodes(start: Baseline, after: Replay) -> Ints:
    """Return the time of each node: of a step that follows one like it, or, where parts of the
    recorded step that nothing binds would drift apart, of one that follows the observed one."""
    drift = start.replayed.steady - start.replayed.time
    return after.steady if np.ptp(drift) <= start.replayed.period_ns else after.time


def _compute_leads(start: Baseline, edited: StepModel) -> dict[int, float]:
    """Return for each thread how many times as long it takes from the step before to its first
    call of this one."""
    graph = start.graph
    between = np.isin(graph.wrap_src, graph.call_end) & np.isin(graph.wrap_dst, graph.call_start)
    edges = np.flatnonzero(between & (graph.wrap_weight > 0)).tolist()
    lanes = dict(zip(graph.call_start.tolist(), graph.calls.lane.tolist(), strict=True))
    return {
        lanes[int(graph.wrap_dst[edge])]: max(
            float(edited.wrap_weight[edge] / graph.wrap_weight[edge]), 0.0
        )
        for edge in edges
    }


def _shapes_after(
    start: Baseline, edited: StepModel, asked: tuple[tuple[str, str], ...]
) -> EditedShapes | None:
    """Return the shapes that edits make of those recorded; None: they are not known."""
    if not _RESHAPING.isdisjoint(edited.touched) or ":" in dict(asked).get("seq", ""):
        return None
    if edited.token_scale == 1 and edited.length_scale == 1:
        return SAME_SHAPES
    return edited_shapes(start.job, start.model, edited)


@dataclass
class _Moved:
    """The change to each event of a file."""

    first: int
    start: Ints  # new, absolute; -1: as it was
    length: Ints  # -1: as it was
    keep: Mask
    restreamed: Mask  # on the new stream from now on
    base_ns: int
    shapes: EditedShapes | None = SAME_SHAPES  # None: not known
    sizes: EditedSizes = field(default_factory=EditedSizes)

    @classmethod
    def from_trace(
        cls,
        trace: Trace,
        chosen: Trace,
        part: TraceFile,
        start: Baseline,
        edited: StepModel,
        times: Ints,
    ) -> "_Moved":
        keep = kept_events(chosen, part.file)
        warps = _Warps.from_tables(trace.tables, part, start.graph, times)
        warps.leads.update(_compute_leads(start, edited))
        moved = cls(
            part.first_event,
            np.full(len(keep), -1, np.int64),
            np.full(len(keep), -1, np.int64),
            keep,
            np.zeros(len(keep), bool),
            int(read_numbers(part.table("ranks")["base_time_ns"], 0).max(initial=0)),
        )
        moved._move_threads(part, warps)
        moved._move_gpu(part, warps)
        moved._graph_nodes(trace.tables, part, start, edited, times)
        return moved

    def event(self, row: int, text: bytes) -> bytes | None:
        if row < len(self.keep) and not self.keep[row]:
            return None
        if row < len(self.start) and self.start[row] >= 0:
            text = _TIME.sub(
                rb"\g<1>" + _spell_microseconds(int(self.start[row]) - self.base_ns), text, count=1
            )
            if self.length[row] >= 0:
                text = _LENGTH.sub(
                    rb"\g<1>" + _spell_microseconds(int(self.length[row])), text, count=1
                )
            if self.restreamed[row]:
                text = _STREAM.sub(rb"\g<1>" + str(_NEW_STREAM).encode(), text)
        text = hide_shapes(text) if self.shapes is None else self.shapes.rewrite(text)
        return self.sizes.rewrite(row + self.first, text)

    def _set(self, rows: Ints, start: Ints, end: Ints | None = None) -> None:
        index = rows - self.first
        self.start[index] = start
        if end is not None:
            self.length[index] = np.maximum(end - start, 0)

    def _move_threads(self, part: TraceFile, warps: "_Warps") -> None:
        for name, columns in _ON_THREADS.items():
            table = _on_host(part.table(name))
            lane = warps.lanes(table)
            times = [warps.cpu(lane, read_numbers(table[column])) for column in columns]
            self._set(read_numbers(table["event"]), *times)

    def _move_gpu(self, part: TraceFile, warps: "_Warps") -> None:
        ranges = part.table("annotations")
        on_gpu = ranges.filter(ranges["on_gpu"])
        for table in (part.table("kernels"), part.table("syncs"), on_gpu):
            times = [warps.gpu(read_numbers(table[column])) for column in _BOTH]
            self._set(read_numbers(table["event"]), *times)

    def _graph_nodes(
        self,
        tables: Mapping[str, pa.Table],
        part: TraceFile,
        start: Baseline,
        edited: StepModel,
        times: Ints,
    ) -> None:
        """Set the new times of the activities and calls in the graph, and of the arrows that end
        there; drop activities that an edit removed."""
        graph, now = start.graph, edited.graph
        shift = _find_shift(tables, part, graph)
        activities = _select_rows(part, tables["kernels"], graph.activities.row)
        rows = read_numbers(tables["kernels"]["event"])[graph.activities.row[activities]]
        low = times[now.start[activities]] - shift
        high = times[now.end[activities]] - shift
        self._set(rows, low, high)
        gone = (graph.activities.length[activities] > 0) & (edited.lengths()[activities] <= 0)
        self.keep[rows[gone] - self.first] = False
        elsewhere = now.activities.lane[activities] != graph.activities.lane[activities]
        self.restreamed[rows[elsewhere] - self.first] = True
        calls = _select_rows(part, tables["launches"], graph.calls.row)
        rows = read_numbers(tables["launches"]["event"])[graph.calls.row[calls]]
        low_call = times[now.call_start[calls]] - shift
        self._set(rows, low_call, times[now.call_end[calls]] - shift)
        ids = read_numbers(tables["kernels"]["correlation"], -1)[graph.activities.row[activities]]
        begins = dict(zip(ids.tolist(), low.tolist(), strict=True))
        ends = part.table("flows")
        arrows = ~read_booleans(ends["is_start"]) & (codes_in(ends["category"], "ac2g"))
        events = read_numbers(ends["event"])
        for row in np.flatnonzero(arrows).tolist():  # one for each activity
            begin = begins.get(ends["flow"][row].as_py())
            if begin is not None:
                self.start[events[row] - self.first] = begin


def _on_host(table: pa.Table) -> pa.Table:
    if "on_gpu" not in table.column_names:
        return table
    return table.filter(pa.array(~read_booleans(table["on_gpu"])))


def codes_in(column: pa.ChunkedArray, value: str) -> Mask:
    codes, names = codes_of(column)
    code = names.to_pylist().index(value) if value in names.to_pylist() else -2
    return np.asarray(codes == code)


@dataclass(frozen=True)
class _Warps:
    """Old and new times of a rank's threads, and of its GPU."""

    names: dict[tuple[str | None, str | None], int]  # thread, to its lane in the graph
    threads: dict[int, tuple[Ints, Ints]]
    device: tuple[Ints, Ints]
    leads: dict[int, float] = field(default_factory=dict)  # of threads, over those recorded

    @classmethod
    def from_tables(
        cls, tables: Mapping[str, pa.Table], part: TraceFile, graph: Graph, steady: Ints
    ) -> "_Warps":
        shift = _find_shift(tables, part, graph)
        calls, launches = graph.calls, tables["launches"]
        in_file = _select_rows(part, launches, calls.row)
        old = np.concatenate([calls.start[in_file], calls.end[in_file]]) - shift
        new = (
            np.concatenate([steady[graph.call_start[in_file]], steady[graph.call_end[in_file]]])
            - shift
        )
        lane = np.tile(calls.lane[in_file], 2)
        rows = calls.row[in_file]
        process, thread = (launches[c].take(pa.array(rows)).to_pylist() for c in _WHO)
        names = dict(
            zip(zip(process, thread, strict=True), calls.lane[in_file].tolist(), strict=True)
        )
        threads = {k: _find_anchors(old[lane == k], new[lane == k]) for k in set(lane.tolist())}
        acts = graph.activities
        ours = _select_rows(part, tables["kernels"], acts.row)
        ends = np.concatenate([acts.start[ours], acts.end[ours]]) - shift
        moved = np.concatenate([steady[graph.start[ours]], steady[graph.end[ours]]]) - shift
        return cls(names, threads, _find_anchors(ends, moved))

    def lanes(self, table: pa.Table) -> Ints:
        """Return the thread of each row; of those that call nothing, the busiest."""
        most = max(self.threads, key=lambda k: len(self.threads[k][0]), default=-1)
        codes = [codes_of(table[c])[0].astype(np.int64) for c in _WHO]
        both = Groups.by_keys(codes)
        first = table.select(list(_WHO)).take(pa.array(both.first_row)).to_pylist()
        lanes = [self.names.get((r["process"], r["thread"]), most) for r in first]
        return np.array(lanes, np.int64)[both.group_ids]

    def cpu(self, lane: Ints, time: Ints) -> Ints:
        moved = time.copy()
        for thread in np.unique(lane).tolist():  # a few threads
            if thread in self.threads:
                lead = self.leads.get(thread, 1.0)
                moved[lane == thread] = _warp_times(
                    time[lane == thread], *self.threads[thread], lead
                )
        return moved

    def gpu(self, time: Ints) -> Ints:
        return _warp_times(time, *self.device)


_WHO = ("process", "thread")


def _find_anchors(old: Ints, new: Ints) -> tuple[Ints, Ints]:
    """Return anchors by old time, whose new times never go backwards."""
    order = np.lexsort((new, old))
    return old[order], np.maximum.accumulate(new[order])


def _warp_times(time: Ints, old: Ints, new: Ints, lead: float = 1.0) -> Ints:
    """Return times moved in proportion between two anchors, outside them with the nearest; before
    the first so many times as far from it."""
    if not len(old):
        return time
    origin = int(old[0])
    inside = np.interp((time - origin).astype(np.float64), old - origin, new - int(new[0]))
    moved = np.rint(inside).astype(np.int64) + int(new[0])
    ahead = int(new[0]) - np.rint((origin - time) * lead).astype(np.int64)
    moved = np.where(time < old[0], ahead, moved)
    return np.where(time > old[-1], time + int(new[-1] - old[-1]), moved)


def _select_rows(part: TraceFile, table: pa.Table, rows: Ints) -> Ints:
    """Return which of these rows of a table come from the file."""
    rank = read_numbers(table["rank"], -1)[rows]
    cycle = read_numbers(table["cycle"], -1)[rows]
    return np.flatnonzero(
        (rank == (-1 if part.rank is None else part.rank)) & (cycle == part.cycle)
    )


def _find_shift(tables: Mapping[str, pa.Table], part: TraceFile, graph: Graph) -> int:
    """Return the shift from the file's clock to that of the graph, in ns."""
    rank = np.array([-1 if part.rank is None else part.rank], np.int64)
    shift = compute_corrections(tables["rank_clocks"], rank, np.array([graph.origin_ns]))
    return int(shift[0]) - graph.origin_ns


def _spell_microseconds(ns: int) -> bytes:
    return format_microseconds(ns).encode()
