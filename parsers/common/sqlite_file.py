"""Tables of an SQLite file that nobody vouches for, as Arrow columns.

The file is opened read-only and immutable. Only stored columns of ordinary tables are read, by
plain scans: an authorizer refuses everything else, so that views, triggers, virtual tables and
generated columns of the file run nothing. What is read is bounded by the size of the file.
"""

import re
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa

from htk.base.core.parser import Source
from htk.base.errors import MalformedTrace, TraceError
from htk.base.io.decompress import open_stream
from htk.base.schema import FLOAT64, INT64, STRING
from htk.parsers.common.log_records import Issues

MAGIC = b"SQLite format 3\0"
_CHUNK_ROWS = 4096
_MOST_TEXT = 64 * 1024  # characters of one value; the rest of a longer one is left out
_MOST_VALUE = 64 << 20  # bytes that SQLite itself loads of one value
_MOST_SPOOLED = 64 << 30
_LEAST_ROW_BYTES = 4  # a row takes a pointer, a size, a number and a header in its page
_ORDINARY = re.compile(r"\s*CREATE\s+TABLE\b", re.IGNORECASE)
_READS = (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ)

Progress = Callable[[int], None] | None


# sqlite3 decodes its own messages strictly, and they quote what is in the file.
_UNREADABLE = (sqlite3.Error, UnicodeDecodeError)


class Database:
    """The ordinary tables of an open file."""

    def __init__(
        self, name: str, connection: sqlite3.Connection, size: int, issues: Issues
    ) -> None:
        self.name = name
        self._connection = connection
        self._size = size
        self._issues = issues
        self.columns: Mapping[str, tuple[str, ...]] = self._stored_columns()
        self._was_read: set[str] = set()

    def __contains__(self, table: str) -> bool:
        return table in self.columns

    def read(self, table: str, wanted: Mapping[str, pa.DataType]) -> pa.Table:
        """Return the wanted columns of a table; what the file lacks is null, or no row at all.

        Types: int64, float64, string, binary. A value of another type is null and counted.
        """
        schema = pa.schema(list(wanted.items()))
        self._was_read.add(table)
        present = [name for name in wanted if name in self.columns.get(table, ())]
        if not present:
            return schema.empty_table()
        terms = ", ".join(_spell_term(name, wanted[name]) for name in present)
        chunks = [
            self._build_chunk(table, rows, present, schema)
            for rows in self._read_rows(
                table, f'SELECT {terms} FROM "{_quote_name(table)}" NOT INDEXED'
            )
        ]
        return pa.concat_tables(chunks) if chunks else schema.empty_table()

    def count_unread(self, *columns: str) -> dict[str, int]:
        """Return the rows of each table that was not read and has one of these columns."""
        unread = self.columns.keys() - self._was_read
        timed = sorted(name for name in unread if not {*columns}.isdisjoint(self.columns[name]))
        return {name: count for name in timed if (count := self._last_row(name))}

    def _last_row(self, table: str) -> int:
        """Return the number of a table's last row: their count where none was taken out."""
        query = f'SELECT rowid FROM "{_quote_name(table)}" NOT INDEXED ORDER BY rowid DESC LIMIT 1'
        try:
            row = self._connection.execute(query).fetchone()
        except _UNREADABLE:
            return 0
        return row[0] if row and isinstance(row[0], int) else 0

    def _read_rows(self, table: str, query: str) -> Iterator[list[tuple[Any, ...]]]:
        """Rows in pieces; a damaged page ends the table."""
        seen = 0
        try:
            cursor = self._connection.execute(query)
        except _UNREADABLE as error:
            self._note_damage(table, error)
            return
        more = True
        while more:
            rows: list[tuple[Any, ...]] = []
            try:
                rows.extend(islice(cursor, _CHUNK_ROWS))
                more = len(rows) == _CHUNK_ROWS
            except _UNREADABLE as error:
                self._note_damage(table, error)
                more = False
            seen += len(rows)
            if seen * _LEAST_ROW_BYTES > self._size:
                raise MalformedTrace(
                    f"{self.name}: table {table} has more rows than the file can hold"
                )
            if rows:
                yield rows

    def _build_chunk(
        self, table: str, rows: list[tuple[Any, ...]], present: list[str], schema: pa.Schema
    ) -> pa.Table:
        values = dict(zip(present, zip(*rows, strict=True), strict=True))
        columns = [
            self._build_column(table, field, values[field.name])
            if field.name in values
            else pa.nulls(len(rows), field.type)
            for field in schema
        ]
        return pa.table(columns, schema=schema)

    def _build_column(self, table: str, field: pa.Field, values: tuple[Any, ...]) -> pa.Array:
        """Return a column; SQLite lets any row hold any type, so what does not fit is null."""
        raw = pa.binary() if field.type == STRING else field.type
        try:
            column = pa.array(values, raw)
        except (pa.ArrowException, TypeError, OverflowError):
            kinds = {INT64: (int,), FLOAT64: (int, float)}.get(raw, (bytes,))
            fitting = [v if isinstance(v, kinds) else None for v in values]
            lost = sum(v is not None for v in values) - sum(v is not None for v in fitting)
            self._issues.add("mistyped_value", f"{table}.{field.name}", count=lost)
            column = pa.array(fitting, raw)
        return _decode_column(column) if field.type == STRING else column

    def _note_damage(self, table: str, error: Exception) -> None:
        self._issues.add("damaged_table", f"{table}: {error}; rows from there on are left out")

    def _stored_columns(self) -> dict[str, tuple[str, ...]]:
        try:
            named = self._connection.execute(
                "SELECT name, sql FROM sqlite_master WHERE type = 'table'"
            ).fetchall()
            return {
                _decode_text(name): self._columns_of(_decode_text(name))
                for name, sql in named
                if name and sql and _ORDINARY.match(_decode_text(sql))
            }
        except _UNREADABLE as error:
            raise MalformedTrace(f"{self.name}: not a readable SQLite file ({error})") from error

    def _columns_of(self, table: str) -> tuple[str, ...]:
        """Its columns, without generated and hidden ones."""
        rows = self._connection.execute(f'PRAGMA table_xinfo("{_quote_name(table)}")')
        return tuple(_decode_text(row[1]) for row in rows if row[6] == 0)


