"""The output of ingest: one file's events as sparse columns, its metadata, and what was lost."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from htk.base.mappings import Fields
from htk.base.schema import FLOAT64, INT32, INT64, STRING
from htk.parsers.kineto.columns import COLUMNS

BLOCK = 256 * 1024  # decompressed and parsed while still in the cache
KEPT_ISSUES = 1000  # one by one; the others are counted

Rows = NDArray[np.uint32]
Values: TypeAlias = "NDArray[np.int64] | NDArray[np.float64] | pa.DictionaryArray"
Progress = Callable[[int], None]
# A column's values in ascending rows of the file, as l, i, g or u (compact) of Arrow, or as c:
# codes, -1 for none.
Select = Callable[[str, NDArray[np.int64], str], pa.Array]

_TYPES = {"ints": INT64, "floats": FLOAT64, "nanos": INT64, "ids": INT64}
TYPES: dict[str, pa.DataType] = {
    column.name: _TYPES.get(column.kind, pa.dictionary(INT32, STRING)) for column in COLUMNS
}


class ByteStream(Protocol):
    """Bytes, decompressed. It may also have what `decompress` adds: read1, damage and so on."""

    def readinto(self, buffer: memoryview, /) -> int | None: ...


@dataclass(frozen=True)
class Issue:
    """Something that could not be read, and was left out."""

    kind: str
    text: str
    offset: int | None = None  # in the decompressed file, where known
    row: int | None = None
    count: int = 1  # more than one: the others of its kind, not told apart


@dataclass(frozen=True)
class RawEvents:
    """The events of one file, in file order; a column holds only the rows that have it."""

    rows: int
    header: Fields  # the outer object without its events
    issues: list[Issue]  # what many share is one issue with its count
    truncated: bool
    events_seen: bool  # the file has a list of events, were it an empty one
    sizes: dict[str, int]  # values by column; only columns that have any
    load: Callable[[str], tuple[Rows | None, Values]] = field(repr=False)  # rows and values
    select: Select | None = field(default=None, repr=False)  # where the engine can do it itself
    _loaded: dict[str, tuple[Rows | None, Values]] = field(default_factory=dict, repr=False)
    _texts: dict[str, list[str]] = field(default_factory=dict, repr=False)

    @cached_property
    def issue_counts(self) -> Counter[str]:
        """The number of issues of each kind."""
        counts: Counter[str] = Counter()
        for issue in self.issues:
            counts[issue.kind] += issue.count
        return counts

    @cached_property
    def names(self) -> list[str]:
        """The columns that have values."""
        return [column.name for column in COLUMNS if column.name in self.sizes]

    def has(self, name: str) -> bool:
        """Return whether any event has a value in this column."""
        return name in self.sizes

    def column_rows(self, name: str) -> Rows | None:
        """Return the rows that have a value, ascending; None where every row has."""
        return self._find_column(name)[0]

    def values(self, name: str) -> Values:
        """Return the recorded values, in row order: NumPy numbers, or an Arrow dictionary of text.

        The codes of a dictionary, `values(name).indices.to_numpy()`, are a view, not a copy.
        """
        return self._find_column(name)[1]

    def texts(self, name: str) -> list[str]:
        """Return the distinct texts of a column, by their codes."""
        if name not in self._texts:
            values = self.values(name)
            assert isinstance(values, pa.DictionaryArray)
            self._texts[name] = values.dictionary.to_pylist()
        return self._texts[name]

    def dense(self, name: str) -> pa.Array:
        """Return one value, or null, for every row."""
        if not self.has(name):
            return pa.nulls(self.rows, TYPES[name])
        rows, values = self._find_column(name)
        if not isinstance(values, pa.DictionaryArray):
            return _fill_dense(values, rows, self.rows, TYPES[name])
        codes = _fill_dense(values.indices.to_numpy(), rows, self.rows, INT32)
        return pa.DictionaryArray.from_arrays(codes, values.dictionary)

    def _find_column(self, name: str) -> tuple[Rows | None, Values]:
        if name not in TYPES:
            raise KeyError(f"no event column is called {name!r}")
        if not self.has(name):
            return np.zeros(0, np.uint32) if self.rows else None, _no_values(TYPES[name])
        if name not in self._loaded:
            self._loaded[name] = self.load(name)
        return self._loaded[name]


def read_blocks(stream: ByteStream, progress: Progress | None) -> Iterable[bytes | memoryview]:
    """Yield the stream's bytes: as it has them, or else through one buffer used again and again."""
    if hasattr(stream, "read1"):
        pieces: Iterable[bytes | memoryview] = iter(lambda: stream.read1(BLOCK), b"")
    else:
        pieces = _fill_buffers(stream)
    done = 0
    for block in pieces:
        yield block
        done += len(block)
        if progress is not None:
            progress(getattr(stream, "compressed_offset", done))


def _fill_buffers(stream: ByteStream) -> Iterable[memoryview]:
    buffer = memoryview(bytearray(BLOCK))
    while size := stream.readinto(buffer):
        yield buffer[:size]


def all_issues(
    kept: list[Issue], counts: Mapping[str, int], truncated: bool, stream: ByteStream
) -> list[Issue]:
    """Return the issues kept, the many like them as one, and the damage of the file as a whole."""
    listed = Counter(issue.kind for issue in kept)
    issues = list(kept)
    for kind, count in counts.items():
        if more := count - listed[kind]:
            issues.append(Issue(kind, "and more of this kind", count=more))
    if truncated:
        issues.append(Issue("truncated", "the file ends before its last event or bracket"))
    damage: str | None = getattr(stream, "damage", None)
    if damage is not None:
        issues.append(Issue(getattr(stream, "damage_kind", "compression_damage"), damage))
    return issues


def parse_header(entries: Iterable[tuple[int, bytes, bytes]]) -> tuple[Fields, list[Issue]]:
    """Return the members of the outer object, the last of a repeated key, and issues.

    `entries`: offset, key and value of each.
    """
    header: Fields = {}
    issues: list[Issue] = []
    for offset, key, value in entries:
        name = _decode_json(key)
        if name is _NOT_JSON:
            name = key.decode("utf8", "replace").strip('"')
        text = value.decode("utf8", "replace")
        if name == "traceEvents" and text[:1] == "[":
            issues.append(Issue("broken_header", "a second traceEvents list, read as well", offset))
            continue
        decoded = _decode_json(value)
        if decoded is not _NOT_JSON:
            header[name] = decoded
        else:
            header[name] = text
            issues.append(Issue("broken_header", f"{name}: not JSON: {text[:80]}", offset))
    return header, issues


_NOT_JSON = object()


def _decode_json(text: bytes) -> Any:
    """Return what a text of JSON says; _NOT_JSON: it is none."""
    try:
        return json.loads(text.decode("utf8", "replace"), strict=False)
    except (ValueError, RecursionError):
        return _NOT_JSON


def _fill_dense(
    values: NDArray[Any], rows: Rows | None, length: int, kind: pa.DataType
) -> pa.Array:
    if rows is None:
        return pa.Array.from_buffers(kind, length, [None, pa.py_buffer(values)])
    full = np.zeros(length, values.dtype)
    full[rows] = values
    valid = np.zeros(length, bool)
    valid[rows] = True
    bits = np.packbits(valid, bitorder="little")
    buffers = [pa.py_buffer(bits), pa.py_buffer(full)]
    return pa.Array.from_buffers(kind, length, buffers, length - len(rows))


def _no_values(kind: pa.DataType) -> Values:
    empty = pa.nulls(0, kind)
    return empty if pa.types.is_dictionary(kind) else empty.to_numpy()
