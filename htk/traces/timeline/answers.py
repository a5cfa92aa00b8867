"""The questions of the timeline's canvas, answered alike for a server, a notebook and a test."""

import gzip
import json
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import (
    codes_of,
    mark_valid,
    read_booleans,
    read_keys,
    read_numbers,
    read_times,
)
from htk.base.columns.intervals import union_lengths
from htk.base.columns.order import order_by
from htk.base.columns.types import NONE, Ints, fill_none, take_or
from htk.base.core.humanize import parse_int_ranges, shorten_text
from htk.base.errors import HtkError, UsageError
from htk.base.mappings import Fields
from htk.quantities.derived.recorded import unrecorded_ranks
from htk.traces.timeline.counters import counter_lanes, counters_of, describe_counters
from htk.traces.timeline.cuts import TimeCuts, group_recordings
from htk.traces.timeline.detail import Detail
from htk.traces.timeline.facts import Facts
from htk.traces.timeline.lanes import Lane, lanes_of
from htk.traces.timeline.matches import select_matching
from htk.traces.timeline.nodes import SECTION as NODE
from htk.traces.timeline.nodes import nodes_of
from htk.traces.timeline.row_spans import row_spans
from htk.traces.timeline.sources import KINDS, DisplayClock, SpanSource
from htk.traces.trace.trace import Trace

MOST_FOUND = 200
_NAME = 160
_TOP = 200  # names of a marked time
_MOST_LIT = 3  # searches in memory; one of a million spans takes 60 MB