@contextmanager
def open_database(source: Source, issues: Issues, progress: Progress = None) -> Iterator[Database]:
    """The tables of a source; what is packed or lies elsewhere is unpacked into a file first."""
    with _local_file(source, progress) as path:
        size = path.stat().st_size
        try:
            connection = sqlite3.connect(f"{path.as_uri()}?mode=ro&immutable=1", uri=True)
        except _UNREADABLE as error:
            raise TraceError(f"{source.name}: {error}") from error
        with closing(connection):
            _harden_connection(connection)
            yield Database(source.name, connection, size, issues)
        if progress is not None:
            progress(source.size or size)


@contextmanager
def _local_file(source: Source, progress: Progress) -> Iterator[Path]:
    if source.path is not None and _is_plain(source):
        yield source.path
        return
    with tempfile.TemporaryDirectory(prefix="htk-") as folder:
        path = Path(folder) / "unpacked.sqlite"
        try:
            with path.open("wb") as kept:
                _unpack_source(source, kept.write, progress)
        except OSError as error:
            free = shutil.disk_usage(folder).free
            raise TraceError(
                f"{source.name}: cannot be unpacked to {folder} ({free:,} bytes free): "
                f"{error.strerror}"
            ) from error
        yield path


def _is_plain(source: Source) -> bool:
    with source.open() as file:
        return file.read(len(MAGIC)) == MAGIC


def _unpack_source(source: Source, write: Callable[[bytes], int], progress: Progress) -> None:
    with source.open() as file, open_stream(file) as stream:
        while block := stream.read(1 << 20):
            write(block)
            if progress is not None:
                progress(stream.compressed_offset)
            if stream.offset > _MOST_SPOOLED:
                raise TraceError(f"{source.name}: unpacks to more than {_MOST_SPOOLED:,} bytes")


def _harden_connection(connection: sqlite3.Connection) -> None:
    """Nothing in the file may run, and nothing may be written."""
    connection.text_factory = bytes
    for pragma in ("query_only = ON", "trusted_schema = OFF", "cell_size_check = ON"):
        connection.execute(f"PRAGMA {pragma}")
    for limit, value in (
        (sqlite3.SQLITE_LIMIT_LENGTH, _MOST_VALUE),
        (sqlite3.SQLITE_LIMIT_SQL_LENGTH, 1 << 20),
        (sqlite3.SQLITE_LIMIT_ATTACHED, 0),
        (sqlite3.SQLITE_LIMIT_TRIGGER_DEPTH, 0),
        (sqlite3.SQLITE_LIMIT_VDBE_OP, 100_000),
    ):
        connection.setlimit(limit, value)
    connection.set_authorizer(_authorize_action)


def _authorize_action(
    action: int, first: str | None, second: str | None, database: str | None, view: str | None
) -> int:
    """Plain reads alone: no view or trigger, no function but those of our own queries."""
    allowed = (
        (action in _READS and view is None)
        or (action == sqlite3.SQLITE_FUNCTION and second in ("substr", "length"))
        or (action == sqlite3.SQLITE_PRAGMA and first == "table_xinfo")
    )
    return sqlite3.SQLITE_OK if allowed else sqlite3.SQLITE_DENY


def _spell_term(name: str, kind: pa.DataType) -> str:
    column = f'"{_quote_name(name)}"'
    if kind == STRING:
        return f"substr({column}, 1, {_MOST_TEXT})"
    if kind == pa.binary():
        return f"CASE WHEN length({column}) <= {_MOST_TEXT} THEN {column} END"
    return column


def _quote_name(name: str) -> str:
    return name.replace('"', '""')


def _decode_text(value: bytes) -> str:
    return value.decode("utf8", "replace")


def _decode_column(column: pa.Array) -> pa.Array:
    """Bytes as texts; each distinct one is decoded once, and what is no UTF-8 is replaced."""
    encoded = column.dictionary_encode()
    decoded = [_decode_text(value) for value in encoded.dictionary.to_pylist()]
    return pa.array(decoded, STRING).take(encoded.indices)
