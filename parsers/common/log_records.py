"""Common parts of parsers of logs and record files: text in, rows out, losses counted."""

import json
import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from htk.base.columns.arrow import build_texts, drop_fields
from htk.base.core.parser import Source
from htk.base.errors import MalformedTrace
from htk.base.io.decompress import Stream, open_stream
from htk.base.mappings import Facts, Fields
from htk.base.schema import PARSE_ISSUES, TABLES, TEXT

_BLOCK = 1 << 20
_MOST_WHOLE = 2 << 30  # of a file that must be held whole
_MOST_OBJECT_BYTES = 2 << 30
_JSON_COSTS = {b"{": 64, b"[": 56, b",": 40, b'"': 25}  # about what Python takes for each
_LATEST_ROWS = 1 << 15
_KEPT_ISSUES = 1000  # one by one; the others are counted


class Issues:
    """The losses of one file, for the table `parse_issues`, and which of them are kept."""

    def __init__(self, keep_overruns: bool = False) -> None:
        self.keep_overruns = keep_overruns
        self._rows: list[tuple[str, int | None, str, int]] = []
        self._more: Counter[str] = Counter()

    def add(self, kind: str, text: str, offset: int | None = None, count: int = 1) -> None:
        if len(self._rows) < _KEPT_ISSUES:
            self._rows.append((kind, offset, text[:300], count))
        else:
            self._more[kind] += count

    def has(self, kind: str) -> bool:
        return any(row[0] == kind for row in self._rows)

    def table(self) -> pa.Table:
        more = [(kind, None, "and more of this kind", n) for kind, n in self._more.items()]
        rows = [
            {"kind": kind, "offset": offset, "text": text, "count": count}
            for kind, offset, text, count in [*self._rows, *more]
        ]
        schema = drop_fields(PARSE_ISSUES, "rank", "cycle", "file")
        return pa.Table.from_pylist(rows, schema=schema)


def table_of(name: str, rows: Sequence[Facts], *, of_one_rank: bool) -> pa.Table:
    """Return rows as a table of the vocabulary; `of_one_rank`: all of the file's, so no `rank`.

    The file is known to whoever opened it.
    """
    left_out = ("rank", "cycle", "file") if of_one_rank else ("cycle", "file")
    schema = drop_fields(TABLES[name], *left_out)
    try:
        return _build_table(rows, schema)
    except (pa.ArrowException, OverflowError):  # damage: some value is none of its column
        return _build_table([_select_fitting(row, schema) for row in rows], schema)


class RowBuffer:
    """Rows of a large table: older ones are kept as columns, which take less memory.

    A row can be changed until some ten thousand have followed it.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._columns: list[pa.Table] = []
        self._rows: list[Fields] = []

    def append(self, row: Fields) -> None:
        self._rows.append(row)
        if len(self._rows) >= 2 * _LATEST_ROWS:
            self._columns.append(self._build_table(self._rows[:_LATEST_ROWS]))
            del self._rows[:_LATEST_ROWS]

    def _build_table(self, rows: list[Fields]) -> pa.Table:
        return table_of(self._name, rows, of_one_rank=False)

    def table(self) -> pa.Table:
        return pa.concat_tables([*self._columns, self._build_table(self._rows)])


def _build_table(rows: Sequence[Facts], schema: pa.Schema) -> pa.Table:
    columns = []
    for field in schema:
        values = [row.get(field.name) for row in rows]
        columns.append(build_texts(values) if field.type == TEXT else pa.array(values, field.type))
    return pa.table(columns, schema=schema)


def _select_fitting(row: Facts, schema: pa.Schema) -> Fields:
    """Return the values of a row that their columns can hold."""
    return {
        f.name: row[f.name] for f in schema if f.name in row and _is_fitting(row[f.name], f.type)
    }


def _is_fitting(value: Any, kind: pa.DataType) -> bool:
    try:
        pa.array([value], kind)
    except (pa.ArrowException, OverflowError):
        return False
    return True


def read_whole(
    source: Source,
    issues: Issues,
    progress: Callable[[int], None] | None = None,
    most: int = _MOST_WHOLE,
) -> bytes:
    """Return a file's decompressed bytes, `most` at most; damage is an issue."""
    parts: list[bytes] = []
    size = 0
    with source.open() as file, open_stream(file) as stream:
        while part := stream.read(_BLOCK):
            parts.append(part)
            size += len(part)
            report_progress(progress, stream)
            if size > most:
                raise MalformedTrace(
                    f"{source.name}: unpacks to more than {most:,} bytes, more than "
                    "any file of this kind holds"
                )
        note_damage(stream, issues)
    return b"".join(parts)


