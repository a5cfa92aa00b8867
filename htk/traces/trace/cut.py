"""What a selection leaves of one recording: its tables, as if `htk trim` had written them.

In a window lie the GPU activities that were launched in it, the calls, ranges, waits and counters
of the host in it, cut at its edges, and what of the GPU's time is the window's. What else runs on
the GPU meanwhile is `passing`: it keeps the GPU busy, and belongs to no question about kernels.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import (
    build_booleans,
    build_numbers,
    build_table,
    build_texts,
    codes_of,
    drop_fields,
    mark_valid,
    match_texts,
    read_booleans,
    read_numbers,
    read_times,
)
from htk.base.columns.groups import Groups, row_of
from htk.base.columns.intervals import Spans, intersect_spans, merge_spans
from htk.base.columns.nesting import Threads
from htk.base.columns.types import NO_TIME, NONE, Mask
from htk.base.mappings import Facts
from htk.base.schema import CUT_WINDOWS, INT64, PASSING, TABLES
from htk.quantities.derived.cut_calls import (
    CALLS,
    CUT_STEPS,
    HOST,
    RECORDING,
    STEPS,
    HostSpans,
    are_whole,
    are_within,
    cut_calls,
    host_spans,
    recorded_by,
    windows_of,
)
from htk.quantities.derived.cut_header import BY_ACTIVITY, RECORDED
from htk.quantities.derived.links import steps_of
from htk.quantities.derived.user_ranges import UserRanges
from htk.quantities.measures.user_ranges import held_by
from htk.traces.trace.cut_windows import GpuWindows, passing_by

_FARTHEST = 1 << 61  # earlier and later than all times
_MOMENTS = ("memory", "counters")
_TOLD = ("cut_windows", "passing")
_CAPTURES = ("cpu_ops", "launches")
# Tables that say when, and so are cut.
CUT = frozenset(
    {*CALLS, *_MOMENTS, *_TOLD, "events", "flows", "kernels", "annotations", "syncs",
     "collectives", "job_operations"}
)  # fmt: skip
# Records of moments that cannot be placed in a recording: asked for in a window, they are refused.
UNPLACED = frozenset(
    {"comm_counts", "comm_notes", "link_samples", "proxy_steps", "python_stacks"}
)  # fmt: skip
# What a choice of GPU activities by name or stream narrows, or leaves as it is; all else tells of
# the host, or of a GPU's time as a whole, and is refused.
OF_ACTIVITIES = (TABLES.keys() - CUT - UNPLACED) | {
    "kernels", "kernel_links", "kernel_totals", "gpu_work",
}  # fmt: skip


@dataclass(frozen=True)
class Chosen:
    """What of a recording is looked at, on its own clock."""

    steps: frozenset[int] | None
    from_ns: int | None
    to_ns: int | None
    ranges: re.Pattern[str] | None  # which user ranges, by name
    keeps_captures: bool = False  # what a server captured before it serves tells shapes
    names: re.Pattern[str] | None = None  # of GPU activities
    streams: frozenset[int] | None = None

    @property
    def chooses_activities(self) -> bool:
        """Whether GPU activities are chosen by what they are, and not by when."""
        return self.names is not None or self.streams is not None

    @property
    def time(self) -> Spans:
        """From when to when, as one span."""
        low = -_FARTHEST if self.from_ns is None else self.from_ns
        high = _FARTHEST if self.to_ns is None else self.to_ns
        return Spans(np.array([low]), np.array([high]))


@dataclass(frozen=True)
class CutRecording:
    """The tables of one recording under a choice."""

    read: Callable[[str], pa.Table]  # a table of the whole recording, parsed or made of such
    facts: Mapping[str, object]  # of the whole recording
    chosen: Chosen

    def table(self, name: str) -> pa.Table:
        """Return a parsed table, cut."""
        if name in _TOLD:
            return self._windows if name == "cut_windows" else self._passing
        uncut = self.read(name)
        if not uncut.num_rows or name not in CUT:
            return uncut
        if self.chosen.keeps_captures and name in _CAPTURES:
            return uncut
        if name in CALLS:
            return cut_calls(uncut, self.spans)
        kept = uncut.filter(pa.array(self.rows(name)))
        if name != "annotations":
            return kept
        return cut_calls(kept, self.spans, read_booleans(kept["on_gpu"]))

    def rows(self, name: str) -> Mask:
        """Return which rows of a parsed table lie in the cut, were it in part."""
        table = self.read(name)
        if name in CALLS:
            return self._mark_overlapping(table)
        if name in _MOMENTS:  # levels and rates are those of the process: of all its threads
            return are_within(read_numbers(table["time_ns"]), self.spans.any_thread)
        return _ROWS[name](self, table)

    @cached_property
    def spans(self) -> HostSpans:
        """When the host is looked at."""
        spans = self.chosen.time
        if self.chosen.steps is not None:
            step, start, end = steps_of(self.read("annotations"))
            own = np.isin(step, list(self.chosen.steps))
            spans = intersect_spans(merge_spans(start[own], end[own]), spans)
        earlier = self.read("cut_windows")
        if self._ranges is not None:
            return self._of_ranges(self._ranges).within(spans)
        if earlier.num_rows:
            return host_spans(earlier).within(spans)
        return HostSpans(spans)

    def _of_ranges(self, named: Mask) -> HostSpans:
        """Return when threads work inside the ranges of a name; inside a step all do."""
        annotations = self.read("annotations")
        threads = Threads()
        is_step = mark_valid(annotations["step"])
        start, end = read_times(annotations)
        steps = named & is_step & ~read_booleans(annotations["on_gpu"])
        everywhere = merge_spans(start[steps], end[steps])
        ranges = UserRanges(annotations, self.read("cpu_ops"), threads)
        of_thread = {}
        for thread, spans in ranges.held(named).items():
            both = (np.concatenate(side) for side in zip(spans, everywhere, strict=True))
            of_thread[threads.names[thread]] = merge_spans(*both)
        return HostSpans(everywhere, of_thread)

    @cached_property
    def _ranges(self) -> Mask | None:
        """The ranges chosen by name, rows of `annotations`."""
        wanted = self.chosen.ranges
        if wanted is None:
            return None
        return match_texts(self.read("annotations")["name"], lambda name: bool(wanted.search(name)))

    @cached_property
    def _gpu(self) -> GpuWindows:
        return GpuWindows(self.read, self.chosen.steps, self.chosen.time, self._ranges)

    def _mark_overlapping(self, table: pa.Table) -> Mask:
        kept = np.zeros(table.num_rows, bool)
        kept[self.spans.pieces(table).row] = True
        return kept

    @cached_property
    def _kernels(self) -> Mask:
        """The GPU activities that were launched in the cut; by their start, if that is unknown."""
        kernels = self.read("kernels")
        links = self.read("kernel_links")
        launched = read_numbers(links["launch_start_ns"], NO_TIME)
        moment = np.where(launched == NO_TIME, read_numbers(kernels["start_ns"]), launched)
        kept = are_within(moment, self.chosen.time)
        if self.chosen.steps is not None:
            kept &= np.isin(read_numbers(links["step"], NONE), list(self.chosen.steps))
        if self._ranges is not None:
            ranges = self.read("annotations")
            held = self.read("annotation_links")
            kept &= held_by(self._ranges, ranges, held, links, kernels)
        if self.chosen.names is not None:
            wanted = self.chosen.names
            kept &= match_texts(kernels["name"], lambda name: bool(wanted.search(name)))
        if self.chosen.streams is not None:
            kept &= np.isin(read_numbers(kernels["stream"], NONE), list(self.chosen.streams))
        return kept

    def _mark_collectives(self, collectives: pa.Table) -> Mask:
        """Collectives go with their GPU activity, else with the operator that recorded them if that
        is whole; records without either are chosen by time."""
        kept = are_within(read_numbers(collectives["start_ns"], NO_TIME), self.spans.any_thread)
        by_operator, are_kept = recorded_by(collectives, self.read, self.spans)
        kept[by_operator] = are_kept[by_operator]
        event = read_numbers(collectives["event"], NONE)
        kernel = row_of(read_numbers(self.read("kernels")["event"], NONE), event)
        on_gpu = (kernel != NONE) & (event != NONE)
        kept[on_gpu] = self._kernels[kernel[on_gpu]]
        return kept

    def _mark_annotations(self, annotations: pa.Table) -> Mask:
        """Return the ranges on the CPU by time; their GPU copies with them."""
        chosen = self._mark_overlapping(annotations)
        on_gpu = read_booleans(annotations["on_gpu"])
        ids = read_numbers(annotations["external_id"], NONE)
        named = codes_of(annotations["name"])[0]
        kept = chosen & ~on_gpu
        by_id = (ids >= 0) & np.isin(ids, ids[kept])
        steps = read_numbers(annotations["step"], NONE)
        by_step = (steps >= 0) & np.isin(steps, steps[kept])
        of_cpu = np.isin(named, named[~on_gpu])
        return np.asarray(np.where(on_gpu, by_id | by_step | (~of_cpu & chosen), kept))

    def _mark_syncs(self, syncs: pa.Table) -> Mask:
        """Return the waits with their calls; those whose calls were not recorded, by time."""
        calls = read_numbers(self.read("launches")["correlation"], NONE)
        own = read_numbers(syncs["correlation"], NONE)
        has_call = (own >= 0) & np.isin(own, calls)
        by_time = are_within(read_numbers(syncs["start_ns"]), self.spans.any_thread)
        return np.asarray(np.where(has_call, np.isin(own, calls[self.rows("launches")]), by_time))

    def _mark_flows(self, flows: pa.Table) -> Mask:
        """Return arrows by the times of their ends, and those at kept GPU activities, whose id is
        the correlation; none that would lose one end."""
        moments = flows
        for name in ("start_ns", "end_ns"):
            moments = moments.append_column(name, flows["time_ns"])
        arrows = match_texts(flows["category"], "ac2g".__eq__)
        own = read_numbers(flows["flow"], NONE)
        kept = read_numbers(self.read("kernels")["correlation"], NONE)[self._kernels]
        at_kernel = arrows & (own >= 0) & np.isin(own, kept)
        chosen = at_kernel | self._mark_overlapping(moments)
        names = [codes_of(flows[name])[0] for name in ("category", "flow_text")]
        arrow = Groups.by_keys([*(name.astype(np.int64) for name in names), own])
        starts = read_booleans(flows["is_start"])
        is_whole = _have_both_ends(arrow, starts, np.ones(len(starts), bool))
        stays_whole = _have_both_ends(arrow, starts, chosen)
        return np.asarray(chosen & (stays_whole | ~is_whole)[arrow.group_ids])

    def _job_operations(self, operations: pa.Table) -> Mask:
        kept = are_within(read_numbers(operations["start_ns"]), self.chosen.time)
        if self.chosen.steps is not None:
            kept &= np.isin(read_numbers(operations["step"], NONE), list(self.chosen.steps))
        return kept

    def _mark_events(self, events: pa.Table) -> Mask:
        return np.asarray(self.events[read_numbers(events["event"])])

    @cached_property
    def events(self) -> Mask:
        """Which events of the file are kept, by their number; those of no table are."""
        tables = {name: self.read(name) for name in _OF_EVENTS}
        last = max(int(read_numbers(t["event"], NONE).max(initial=NONE)) for t in tables.values())
        kept = np.ones(last + 1, bool)
        kept[read_numbers(tables["events"]["event"])] = self._mark_overlapping(tables["events"])
        for name in _OF_EVENTS[1:]:  # what has a table of its own is decided there
            if tables[name].num_rows:
                kept[read_numbers(tables[name]["event"])] = self.rows(name)
        return kept

    @cached_property
    def _passing(self) -> pa.Table:
        """GPU activities that others launched, in the windows and beside them; of a choice by
        what they are, of which no time table is made, none."""
        if self.chosen.chooses_activities:
            return drop_fields(PASSING, "rank", "cycle").empty_table()
        activities = self.read("activities")
        chosen = np.zeros(activities.num_rows, bool)
        chosen[: len(self._kernels)] = self._kernels
        rows = passing_by(activities, self._gpu.of_recording, chosen)
        schema = drop_fields(PASSING, "rank", "cycle")
        return activities.take(pa.array(rows)).select(schema.names).cast(schema)

    @cached_property
    def _windows(self) -> pa.Table:
        parts = [*self._host_windows(), self._cut_steps]
        for of, windows in ((RECORDING, self._gpu.of_recording), (STEPS, self._gpu.of_steps)):
            columns = dict(zip(windows.column_names, windows.columns, strict=True))
            parts.append(_build_windows(of, windows.num_rows, columns))
        return pa.concat_tables(parts).unify_dictionaries()

    @property
    def _cut_steps(self) -> pa.Table:
        """The steps of the host of which this cut, or one before it, left a part."""
        annotations = self.read("annotations")
        steps = annotations.filter(
            build_booleans(mark_valid(annotations["step"]) & ~read_booleans(annotations["on_gpu"]))
        )
        cut = self._mark_overlapping(steps) & ~are_whole(steps, self.spans)
        earlier = windows_of(self.read("cut_windows"), CUT_STEPS)
        cut |= np.isin(read_numbers(steps["step"], NONE), read_numbers(earlier["step"], NONE))
        rows = steps.filter(pa.array(cut))
        left = {name: rows[name] for name in ("step", "start_ns", "end_ns")}
        complete = build_booleans(np.zeros(rows.num_rows, bool))
        return _build_windows(CUT_STEPS, rows.num_rows, {**left, "complete": complete})

    def _host_windows(self) -> Iterator[pa.Table]:
        named = {(None, None): self.spans.others, **self.spans.of_thread}
        for (process, thread), spans in named.items():
            count = len(spans.start)
            whose = {
                "process": build_texts([process] * count),
                "thread": build_texts([thread] * count),
            }
            yield _build_windows(HOST, count, {**whose, **_build_times(spans)})

    @cached_property
    def recorded(self) -> object:
        """The names of the tables of which the whole recording has rows."""
        return self.facts.get(RECORDED) or [n for n in TABLES if self.read(n).num_rows]

    @cached_property
    def left_facts(self) -> dict[str, object]:
        """What is known of the recording that is left: from when to when it would be, of the host,
        and the GPU's until it is done."""
        facts: dict[str, object] = {}
        if self.chosen.chooses_activities or self.facts.get(BY_ACTIVITY):
            facts[BY_ACTIVITY] = True
        low = None if (fact := self.facts.get("start_ns")) is None else int(str(fact))
        high = None if (fact := self.facts.get("end_ns")) is None else int(str(fact))
        spans = self.spans.any_thread
        if low is None or high is None or not len(spans.start):
            return facts
        begin = max(low, int(spans.start[0]))
        ends = read_numbers(self.read("kernels")["end_ns"])[self._kernels]
        finish = max(min(high, int(spans.end[-1])), int(ends.max(initial=begin)))
        return {**facts, "start_ns": begin, "end_ns": finish}

    @property
    def header_facts(self) -> dict[str, object]:
        """What is written into the header of a file that holds the cut."""
        return {RECORDED: self.recorded, **self.left_facts}


