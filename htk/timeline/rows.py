"""The rows of any table that have a start and an end, as a timeline."""

from typing import Any

import numpy as np
import pyarrow as pa

from htk.columns.arrow import codes_of, numbers, valid
from htk.core.humanize import format_value
from htk.errors import UsageError
from htk.schema import TEXT, unit_of
from htk.timeline.answers import TraceTimeline
from htk.timeline.detail import Detail
from htk.timeline.facts import Facts
from htk.timeline.lanes import assembled
from htk.timeline.sources import KINDS, SpanSource
from htk.trace.trace import Trace

_OTHER = KINDS.index("range")
_CALLED = ("name", "op", "type", "cause", "phase")


class RowsTimeline(TraceTimeline):
    """A lane for each rank: what an analysis found, where in time it was."""

    def __init__(self, table: pa.Table, name: str) -> None:
        until = next((c for c in ("end_ns", "duration_ns") if c in table.column_names), None)
        if "start_ns" not in table.column_names or until is None:
            raise UsageError(
                f"the rows of {name} have no start and end; trace.timeline() shows all"
            )
        nothing = Trace(())
        rows = np.flatnonzero(valid(table["start_ns"]) & valid(table[until]))
        source = _source(table.take(pa.array(rows)), rows, name, until)
        origin = int(source.start.min(initial=0)) if len(rows) else 0
        self.trace, self.aligned = nothing, False
        self.detail = Detail(assembled([source] if len(rows) else [], origin))
        self.lanes = self.detail.lanes
        self.facts = _RowFacts(nothing, self.lanes, table)

    def about(self) -> dict[str, Any]:
        return {**super().about(), "can_align": False, "can_path": False}

    def _steps(self) -> list[list[int]]:
        return []

    def _recorded(self) -> list[list[int]]:
        return []

    def _ranks(self) -> list[list[Any]]:
        return []


class _RowFacts(Facts):
    """Every column of a row."""

    def __init__(self, trace: Trace, lanes: Any, table: pa.Table) -> None:
        super().__init__(trace, lanes)
        object.__setattr__(self, "table", table)

    table: pa.Table

    def of(self, span: int) -> dict[str, Any]:
        _, row = self.where(span)
        facts = [
            [field.name, format_value(self.table[field.name][row].as_py(), unit_of(field.name))]
            for field in self.table.schema
        ]
        return {**self.brief(span), "ref": "", "facts": facts, "arrows": [], "pages": []}

    def find(self, ref: str) -> int:
        return -1


def _source(table: pa.Table, rows: np.ndarray, name: str, until: str) -> SpanSource:
    count = len(rows)
    rank = numbers(table["rank"], -1) if "rank" in table.column_names else np.full(count, -1)
    texts = [f.name for f in table.schema if f.type == TEXT]
    named = next((c for c in (*_CALLED, *texts) if c in texts), None)
    if named is None and "step" in table.column_names:
        steps = [f"step {s}" for s in table["step"].to_pylist()]
        codes, names = codes_of(pa.chunked_array([pa.array(steps).dictionary_encode()]))
    elif named is None:
        codes, names = np.zeros(count, np.int32), pa.array([name])
    else:
        codes, names = codes_of(table[named])
    kind = np.full(count, _OTHER, np.int64)
    if "kind" in texts:
        kinds, words = codes_of(table["kind"])
        kind_codes = [KINDS.index(w) if w in KINDS else _OTHER for w in words.to_pylist()]
        kind = np.array([*kind_codes, _OTHER], np.int64)[kinds]
    code = codes.astype(np.int64)
    code[code < 0] = len(names)
    start, end = numbers(table["start_ns"]), numbers(table[until])
    end = start + end if until == "duration_ns" else end
    return SpanSource(
        "rows",
        "streams",
        rank.astype(np.int64),
        np.zeros(count, np.int64),
        [name.replace("_", " ")],
        kind,
        code,
        [*names.to_pylist(), "(no name)"],
        start,
        np.maximum(start, end),
        rows,
    )