def read_json(
    source: Source,
    issues: Issues,
    progress: Callable[[int], None] | None = None,
    most: int = _MOST_WHOLE,
) -> bytes:
    """Return a JSON file's decompressed bytes. Refuse one that would fill the memory once read."""
    data = read_whole(source, issues, progress, most)
    refuse_costly_json(source.name, data)
    return data


def refuse_costly_json(name: str, data: bytes) -> None:
    """Refuse a file whose values take more memory than those of any honest one."""
    object_bytes = sum(size * data.count(mark) for mark, size in _JSON_COSTS.items())
    if object_bytes > _MOST_OBJECT_BYTES:
        raise MalformedTrace(
            f"{name}: its values would take about {object_bytes >> 20:,} MiB of memory; the limit "
            f"for a file of this kind is {_MOST_OBJECT_BYTES >> 20:,} MiB"
        )


def salvaged_json(text: str, listed: str, others: Sequence[str]) -> Fields:
    """Return the complete objects of one list in truncated JSON (a member, or the whole document),
    and other members."""
    decoder = json.JSONDecoder(strict=False)
    salvaged: Fields = {listed: []}
    for key in others:
        match = re.search(rf'"{key}"\s*:\s*', text)
        value, _ = _next_value(decoder, text, match.end()) if match else (None, -1)
        if value is not None:
            salvaged[key] = value
    start = re.search(rf'"{listed}"\s*:\s*\[', text) or re.match(r"\s*\[", text)
    offset = start.end() if start else len(text)
    while (opening := text.find("{", offset)) >= 0:
        value, offset = _next_value(decoder, text, opening)
        if offset <= opening:
            break
        salvaged[listed].append(value)
    return salvaged


def _next_value(decoder: json.JSONDecoder, text: str, offset: int) -> tuple[Any, int]:
    try:
        return decoder.raw_decode(text, offset)
    except (ValueError, RecursionError):
        return None, -1


def report_progress(progress: Callable[[int], None] | None, stream: Stream) -> None:
    """Say how many stored bytes were read."""
    if progress is not None:
        progress(stream.compressed_offset)


def note_damage(stream: Stream, issues: Issues) -> None:
    """Count what the decompressor could not read."""
    if stream.damage:
        issues.add(stream.damage_kind, stream.damage)


def whole_number(value: object) -> int | None:
    """Return a whole number, also one written as text; None for anything else."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value if -(2**63) <= value < 2**63 else None
    if isinstance(value, str):
        bare = value.strip()
        digits = bare.removeprefix("-")
        if digits.isascii() and digits.isdigit() and len(digits) < 20:
            return whole_number(int(bare))
    return None


def list_of(value: object) -> list[Any]:
    """Return a list as it is; an empty one for anything else."""
    return value if isinstance(value, list) else []


def compact_json(value: object) -> str:
    """Return JSON as the vocabulary holds it: without spaces."""
    return _COMPACT.encode(value)


_COMPACT = json.JSONEncoder(separators=(",", ":"))  # json.dumps would make one for each call


def text_or_none(value: object) -> str | None:
    """Return a text that is not empty; None for anything else."""
    return value if isinstance(value, str) and value else None