class CutFacts(Facts):
    """Facts of a recording that was cut, each told when it is asked for: most answers do without
    what the cut changes."""

    def __init__(self, cut: CutRecording) -> None:
        self._cut = cut

    @cached_property
    def _facts(self) -> Facts:
        return {**self._cut.facts, **self._cut.left_facts}

    def __getitem__(self, name: str) -> object:
        return self._cut.recorded if name == RECORDED else self._facts[name]

    def __iter__(self) -> Iterator[str]:
        return iter({**self._facts, RECORDED: None})

    def __len__(self) -> int:
        return len([*self])


_ROWS: Mapping[str, Callable[[CutRecording, pa.Table], Mask]] = {
    "kernels": lambda cut, _: cut._kernels,
    "collectives": CutRecording._mark_collectives,
    "annotations": CutRecording._mark_annotations,
    "syncs": CutRecording._mark_syncs,
    "flows": CutRecording._mark_flows,
    "job_operations": CutRecording._job_operations,
    "events": CutRecording._mark_events,
}
_OF_EVENTS = ("events", *CALLS, *_MOMENTS, "flows", "kernels", "annotations", "syncs")


def _build_times(spans: Spans) -> dict[str, pa.Array]:
    return {
        "start_ns": build_numbers(spans.start, INT64),
        "end_ns": build_numbers(spans.end, INT64),
    }


def _build_windows(
    of: str, count: int, columns: Mapping[str, pa.Array | pa.ChunkedArray]
) -> pa.Table:
    schema = drop_fields(CUT_WINDOWS, "rank", "cycle")
    return build_table(schema, {**columns, "of": build_texts([of] * count)}, count)


def _have_both_ends(arrows: Groups, is_start: Mask, is_there: Mask) -> Mask:
    """Return which arrows have a start and an end among the rows that are there."""
    begun = arrows.max((is_there & is_start).astype(np.int64))
    ended = arrows.max((is_there & ~is_start).astype(np.int64))
    return np.asarray((begun & ended) > 0)
