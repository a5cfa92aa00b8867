"""How a table is declared: each column with its type, unit and one line of meaning."""

import re
from collections import Counter
from collections.abc import Iterable

import pyarrow as pa

BOOL = pa.bool_()
INT32 = pa.int32()
INT64 = pa.int64()
FLOAT64 = pa.float64()
STRING = pa.string()
TEXT = pa.dictionary(INT32, STRING)
UNITS = {
    "_ns": "ns",
    "_bytes": "bytes",
    "_pct": "%",
    "_gbps": "GB/s",
    "_us": "us",
    "_ms": "ms",
    "_mhz": "MHz",
    "_w": "W",
    "_c": "°C",
}

# Behind the unit may stand a statistic: call_ns_p50, step_time_ns_lo90.
STATISTICS = r"(?:lo|hi|p)\d\d|mean|min|max|std|sigma"
_MEASURED = re.compile(
    rf"(?P<quantity>\w+?)(?P<unit>{'|'.join(UNITS)})(_(?P<statistic>{STATISTICS}))?"
)

_KINDS = {"ns": "time", "bytes": "size", "%": "share"}

Column = tuple[pa.DataType, str] | tuple[pa.DataType, str, str]


def unit_of(name: str) -> str:
    """Return the unit that a column's name states."""
    measured = _MEASURED.fullmatch(name)
    return UNITS[measured["unit"]] if measured else ""


def heading_of(name: str) -> str:
    """Return a column's name in words, without the unit: "call p50" of call_ns_p50, "step time,
    90 % from" of step_time_ns_lo90, the low end of an interval."""
    measured = _MEASURED.fullmatch(name)
    if measured is None:
        return name.replace("_", " ")
    if measured["quantity"] == "duration" and measured["statistic"]:  # of what the row names
        return measured["statistic"]
    sign = "%" if measured["unit"] == "_pct" else ""
    quantity = measured["quantity"].replace("_", " ")
    statistic = measured["statistic"] or ""
    words = " ".join(word for word in (quantity, sign) if word)
    if statistic.startswith(("lo", "hi")):
        end = "from" if statistic.startswith("lo") else "to"
        return f"{words}, {statistic[2:]} % {end}"
    return f"{words} {statistic}".strip()


def build_headings(names: Iterable[str]) -> dict[str, str]:
    """Return the headings of one table's columns; two that differ by their unit alone say of what
    they are: peak time, peak size."""
    words = {name: heading_of(name) for name in names}
    often = Counter(words.values())
    return {
        name: f"{heading} {_KINDS[unit_of(name)]}"
        if often[heading] > 1 and unit_of(name) in _KINDS
        else heading
        for name, heading in words.items()
    }


def table(**columns: Column) -> pa.Schema:
    """Return a schema whose every column carries its unit and one line of meaning.

    A third item names the table whose rows the column numbers.
    """
    return pa.schema([_build_field(name, *column) for name, column in columns.items()])


def _build_field(name: str, kind: pa.DataType, doc: str, index: str = "") -> pa.Field:
    metadata = {"doc": doc, "unit": unit_of(name)}
    return pa.field(name, kind, metadata=metadata | ({"index": index} if index else {}))


def doc_of(field: pa.Field) -> str:
    """Return the line of meaning of a column."""
    return str((field.metadata or {}).get(b"doc", b"").decode())


def index_of(field: pa.Field) -> str:
    """Return the table whose rows a column numbers, or nothing."""
    return str((field.metadata or {}).get(b"index", b"").decode())
