"""The compiled engine: feeds native/kineto/ and lends out its columns."""

from typing import Any

import numpy as np
import pyarrow as pa

from htk.base.native import _kineto
from htk.parsers.kineto.columns import COLUMNS, NAMES, REST
from htk.parsers.kineto.raw import (
    ByteStream,
    Issue,
    Progress,
    RawEvents,
    Rows,
    Values,
    all_issues,
    parse_header,
    read_blocks,
)

_SCOPES = {"event": 0, "args": 1}
_REST_SCOPE = 2
_KINDS = {"ints": 0, "floats": 1, "nanos": 2, "ids": 3, "text": 4, "json": 5}
_DESCRIPTION = [
    (_REST_SCOPE if column.name == REST else _SCOPES[column.scope], column.key, _KINDS[column.kind])
    for column in COLUMNS
]

_NUMBER_OF = {name: number for number, name in enumerate(NAMES)}


def parse_events(
    stream: ByteStream,
    *,
    rest: bool = False,
    progress: Progress | None = None,
    core: Any = _kineto,
) -> RawEvents:
    """Return the events of a decompressed stream; the GIL is free while a block is parsed."""
    parser = core.Parser(_DESCRIPTION, rest)
    for block in read_blocks(stream, progress):
        parser.feed(block)
    parser.feed(b"", True)
    result = parser.result()
    header, header_issues = parse_header(result["header"])
    kept = [_build_issue(*issue) for issue in result["issues"]]
    sizes = {name: size for name, size in zip(NAMES, result["sizes"], strict=True) if size}
    return RawEvents(
        rows=result["rows"],
        header=header,
        issues=all_issues(kept, result["counts"], result["truncated"], stream) + header_issues,
        truncated=result["truncated"],
        events_seen=result["events_seen"],
        sizes=sizes,
        load=lambda name: _load_column(parser, name, result["rows"]),
        select=lambda name, rows, target: pa.array(
            _Lent(parser.select(_NUMBER_OF[name], np.ascontiguousarray(rows, np.int64), target))
        ),
    )


class _Lent:
    """A column as pyarrow takes it over: without a copy, alive as long as anyone holds it."""

    def __init__(self, capsules: tuple[Any, Any]) -> None:
        self.capsules = capsules

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[Any, Any]:
        return self.capsules


def _load_column(parser: Any, name: str, all_rows: int) -> tuple[Rows | None, Values]:
    number = _NUMBER_OF[name]
    values = pa.array(_Lent(parser.lend(number, False)))
    lent_rows = parser.lend(number, True)
    rows: Rows | None = None
    if lent_rows is not None:
        rows = pa.array(_Lent(lent_rows)).to_numpy()
    elif len(values) < all_rows:  # the first rows have it, the last ones not
        rows = np.arange(len(values), dtype=np.uint32)
    if not isinstance(values, pa.DictionaryArray):
        return rows, values.to_numpy()
    return rows, pa.DictionaryArray.from_arrays(values.indices, _copy_texts(values.dictionary))


def _copy_texts(texts: pa.StringArray) -> pa.StringArray:
    """Return texts that keep nothing else alive: what is lent keeps all columns of a file."""
    buffers = [None, *(pa.py_buffer(b.to_pybytes()) for b in texts.buffers()[1:])]
    return pa.Array.from_buffers(pa.string(), len(texts), buffers)


def _build_issue(offset: int, row: int, column: int, kind: str, text: bytes) -> Issue:
    message = text.decode("utf8", "replace")
    return Issue(kind, message if column < 0 else f"{NAMES[column]}: {message}", offset, row)
