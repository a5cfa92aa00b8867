"""A trace as lanes of spans that do not overlap: streams, groups, threads by depth."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from htk.base.columns.arrow import codes_of, mark_valid, read_booleans, read_numbers
from htk.base.columns.groups import Groups
from htk.base.columns.nesting import nest_spans
from htk.base.columns.order import break_ties, order_by
from htk.base.columns.types import Ints, fill_none
from htk.traces.timeline.sources import (
    KINDS,
    SECTIONS,
    TABLES,
    DisplayClock,
    SpanSource,
    list_span_sources,
)
from htk.traces.trace.trace import Trace

Narrow = NDArray[np.signedinteger[Any]]  # what needs no 64 bits: an index holds millions
_FIRST = ("main", "steps", "backward")  # of the threads, as `_threads_of` calls them


class Lane(NamedTuple):
    """One row of the picture."""

    rank: int  # -1: unknown
    section: str
    track: str
    depth: int


@dataclass(frozen=True)
class Lanes:
    """Spans by lane, kind and start, and what each came from. A span's place in the arrays is its
    id; those of one lane and kind do not overlap."""

    lanes: list[Lane]
    lane: Narrow
    name: Narrow
    names: list[str]
    kinds: NDArray[np.uint8]  # of each name
    start: Ints  # since the trace began
    end: Ints
    table: Narrow  # into TABLES
    row: Narrow

    @classmethod
    def in_order(
        cls,
        lanes: list[Lane],
        lane: Narrow,
        name: Narrow,
        names: list[str],
        kinds: NDArray[np.uint8],
        start: Ints,
        end: Ints,
        table: Narrow,
        row: Narrow,
    ) -> "Lanes":
        """Return spans that lie by start, at least those of each lane, in the order of lanes."""
        order = order_by(lane.astype(np.int64) * len(KINDS) + kinds[name])
        return cls(
            lanes,
            lane[order].astype(np.int32),
            name[order].astype(np.int32),
            names,
            kinds,
            start[order],
            end[order],
            table[order].astype(np.int8),
            row[order].astype(np.int32),
        )

    @property
    def kind(self) -> NDArray[np.uint8]:
        return self.kinds[self.name]

    @cached_property
    def low(self) -> int:
        """The earliest start: before zero where clocks were aligned."""
        return min(0, int(self.start.min(initial=0)))

    @cached_property
    def high(self) -> int:
        return int(self.end.max(initial=0)) + 1

    @cached_property
    def _by_table(self) -> list[tuple[Narrow, Ints]]:
        """Rows of each table in order, and their spans."""
        tables = []
        for number in range(len(TABLES)):
            spans = np.flatnonzero(self.table == number)
            order = spans[np.argsort(self.row[spans], kind="stable")]
            tables.append((self.row[order], order))
        return tables

    def with_added(self, added: Sequence[Lane]) -> tuple["Lanes", list[int]]:
        """Return these with lanes that hold no spans, and the place of each of those."""
        every = [*self.lanes, *added]
        sections = {section: number for number, section in enumerate(SECTIONS)}
        order = order_by(
            np.array([lane.rank for lane in every], np.int64),
            np.array([sections[lane.section] for lane in every], np.int64),
        )
        position = np.empty(len(every), np.int32)
        position[order] = np.arange(len(every))
        moved = replace(self, lanes=[every[k] for k in order.tolist()], lane=position[self.lane])
        return moved, position[len(self.lanes) :].tolist()

    def spans_of(self, table: str, rows: Narrow) -> Ints:
        """Return the spans that rows of a table became; -1: none."""
        own_rows, spans = self._by_table[TABLES.index(table)]
        if not len(own_rows):
            return fill_none(len(rows))
        position = np.minimum(np.searchsorted(own_rows, rows), len(own_rows) - 1)
        return np.where((own_rows[position] == rows) & (rows >= 0), spans[position], -1)


def lanes_of(trace: Trace, *, aligned: bool = False, rows: SpanSource | None = None) -> Lanes:
    """Return all that a trace holds of spans, and rows of an answer; on one clock for all ranks,
    where asked."""
    every = list_span_sources(trace, aligned)
    if rows is not None:
        start, end = DisplayClock(trace, aligned).span(rows.rank, rows.start, rows.end)
        every.append(replace(rows, start=start, end=end))
    return assemble_lanes(every, trace.origin_ns, _threads_of(trace))


def assemble_lanes(
    parts: Sequence[SpanSource], origin: int, titles: dict[str, str] | None = None
) -> Lanes:
    """Return the lanes from the spans of several tables."""
    if not parts:
        none = np.empty(0, np.int64)
        return Lanes([], none, none, [], np.empty(0, np.uint8), none, none, none, none)
    start = np.concatenate([p.start for p in parts]) - origin
    end = np.concatenate([p.end for p in parts]) - origin
    track, tracks = _number_tracks(parts, titles or {})
    groups = Groups.by_keys([np.concatenate([p.rank for p in parts]), track])
    size = [len(p) for p in parts]
    is_flat = np.repeat([p.section == "busy" for p in parts], size)
    order = order_by(groups.group_ids, start)
    break_ties(order, (groups.group_ids, start), -end)
    group = groups.group_ids[order]
    start = start[order]
    end = end[order]
    depth = nest_spans(group.astype(np.int32), start, end)[1]
    lanes = Groups.by_keys([group, np.where(is_flat[order], 0, depth)])
    described = []
    for number, deep in lanes.keys.tolist():  # a lane each
        rank, on = groups.keys[number].tolist()
        section, label = tracks[on]
        described.append(Lane(rank, section, str((titles or {}).get(label, label)), deep))
    name, names, kinds = _code_names(parts)
    table = np.repeat(np.array([TABLES.index(p.table) for p in parts], np.int8), size)
    row = np.concatenate([p.row.astype(np.int32) for p in parts])
    spans = Lanes.in_order(
        described,
        lanes.group_ids,
        name[order],
        names,
        kinds,
        start,
        end,
        table[order],
        row[order],
    )
    _clip_lanes(spans)
    return spans


def _number_tracks(
    parts: Sequence[SpanSource], titles: dict[str, str]
) -> tuple[Ints, list[tuple[str, str]]]:
    """Track of each span, numbered from top to bottom, and (section, label) of each."""
    every = {(p.section, label) for p in parts for label in p.tracks}

    def place_of(track: tuple[str, str]) -> tuple[int, int, tuple[tuple[int, int, str], ...]]:
        section, label = track
        first = titles.get(label, "other").partition(" ")[0]
        order = _FIRST.index(first) if first in _FIRST else len(_FIRST)
        return SECTIONS.index(section), order, _split_numbers(label)

    ordered = sorted(every, key=place_of)
    numbers = {key: k for k, key in enumerate(ordered)}
    codes = [np.array([numbers[p.section, t] for t in p.tracks], np.int64)[p.track] for p in parts]
    return np.concatenate(codes), ordered


def _split_numbers(text: str) -> tuple[tuple[int, int, str], ...]:
    """Return the numbers within a text in order of size."""
    return tuple((0, int(w), "") if w.isdigit() else (1, 0, w) for w in text.split())


def _code_names(parts: Sequence[SpanSource]) -> tuple[Narrow, list[str], NDArray[np.uint8]]:
    """Return one code for each name and kind, over all tables."""
    code_of: dict[tuple[str, int], int] = {}
    codes = []
    for part in parts:
        pairs = Groups.by_keys([part.name, part.kind])
        names = [(part.names[name], kind) for name, kind in pairs.keys.tolist()]
        own = [code_of.setdefault(pair, len(code_of)) for pair in names]
        codes.append(np.array(own, np.int32)[pairs.group_ids])
    return (
        np.concatenate(codes),
        [name for name, _ in code_of],
        np.array([kind for _, kind in code_of], np.uint8),
    )


def _clip_lanes(lanes: Lanes) -> None:
    """End each span no later than the next start of its lane and kind: by rounding a child may
    outlive what it is inside of."""
    kind = lanes.kind
    same = (lanes.lane[1:] == lanes.lane[:-1]) & (kind[1:] == kind[:-1])
    np.minimum(lanes.end[:-1], lanes.start[1:], out=lanes.end[:-1], where=same)


def _threads_of(trace: Trace) -> dict[str, str]:
    """Return what is known of threads: which one makes the steps, which run backward."""
    titles = {}
    ops = trace.tables["cpu_ops"]
    codes, threads = codes_of(ops["thread"])
    backward = np.unique(codes[read_numbers(ops["forward_thread"]) > 0])
    for code in backward[backward >= 0].tolist():
        titles[f"thread {threads[code].as_py()}"] = f"backward thread {threads[code].as_py()}"
    ranges = trace.tables["annotations"]
    codes, threads = codes_of(ranges["thread"])
    steps = mark_valid(ranges["step"]) & ~read_booleans(ranges["on_gpu"])
    for code in np.unique(codes[steps & (codes >= 0)]).tolist():
        thread = threads[code].as_py()
        titles[f"thread {thread}"] = f"main thread {thread}"
        titles[f"ranges, thread {thread}"] = "steps and ranges"
    return titles