class TraceTimeline:
    """The lanes of a trace with everything that can be asked of them."""

    def __init__(self, trace: Trace, *, aligned: bool = True, rows: pa.Table | None = None) -> None:
        self.trace = trace
        self.aligned = aligned
        spans = None if rows is None else _clip_spans(trace, row_spans(rows, "query", "query"))
        self._files = self._times_of_files()
        self.recordings = group_recordings(self._files[:, 1:].tolist())
        self.cuts = TimeCuts.between(self.recordings)
        lanes = lanes_of(trace, aligned=aligned, rows=spans)
        start = self.cuts.position_of(lanes.start)
        end = self.cuts.position_of(lanes.end)
        counters = counters_of(trace, aligned, self.cuts)
        moved = replace(lanes, start=start, end=end)
        nodes = nodes_of(trace)
        node_lanes = [Lane(min(node.ranks), NODE, node.name, 0) for node in nodes]
        self.lanes, places = moved.with_added([*node_lanes, *counter_lanes(counters)])
        self.nodes = dict(zip(places, nodes, strict=False))
        self.counters = dict(zip(places[len(nodes) :], counters, strict=True))
        self.detail = Detail(self.lanes, self.nodes).indexed()
        self.facts = Facts(trace, self.lanes, rows)

    def about(self) -> Fields:
        """Return what the trace holds: lanes, names, kinds, steps, ranks."""
        lanes = self.lanes
        return {
            "low": lanes.low,
            "high": lanes.high,
            "events": len(lanes.start),
            "lanes": [list(lane) for lane in lanes.lanes],
            "names": [shorten_text(name, _NAME) for name in lanes.names],
            "kind_of": lanes.kinds.tolist(),
            "kinds": KINDS,
            "steps": self._list_steps(),
            "ranks": self._list_ranks(),
            "recorded": self._on_axis(self._files),
            "recordings": self._on_axis(np.array(self.recordings, np.int64).reshape(-1, 2)),
            "cuts": self.cuts.listed(),
            "counters": describe_counters(self.counters),
            "nodes": [
                {"lane": lane, "name": node.name, "ranks": node.ranks}
                for lane, node in self.nodes.items()
            ],
            "unrecorded_ranks": unrecorded_ranks(self.trace.everything.tables["ranks"]),
            "aligned": self.aligned,
            "can_align": len(self.trace.ranks) > 1,
            "can_path": self.trace.tables["kernels"].num_rows > 0,
        }

    def view(
        self,
        start: float,
        end: float,
        width: int,
        lanes: str = "",
        *,
        text: str = "",
        path: str = "",
    ) -> bytes:
        """Return what a viewport shows, packed for the browser, and how much of it matches a text
        or lies on the critical path of a step (`all`: of the recording)."""
        chosen = parse_int_ranges(lanes) if lanes else None
        if chosen and max(chosen) >= len(self.lanes.lanes):
            raise UsageError("there are fewer lanes than that")
        lit = self._find_lit(text.strip().lower(), path) if text.strip() or path else None
        return self.detail.view(start, end, width, chosen, lit, self.counters)

    def _find_lit(self, text: str, path: str) -> Detail:
        """Return the spans of a search, of a path, or of both; kept for the views that follow."""
        lit = self._lit_of.get((text, path))
        if lit is None:
            chosen = np.ones(len(self.lanes.start), bool)
            if text:
                chosen &= self._code_is(self._find_names(text))
            if path:
                ids = np.array(self.path(None if path == "all" else int(path))["id"], np.int64)
                on_path = np.zeros(len(chosen), bool)
                on_path[ids[ids >= 0]] = True
                chosen &= on_path
            lit = Detail(select_matching(self.lanes, chosen), self.nodes)
            for old in list(self._lit_of)[: max(0, len(self._lit_of) - _MOST_LIT + 1)]:
                self._lit_of.pop(old, None)
            self._lit_of[text, path] = lit
        return lit

    def event(self, *, id: int = -1, ref: str = "") -> Fields:
        """Return everything known of one span, by its id or by its event's name."""
        span = self.facts.find(ref) if ref else id
        if not 0 <= span < len(self.lanes.start):
            raise UsageError("there is no such event")
        return self.facts.list_facts(span)

    def search(self, text: str) -> Fields:
        """Return the names that hold a text, those that take longest first."""
        codes = self._find_names(text)
        spans = np.flatnonzero(self._code_is(codes))
        name = self.lanes.name[spans]
        length = self._length[spans]
        total = np.bincount(name, length, minlength=len(self.lanes.names))
        count = np.bincount(name, minlength=len(self.lanes.names))
        order = codes[np.argsort(-total[codes])][:MOST_FOUND]
        return {
            "spans": len(spans),
            "names": len(codes),
            "found": [[int(c), int(count[c]), int(total[c])] for c in order.tolist() if count[c]],
        }

    def jump(self, how: str, *, id: int = -1, text: str = "") -> Fields:
        """Return the next, previous or longest span of the same name (or found by a text)."""
        lanes = self.lanes
        codes = self._find_names(text) if text else lanes.name[id : id + 1] if id >= 0 else None
        if codes is None:
            raise UsageError("say what to look for, or select an event")
        spans = np.flatnonzero(self._code_is(codes))
        if id >= 0 and not text:  # the same name in a rank's other lanes is another story
            spans = spans[self._rank[spans] == self._rank[id]]
        if not len(spans):
            raise UsageError("nothing of that name")
        if how == "longest":
            return self.facts.list_facts(int(spans[np.argmax(self._length[spans])]))
        order = spans[order_by(lanes.start[spans], spans)]
        if id < 0:
            return self.facts.list_facts(int(order[0 if how == "next" else -1]))
        position = np.flatnonzero(order == id)
        if len(position):
            target = int(position[0]) + (1 if how == "next" else -1)
        else:
            target = int(np.searchsorted(lanes.start[order], lanes.start[id], side="right"))
            target -= 0 if how == "next" else 1
        return self.facts.list_facts(int(order[target % len(order)]))

    def stats(self, start: float, end: float, lanes: str = "") -> Fields:
        """Return the time by kind, name and lane that some lanes are busy in a window, in ns."""
        low = int(start)
        high = int(end)
        chosen = (
            self._of_nodes(np.array(parse_int_ranges(lanes), np.int64))
            if lanes
            else np.arange(len(self.lanes.lanes))
        )
        spans = self._find_inside(low, high, chosen)
        begin = self.cuts.time_at(np.maximum(self.lanes.start[spans], low))
        until = self.cuts.time_at(np.minimum(self.lanes.end[spans], high))
        length = until - begin
        name = self.lanes.name[spans]
        lane = self.lanes.lane[spans]
        once = ~self._drawn_twice[lane]
        count = np.bincount(name[once], minlength=len(self.lanes.names))
        total = np.bincount(name[once], length[once], minlength=len(self.lanes.names))
        top = np.argsort(-total, kind="stable")[:_TOP]
        kind = self.lanes.kinds[name].astype(np.int64)
        kinds = np.stack([self._rank[spans], kind], 1) if len(spans) else np.empty((0, 2), int)
        pairs, group = np.unique(kinds, axis=0, return_inverse=True)
        busy = union_lengths(group.ravel(), begin, until, len(pairs))
        by_lane = np.bincount(lane, length, minlength=len(self.lanes.lanes))
        ordered = np.argsort(-by_lane[chosen], kind="stable")
        return {
            "start": low,
            "end": high,
            "spans": len(spans),
            "kinds": [
                [rank, KINDS[k], int(b)] for (rank, k), b in zip(pairs.tolist(), busy, strict=True)
            ],
            "names": [[int(c), int(count[c]), int(total[c])] for c in top.tolist() if count[c]],
            "lanes": [
                [int(chosen[k]), int(by_lane[chosen[k]])] for k in ordered if by_lane[chosen[k]]
            ],
        }

    def path(self, step: int | None = None) -> Fields:
        """Return the critical path of a step, piece by piece."""
        if step not in self._path_of:
            self._path_of[step] = self._draw_path(step)
        return self._path_of[step]

    def _draw_path(self, step: int | None) -> Fields:
        from htk.quantities.graph.fidelity import draw_path

        selection = self.trace.sel()
        drawn = draw_path(selection.tables, step)
        pieces = drawn.pieces
        rank = read_keys(pieces["rank"])
        clock = DisplayClock(self.trace, self.aligned)
        start, end = clock.span(rank, *read_times(pieces))
        spans = fill_none(len(start))
        codes, tables = codes_of(pieces["table"])
        rows = read_numbers(pieces["row"], NONE)
        for code, table in enumerate(tables.to_pylist()):
            in_table = codes == code
            spans[in_table] = self.lanes.spans_of(table, rows[in_table])
        lane = np.where(spans >= 0, take_or(self.lanes.lane, spans), -1)
        kinds, words = codes_of(pieces["kind"])
        origin = self.trace.origin_ns
        return {
            "kinds": words.to_pylist(),
            "lane": lane.tolist(),
            "id": spans.tolist(),
            "start": self.cuts.position_of(start - origin).tolist(),
            "end": self.cuts.position_of(end - origin).tolist(),
            "kind": kinds.tolist(),
            "inside": read_booleans(pieces["inside"]).tolist(),
            "lead": [drawn.lead, drawn.lead_ns],
            "total": int(read_numbers(pieces["path_ns"]).sum()) + drawn.lead_ns,
            "of_step": drawn.step,
            "verdict": drawn.verdict,
        }

    def answer_text(self, question: str, query: Mapping[str, str]) -> bytes:
        """Return the answer to a question in text, as the canvas reads it."""
        answer = self._answer_question(question, query)
        return answer if isinstance(answer, bytes) else json.dumps(answer).encode()

    def answer(self, question: str, query: Mapping[str, str]) -> bytes:
        """Return the answer to a question compressed, as it travels to the canvas."""
        return gzip.compress(self.answer_text(question, query), 1)

    def _answer_question(self, question: str, query: Mapping[str, str]) -> Any:
        get = query.get
        try:
            if question == "about":
                return self.about()
            if question == "view":
                width = int(query["width"])
                return self.view(
                    float(query["start"]),
                    float(query["end"]),
                    width,
                    get("lanes", ""),
                    text=get("text", ""),
                    path=get("path", ""),
                )
            if question == "event":
                return self.event(id=int(get("id", "-1")), ref=get("ref", ""))
            if question == "search":
                return self.search(query["text"])
            if question == "jump":
                return self.jump(query["how"], id=int(get("id", "-1")), text=get("text", ""))
            if question == "stats":
                return self.stats(float(query["start"]), float(query["end"]), get("lanes", ""))
            if question == "path":
                return self.path(int(query["step"]) if get("step") else None)
        except (KeyError, ValueError, OverflowError) as error:
            if isinstance(error, HtkError):
                raise
            raise UsageError(f"{question}: {error} is missing or no number") from None
        raise UsageError(f"nobody asks {question!r}")

    @cached_property
    def _lit_of(self) -> dict[tuple[str, str], Detail]:
        return {}

    @cached_property
    def _path_of(self) -> dict[int | None, Fields]:
        return {}

    @cached_property
    def _length(self) -> Ints:
        return self.cuts.time_at(self.lanes.end) - self.cuts.time_at(self.lanes.start)

    @cached_property
    def _rank(self) -> Ints:
        ranks = np.array([lane.rank for lane in self.lanes.lanes] + [-1], np.int64)
        return ranks[self.lanes.lane]

    @cached_property
    def _drawn_twice(self) -> np.ndarray:
        """The lanes of groups, whose collectives are kernels of the streams too."""
        sections = [lane.section for lane in self.lanes.lanes]
        return np.array(["streams" in sections and section == "groups" for section in sections])

    @cached_property
    def _lower(self) -> list[str]:
        return [name.lower() for name in self.lanes.names]

    def _find_names(self, text: str) -> Ints:
        wanted = text.lower()
        return np.array([k for k, n in enumerate(self._lower) if wanted in n], np.int64)

    def _code_is(self, codes: Ints) -> np.ndarray:
        """Return which spans have one of some names: each event once, however often it is drawn."""
        wanted = np.zeros(len(self.lanes.names), bool)
        wanted[codes] = True
        return wanted[self.lanes.name] & (self.lanes.row >= 0)

    def _of_nodes(self, lanes: Ints) -> Ints:
        """Return lanes with those of a node's ranks in place of the node's."""
        ranks = [rank for lane in lanes.tolist() if lane in self.nodes
                 for rank in self.nodes[lane].ranks]  # fmt: skip
        inside = np.flatnonzero(np.isin([lane.rank for lane in self.lanes.lanes], ranks))
        return np.union1d(lanes, inside)

    def _find_inside(self, low: int, high: int, lanes: Ints) -> Ints:
        """Return the spans of some lanes that lie, at least in part, within a time; those drawn for
        a summary are left out."""
        detail = self.detail
        parts = np.flatnonzero(np.isin(detail.part_lane, lanes))
        bounds = detail.positions(parts, np.array([low, high], np.int64))
        first = np.maximum(bounds[:, 0] - 1, detail.offset[parts])
        chosen = [np.arange(a, b) for a, b in zip(first, bounds[:, 1], strict=True)]
        rows = np.concatenate([np.empty(0, np.int64), *chosen])
        inside = (self.lanes.end[rows] > low) & (self.lanes.start[rows] < high)
        return np.asarray(rows[inside & (self.lanes.row[rows] >= 0)])

    def _list_steps(self) -> list[list[int]]:
        """Return the steps of each rank: of its GPUs where they are known, else of its host."""
        table = self.trace.tables["step_windows"]
        clock = DisplayClock(self.trace, self.aligned)
        gpu_bands = self._list_bands(table, np.arange(table.num_rows), clock, 1)
        ranges = self.trace.tables["annotations"]
        rows = np.flatnonzero(mark_valid(ranges["step"]) & ~read_booleans(ranges["on_gpu"]))
        return gpu_bands + self._list_bands(ranges, rows, clock, 0)

    def _list_bands(self, table: Any, rows: Ints, clock: DisplayClock, gpu: int) -> list[list[int]]:
        rank = read_keys(table["rank"])[rows]
        start, end = read_times(table, rows)
        start, end = clock.span(rank, start, end)
        step = read_numbers(table["step"], NONE)[rows]
        origin = self.trace.origin_ns
        columns = [np.full(len(rows), gpu), rank, step, start - origin, end - origin]
        return self._on_axis(np.unique(np.stack(columns, 1).astype(np.int64), axis=0))

    def _times_of_files(self) -> Ints:
        """Return rank, start and end of each file: what lies outside was not recorded."""
        table = self.trace.tables["ranks"]
        clock = DisplayClock(self.trace, self.aligned)
        rows = np.flatnonzero(mark_valid(table["start_ns"]) & mark_valid(table["end_ns"]))
        rank = read_keys(table["rank"])[rows]
        start, end = read_times(table, rows)
        start, end = clock.span(rank, start, end)
        return np.stack([rank, start - self.trace.origin_ns, end - self.trace.origin_ns], 1)

    def _on_axis(self, rows: Ints) -> list[list[int]]:
        """Return rows that end in a start and an end with both on the axis."""
        moved = rows.copy()
        moved[:, -2:] = self.cuts.position_of(rows[:, -2:])
        positions: list[list[int]] = moved.tolist()
        return positions

    def _list_ranks(self) -> list[list[Any]]:
        table = self.trace.tables["ranks"]
        columns = ("rank", "device_name", "host")
        return [
            [-1 if r["rank"] is None else r["rank"], r["device_name"] or "", r["host"] or ""]
            for r in table.select(list(columns)).to_pylist()
        ]


def _clip_spans(trace: Trace, spans: SpanSource) -> SpanSource:
    """Return the spans, all of which lie within the recording: others would stretch the picture
    beyond sense."""
    table = trace.tables["ranks"]
    low = int(
        read_numbers(table["start_ns"], 0)[mark_valid(table["start_ns"])].min(
            initial=trace.origin_ns
        )
    )
    high = int(
        read_numbers(table["end_ns"], 0)[mark_valid(table["end_ns"])].max(initial=trace.origin_ns)
    )
    outside = int(((spans.end < low) | (spans.start > high)).sum())
    if outside:
        rows = f"{outside:,} of {len(spans):,} rows lie outside the recording"
        raise UsageError(f"{rows}; select start_ns and end_ns as the tables hold them")
    return spans
