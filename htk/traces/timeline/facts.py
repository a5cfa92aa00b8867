"""Everything known of one span, and the arrows that lead to and from it."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from htk.base.columns.arrow import read_numbers, read_times
from htk.base.columns.order import order_by
from htk.base.columns.types import NONE, Ints, fill_none
from htk.base.core.humanize import format_duration, format_value
from htk.base.mappings import Fields
from htk.base.schema import INT32, INT64, unit_of
from htk.traces.timeline.lanes import Lanes
from htk.traces.timeline.sources import KINDS, TABLES
from htk.traces.trace.trace import Trace

MOST_ARROWS = 64
_HIDDEN = ("rank", "name", "start_ns", "end_ns", "event", "cycle", "op_event", "source")
_LONG = 2000

Arrow = Fields


@dataclass(frozen=True)
class Facts:
    """Asks the tables of a trace about the spans of its lanes."""

    trace: Trace
    lanes: Lanes
    rows: pa.Table | None = None  # of the spans that are an answer's

    def list_facts(self, span: int) -> Fields:
        """Return one span: what it is, the columns of its row, what it belongs to, its arrows."""
        brief = self.brief(span)
        table, row = self.where(span)
        if row < 0:
            return {**brief, "facts": [], "arrows": [], "pages": []}
        if table == "rows":
            return {**brief, "ref": "", "facts": self._of_answer(row), "arrows": [], "pages": []}
        facts = [*self._list_links(table, row), *self._list_columns(table, row)]
        facts = [fact for k, fact in enumerate(facts) if fact not in facts[:k]]
        return {
            **brief,
            "ref": self.ref(table, row),
            "facts": facts,
            "open": table == "collectives" and self._has_no_end(row),
            "arrows": self.arrows(span),
            "pages": self._list_pages(table, brief),
        }

    def _has_no_end(self, row: int) -> bool:
        return self.trace.tables["collectives"]["end_ns"][row].as_py() is None

    def _of_answer(self, row: int) -> list[list[str]]:
        """Return every column of a row of an answer."""
        assert self.rows is not None
        values = {field.name: self.rows[field.name][row].as_py() for field in self.rows.schema}
        return [[name, format_value(value, unit_of(name))] for name, value in values.items()]

    def brief(self, span: int) -> Fields:
        """Return what the picture itself needs to show a span."""
        lanes = self.lanes
        start = int(lanes.start[span])
        end = int(lanes.end[span])
        lane = lanes.lanes[int(lanes.lane[span])]
        return {
            "id": span,
            "name": lanes.names[int(lanes.name[span])],
            "kind": KINDS[int(lanes.kinds[lanes.name[span]])],
            "lane": int(lanes.lane[span]),
            "rank": lane.rank,
            "track": lane.track,
            "start": start,
            "end": end,
        }

    def where(self, span: int) -> tuple[str, int]:
        """Return the table and row that a span came from."""
        return TABLES[int(self.lanes.table[span])], int(self.lanes.row[span])

    def ref(self, table: str, row: int) -> str:
        """Return a name of the event that holds whatever ranks are looked at."""
        rows = self.trace.tables[table]
        if "event" not in rows.column_names:
            return ""
        rank = rows["rank"][row].as_py()
        event = rows["event"][row].as_py()
        return "" if rank is None or event is None else f"{table}:{rank}:{event}"

    def find(self, ref: str) -> int:
        """Return the span of an event by that name; -1: there is none."""
        table, rank, event = (*ref.split(":"), "", "")[:3]
        if (
            table not in TABLES
            or table not in self.trace.tables
            or not rank.isdigit()
            or not event.isdigit()
        ):
            return -1
        rows = self._rows_of_events(table, int(rank), np.array([int(event)], np.int64))
        return int(self.lanes.spans_of(table, rows)[0])

    def _rows_of_events(self, table: str, rank: int, events: Ints) -> Ints:
        events_table = self.trace.tables[table]
        if "event" not in events_table.column_names:
            return fill_none(len(events))
        own = np.flatnonzero(read_numbers(events_table["rank"], NONE) == rank)
        own_events = read_numbers(events_table["event"], NONE)[own]
        order = order_by(own_events)
        position = np.minimum(np.searchsorted(own_events[order], events), max(len(order) - 1, 0))
        if not len(order):
            return fill_none(len(events))
        rows = own[order[position]]
        return np.where(own_events[order[position]] == events, rows, -1)

    def _list_columns(self, table: str, row: int) -> list[list[str]]:
        """Return the columns of a row that hold something, as people read them."""
        columns = self.trace.tables[table]
        facts = []
        for field in columns.schema:
            value = columns[field.name][row].as_py()
            if value is None or value == "" or field.name in _HIDDEN:
                continue
            if field.name.endswith("_ns") and pa.types.is_integer(field.type):
                if value == 0:
                    continue
                value = value - self.trace.origin_ns if value > 10**15 else value
            label = field.name.removesuffix("_ns").removesuffix("_bytes").removesuffix("_pct")
            plain = field.type in (INT32, INT64) and not unit_of(field.name)
            text = str(value) if plain else format_value(value, unit_of(field.name))
            facts.append([label.replace("_", " "), text[:_LONG]])
        return facts

    def _list_links(self, table: str, row: int) -> list[list[str]]:
        """Return what the links say of a row."""
        if table == "kernels":
            return self._of_kernel(row)
        if table == "cpu_ops":
            return self._of_op(row)
        if table == "launches":
            links = self.trace.tables["launch_links"]
            activities = links["kernels"][row].as_py()
            return [
                *self._op_line("called by", links["op_row"][row].as_py()),
                ["launched", f"{activities} GPU activities"],
            ]
        if table == "collectives":
            return self._of_collective(row)
        return []

    def _of_kernel(self, row: int) -> list[list[str]]:
        links = self.trace.tables["kernel_links"]
        kernels = self.trace.tables["kernels"]
        facts = self._op_line("operator", links["op_row"][row].as_py())
        step = links["step"][row].as_py()
        began = links["launch_start_ns"][row].as_py()
        if step is not None:
            facts.append(["step", str(step)])
        if began is not None:
            waited = kernels["start_ns"][row].as_py() - began
            facts.append(["launched", f"{format_duration(waited)} before it started"])
        if links["carry_in"][row].as_py():
            facts.append(["launched", "before the recording began"])
        call = self._collective_of(row)
        return facts if call < 0 else [*facts, *self._of_collective(call)]

    def _op_line(self, label: str, op: int | None) -> list[list[str]]:
        if op is None:
            return []
        ops = self.trace.tables["cpu_ops"]
        callers = self.trace.tables["op_callers"]
        module = callers["module"][op].as_py()
        lines = [[label, str(ops["name"][op].as_py())]]
        dims = ops["input_dims"][op].as_py()
        return (
            lines
            + ([["of shape", dims]] if dims else [])
            + ([["module", module]] if module else [])
        )

    def _of_op(self, row: int) -> list[list[str]]:
        links = self.trace.tables["op_links"]
        ops = self.trace.tables["cpu_ops"]
        module = self.trace.tables["op_callers"]["module"][row].as_py()
        parent = links["parent_row"][row].as_py()
        step = links["step"][row].as_py()
        facts = [["module", module]] if module else []
        if parent is not None:
            facts.append(["called by", str(ops["name"][parent].as_py())])
        if step is not None:
            facts.append(["step", str(step)])
        rows = self._launched_by(row)
        if len(rows):
            kernels = self.trace.tables["kernels"]
            spent = read_numbers(kernels["end_ns"])[rows] - read_numbers(kernels["start_ns"])[rows]
            facts.append(
                ["launched", f"{len(rows)} GPU activities, {format_duration(int(spent.sum()))}"]
            )
        return facts

    def _of_collective(self, row: int) -> list[list[str]]:
        matched = self.trace.tables["aligned_matches"]
        table = self.trace.tables["collectives"]
        columns = ("type", "group_desc", "group_size", "in_bytes", "dtype", "seq")
        values = {c: table[c][row].as_py() for c in columns}
        facts = [
            [label, format_value(values[c], unit_of(c))]
            for label, c in (
                ("collective", "type"),
                ("group", "group_desc"),
                ("ranks of the group", "group_size"),
                ("bytes in", "in_bytes"),
            )
            if values[c] is not None
        ]
        for label, c in (("waited", "wait_ns"), ("moved data for", "transfer_ns")):
            value = matched[c][row].as_py()
            if value is not None:
                facts.append([label, format_duration(value)])
        last = matched["last_rank"][row].as_py()
        return [*facts, ["began last", f"rank {last}"]] if last is not None else facts

    def _launched_by(self, op: int) -> Ints:
        """GPU activities that an operator, or any that it calls, launched."""
        ops = self.trace.tables["cpu_ops"]
        links = self.trace.tables["op_links"]
        start, end = read_times(ops)
        inside = (start >= start[op]) & (end <= end[op])
        for own in (ops["rank"], ops["cycle"], links["thread_index"]):
            values = read_numbers(own, NONE)
            inside &= values == values[op]
        return np.flatnonzero(np.isin(self._kernel_op, np.flatnonzero(inside)))

    @cached_property
    def _kernel_op(self) -> Ints:
        return read_numbers(self.trace.tables["kernel_links"]["op_row"], NONE)

    @cached_property
    def kernel_launch(self) -> Ints:
        return read_numbers(self.trace.tables["kernel_links"]["launch_row"], NONE)

    @cached_property
    def forward(self) -> Ints:
        return read_numbers(self.trace.tables["op_links"]["forward_row"], NONE)

    @cached_property
    def match(self) -> Ints:
        return read_numbers(self.trace.tables["collective_matches"]["match"], NONE)

    @cached_property
    def kernel_of_collective(self) -> Ints:
        """Row of `kernels` that each collective ran as; -1: none."""
        table = self.trace.tables["collectives"]
        rank = read_numbers(table["rank"], NONE)
        event = read_numbers(table["event"], NONE)
        rows = fill_none(len(rank))
        for number in np.unique(rank).tolist():  # a rank each
            of_rank = rank == number
            rows[of_rank] = self._rows_of_events("kernels", number, event[of_rank])
        return rows

    def _collective_of(self, kernel: int) -> int:
        collectives = np.flatnonzero(self.kernel_of_collective == kernel)
        return int(collectives[0]) if len(collectives) else -1

    def arrows(self, span: int) -> list[Arrow]:
        """Launch to kernel, forward to backward, the same collective on other ranks."""
        table, row = self.where(span)
        arrows: list[Arrow] = []
        if table == "kernels":
            launch = self.kernel_launch[row : row + 1]
            arrows += self._build_arrows("launch", self.lanes.spans_of("launches", launch), span)
        if table == "launches":
            rows = np.flatnonzero(self.kernel_launch == row)[:MOST_ARROWS]
            arrows += self._build_arrows("launch", span, self.lanes.spans_of("kernels", rows))
        if table == "cpu_ops":
            arrows += self._of_gradients(row, span)
        call = self._collective_of(row) if table == "kernels" else row
        if table in ("kernels", "collectives") and call >= 0:
            arrows += self._list_collective_arrows(call, span)
        return arrows

    def _of_gradients(self, row: int, span: int) -> list[Arrow]:
        ahead = self.lanes.spans_of("cpu_ops", self.forward[row : row + 1])
        behind = np.flatnonzero(self.forward == row)[:MOST_ARROWS]
        rows = self._launched_by(row)[:MOST_ARROWS]
        return [
            *self._build_arrows("backward", ahead, span),
            *self._build_arrows("backward", span, self.lanes.spans_of("cpu_ops", behind)),
            *self._build_arrows("launch", span, self.lanes.spans_of("kernels", rows)),
        ]

    def _list_collective_arrows(self, call: int, span: int) -> list[Arrow]:
        """From the rank that began last to the others: it was the one they waited for."""
        match = int(self.match[call])
        rows = np.flatnonzero(self.match == match) if match >= 0 else np.array([call])
        table, _ = self.where(span)
        if table == "kernels":
            rows = self.kernel_of_collective[rows]
        spans = self.lanes.spans_of(table, rows)
        spans = np.append(spans[(spans >= 0) & (spans != span)], span)
        last = spans[np.argmax(self.lanes.start[spans])]
        return self._build_arrows("collective", int(last), spans[spans != last])

    def _build_arrows(self, kind: str, begin: Ints | int, to: Ints | int) -> list[Arrow]:
        begins, tos = np.broadcast_arrays(np.atleast_1d(begin), np.atleast_1d(to))
        return [
            self.arrow(kind, a, b)
            for a, b in zip(begins.tolist(), tos.tolist(), strict=True)  # a rank each at most
            if a >= 0 and b >= 0
        ]

    def arrow(self, kind: str, begin: int, to: int) -> Arrow:
        lanes = self.lanes
        start = int(lanes.end[begin]) if kind == "backward" else int(lanes.start[begin])
        return {
            "kind": kind,
            "from": [int(lanes.lane[begin]), start, begin],
            "to": [int(lanes.lane[to]), int(lanes.start[to]), to],
        }

    def _list_pages(self, table: str, brief: Fields) -> list[list[str]]:
        """Return where else it is told of: a text, a page, a part of a name."""
        if table == "kernels" and brief["kind"] == "comm":
            return [
                ["its collectives", "communication", ""],
                ["its kernel", "kernels", brief["name"]],
            ]
        if table == "kernels":
            return [["its kernel", "kernels", brief["name"]]]
        if table == "cpu_ops":
            return [["its operator", "operators", brief["name"]]]
        return [["its collectives", "communication", ""]] if table == "collectives" else []


def known_links(facts: Facts) -> tuple[Ints, NDArray[np.int64]]:
    """For every span the one that caused it (-1: none), and the collective it is part of."""
    lanes = facts.lanes
    cause = fill_none(len(lanes.start))
    match = fill_none(len(lanes.start))
    for table, target, rows in (
        ("kernels", "launches", facts.kernel_launch),
        ("cpu_ops", "cpu_ops", facts.forward),
    ):
        spans = lanes.spans_of(table, np.arange(len(rows)))
        cause[spans[spans >= 0]] = lanes.spans_of(target, rows)[spans >= 0]
    for table, rows in (
        ("collectives", np.arange(len(facts.match))),
        ("kernels", facts.kernel_of_collective),
    ):
        spans = lanes.spans_of(table, rows)
        match[spans[spans >= 0]] = facts.match[spans >= 0]
    return cause, match
