"""A trace as lanes of spans that do not overlap: streams, groups, threads by depth."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from htk.base.columns.arrow import codes_of, numbers, truths, valid
from htk.base.columns.groups import Groups
from htk.base.columns.nesting import nest
from htk.base.columns.order import ordered
from htk.base.columns.types import Ints, fill_none
from htk.traces.timeline.sources import SECTIONS, TABLES, DisplayClock, SpanSource, sources
from htk.traces.trace.trace import Trace

_FIRST = ("main", "steps", "backward")  # of the threads, as `_threads_of` calls them


class Lane(NamedTuple):
    """One row of the picture."""

    rank: int  # -1: unknown
    section: str
    track: str
    depth: int


@dataclass(frozen=True)
class Lanes:
    """Spans of all lanes, and what each came from. A span's place in the arrays is its id."""

    lanes: list[Lane]
    lane: Ints
    name: Ints
    names: list[str]
    kinds: NDArray[np.uint8]  # of each name
    start: Ints  # since the trace began
    end: Ints
    table: Ints  # into TABLES
    row: Ints

    @property
    def kind(self) -> Ints:
        return self.kinds[self.name].astype(np.int64)

    @cached_property
    def low(self) -> int:
        """The earliest start: before zero where clocks were aligned."""
        return min(0, int(self.start.min(initial=0)))

    @cached_property
    def high(self) -> int:
        return int(self.end.max(initial=0)) + 1

    @cached_property
    def _by_table(self) -> list[tuple[Ints, Ints]]:
        """Rows of each table in order, and their spans."""
        tables = []
        for number in range(len(TABLES)):
            spans = np.flatnonzero(self.table == number)
            order = spans[np.argsort(self.row[spans], kind="stable")]
            tables.append((self.row[order], order))
        return tables

    def spans_of(self, table: str, rows: Ints) -> Ints:
        """Return the spans that rows of a table became; -1: none."""
        own_rows, spans = self._by_table[TABLES.index(table)]
        if not len(own_rows):
            return fill_none(len(rows))
        position = np.minimum(np.searchsorted(own_rows, rows), len(own_rows) - 1)
        return np.where((own_rows[position] == rows) & (rows >= 0), spans[position], -1)


def lanes_of(trace: Trace, *, aligned: bool = False, rows: SpanSource | None = None) -> Lanes:
    """Return all that a trace holds of spans, and rows of an answer; on one clock for all ranks,
    where asked."""
    every = sources(trace, aligned)
    if rows is not None:
        start, end = DisplayClock(trace, aligned).span(rows.rank, rows.start, rows.end)
        every.append(replace(rows, start=start, end=end))
    return assembled(every, trace.origin_ns, _threads_of(trace))


def assembled(
    parts: Sequence[SpanSource], origin: int, titles: dict[str, str] | None = None
) -> Lanes:
    """Return the lanes from the spans of several tables."""
    if not parts:
        none = np.empty(0, np.int64)
        return Lanes([], none, none, [], np.empty(0, np.uint8), none, none, none, none)
    start = np.concatenate([p.start for p in parts]) - origin
    end = np.concatenate([p.end for p in parts]) - origin
    track, tracks = _tracks(parts, titles or {})
    keys = np.stack([np.concatenate([p.rank for p in parts]), track], axis=1)
    groups = Groups.by_keys(keys)
    depth = _depth(groups.group_ids, start, end)
    depth[np.repeat([p.section == "busy" for p in parts], [len(p) for p in parts])] = 0
    lanes = Groups.by_keys([groups.group_ids, depth])
    described = []
    for group, deep in lanes.keys.tolist():  # a lane each
        rank, number = groups.keys[group].tolist()
        section, label = tracks[number]
        described.append(Lane(rank, section, str((titles or {}).get(label, label)), deep))
    name, names, kinds = _names(parts)
    end = _clipped(lanes.group_ids, kinds[name], start, end)
    table = np.repeat([TABLES.index(p.table) for p in parts], [len(p) for p in parts])
    row = np.concatenate([p.row for p in parts])
    return Lanes(described, lanes.group_ids, name, names, kinds, start, end, table, row)


def _tracks(
    parts: Sequence[SpanSource], titles: dict[str, str]
) -> tuple[Ints, list[tuple[str, str]]]:
    """Track of each span, numbered from top to bottom, and (section, label) of each."""
    every = {(p.section, label) for p in parts for label in p.tracks}

    def place_of(track: tuple[str, str]) -> tuple[int, int, tuple[tuple[int, int, str], ...]]:
        section, label = track
        first = titles.get(label, "other").partition(" ")[0]
        order = _FIRST.index(first) if first in _FIRST else len(_FIRST)
        return SECTIONS.index(section), order, _natural(label)

    ordered = sorted(every, key=place_of)
    numbers = {key: k for k, key in enumerate(ordered)}
    codes = [np.array([numbers[p.section, t] for t in p.tracks], np.int64)[p.track] for p in parts]
    return np.concatenate(codes), ordered


def _natural(text: str) -> tuple[tuple[int, int, str], ...]:
    """Return the numbers within a text in order of size."""
    return tuple((0, int(w), "") if w.isdigit() else (1, 0, w) for w in text.split())


def _names(parts: Sequence[SpanSource]) -> tuple[Ints, list[str], NDArray[np.uint8]]:
    """Return one code for each name and kind, over all tables."""
    code_of: dict[tuple[str, int], int] = {}
    codes = []
    for part in parts:
        pairs = Groups.by_keys([part.name, part.kind])
        names = [(part.names[name], kind) for name, kind in pairs.keys.tolist()]
        own = [code_of.setdefault(pair, len(code_of)) for pair in names]
        codes.append(np.array(own, np.int64)[pairs.group_ids])
    return (
        np.concatenate(codes),
        [name for name, _ in code_of],
        np.array([kind for _, kind in code_of], np.uint8),
    )


def _depth(lane: Ints, start: Ints, end: Ints) -> Ints:
    order = ordered(lane, start, -end)
    _, depth = nest(lane[order].astype(np.int32), start[order], end[order])
    out = np.empty(len(order), np.int64)
    out[order] = depth
    return out


def _clipped(lane: Ints, kind: NDArray[np.uint8], start: Ints, end: Ints) -> Ints:
    """Ends no later than the next start of the lane and kind: by rounding a child may outlive what
    it is inside of, and lanes must not overlap."""
    part = Groups.by_keys([lane, kind]).group_ids
    order = ordered(part, start, end)
    after = np.append(order[1:], order[:1])
    same = part[after] == part[order]
    same[-1:] = False
    out = end.copy()
    out[order[same]] = np.minimum(end[order[same]], start[after[same]])
    return out


def _threads_of(trace: Trace) -> dict[str, str]:
    """Return what is known of threads: which one makes the steps, which run backward."""
    titles = {}
    ops = trace.tables["cpu_ops"]
    codes, threads = codes_of(ops["thread"])
    backward = np.unique(codes[numbers(ops["forward_thread"]) > 0])
    for code in backward[backward >= 0].tolist():
        titles[f"thread {threads[code].as_py()}"] = f"backward thread {threads[code].as_py()}"
    ranges = trace.tables["annotations"]
    codes, threads = codes_of(ranges["thread"])
    steps = valid(ranges["step"]) & ~truths(ranges["on_gpu"])
    for code in np.unique(codes[steps & (codes >= 0)]).tolist():
        thread = threads[code].as_py()
        titles[f"thread {thread}"] = f"main thread {thread}"
        titles[f"ranges, thread {thread}"] = "steps and ranges"
    return titles
