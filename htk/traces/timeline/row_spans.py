"""Rows of a table, whatever it is of, as spans of a timeline."""

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import codes_of, mark_valid, read_numbers
from htk.base.errors import UsageError
from htk.base.schema import STRING, TEXT
from htk.traces.timeline.sources import KINDS, SpanSource

_OTHER = KINDS.index("range")
_CALLED = ("name", "op", "type", "cause", "phase")


def ends_of(table: pa.Table) -> str | None:
    """Return the column that says where rows end; None of what has no place in time."""
    if "start_ns" not in table.column_names:
        return None
    return next((c for c in ("end_ns", "duration_ns") if c in table.column_names), None)


def row_spans(answer: pa.Table, name: str, section: str = "streams") -> SpanSource:
    """Return the rows that have a start and an end, on a track for each rank."""
    until = ends_of(answer)
    if until is None:
        raise UsageError(f"the rows of {name} have no start and end; trace.timeline() shows all")
    rows = np.flatnonzero(mark_valid(answer["start_ns"]) & mark_valid(answer[until]))
    table = _encode_texts(answer.take(pa.array(rows)))
    count = len(rows)
    rank = read_numbers(table["rank"], -1) if "rank" in table.column_names else np.full(count, -1)
    texts = [f.name for f in table.schema if f.type == TEXT]
    named = next((c for c in (*_CALLED, *texts) if c in texts), None)
    if named is None and "step" in table.column_names:
        steps = [f"step {s}" for s in table["step"].to_pylist()]
        codes, names = codes_of(pa.chunked_array([pa.array(steps).dictionary_encode()]))
    elif named is None:
        codes = np.zeros(count, np.int32)
        names = pa.array([name])
    else:
        codes, names = codes_of(table[named])
    kind = np.full(count, _OTHER, np.int64)
    if "kind" in texts:
        kinds, words = codes_of(table["kind"])
        kind_codes = [KINDS.index(w) if w in KINDS else _OTHER for w in words.to_pylist()]
        kind = np.array([*kind_codes, _OTHER], np.int64)[kinds]
    code = codes.astype(np.int64)
    code[code < 0] = len(names)
    start = read_numbers(table["start_ns"])
    end = read_numbers(table[until])
    end = start + end if until == "duration_ns" else end
    return SpanSource(
        "rows",
        section,
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


def _encode_texts(table: pa.Table) -> pa.Table:
    """Return the table with its texts as those of a trace: a query's come plain."""
    for number, field in enumerate(table.schema):
        if pa.types.is_string(field.type) or pa.types.is_large_string(field.type):
            column = table[field.name].cast(STRING).dictionary_encode().cast(TEXT)
            table = table.set_column(number, field.name, column)
    return table
