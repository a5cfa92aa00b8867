"""How a table is declared: each column with its type, unit and one line of meaning."""

import re

import pyarrow as pa

TEXT = pa.dictionary(pa.int32(), pa.string())
UNITS = {
    "_ns": "ns",
    "_bytes": "bytes",
    "_pct": "%",
    "_gbps": "GB/s",
    "_us": "us",
    "_ms": "ms",
}

_BAND = re.compile(r"_(lo|hi)\d\d$")  # ends of a band stand behind the unit

Column = tuple[pa.DataType, str] | tuple[pa.DataType, str, str]


def unit_of(name: str) -> str:
    """The unit that a column's name states."""
    bare = _BAND.sub("", name)
    if bare == "pct" or bare.startswith("pct_of_"):
        return "%"
    return next((unit for suffix, unit in UNITS.items() if bare.endswith(suffix)), "")


def table(**columns: Column) -> pa.Schema:
    """A schema whose every column carries its unit and one line of meaning.

    A third item names the table whose rows the column numbers.
    """
    return pa.schema([_field(name, *column) for name, column in columns.items()])


def _field(name: str, kind: pa.DataType, doc: str, index: str = "") -> pa.Field:
    metadata = {"doc": doc, "unit": unit_of(name)}
    return pa.field(name, kind, metadata=metadata | ({"index": index} if index else {}))


def doc_of(field: pa.Field) -> str:
    """The line of meaning of a column."""
    return str((field.metadata or {}).get(b"doc", b"").decode())


def index_of(field: pa.Field) -> str:
    """The table whose rows a column numbers, or nothing."""
    return str((field.metadata or {}).get(b"index", b"").decode())


def empty(schema: pa.Schema) -> pa.Table:
    return schema.empty_table()
