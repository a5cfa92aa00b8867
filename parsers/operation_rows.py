"""Operation-level rows of a training job: one row for each forward, backward, send, … of a worker.

Light enough to be logged always: by `htk.capture(operations=True)`, by hooks on Megatron's timers,
by NDTimeline and the like. Parquet, CSV with a header, or JSON lines; columns are told by their
names (rank, dp_rank, stage, chunk, micro_batch, step, type, start, duration). One file may hold
the whole job or one rank.
"""

import io
import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from htk.base.core.parser import Head, Parsed, ParseOptions, Source
from htk.base.errors import MalformedTrace, UnknownFormat
from htk.base.mappings import Facts, Fields
from htk.parsers.common.log_lines import read_lines
from htk.parsers.common.log_records import Issues, read_whole
from htk.parsers.common.operation_columns import (
    REQUIRED,
    are_rows,
    operations_table,
    select_read_columns,
    unit_of_start,
)

NAME = "operation_rows"

_PARQUET = b"PAR1"
_ROWS_AT_ONCE = 1 << 20  # of a Parquet file
_ROWS_PER_BYTE = 8  # of a Parquet file: more is no log but a bomb


def sniff(head: Head) -> bool:
    if head.data.startswith(_PARQUET):
        return True
    line, _, _ = head.data.partition(b"\n")
    text = line.decode("utf8", "replace").strip().lstrip("\ufeff")
    if text.startswith("{"):
        return are_rows(list(_parse_object(text) or {}))
    return text.count(",") > 3 and are_rows([name.strip('" ') for name in text.split(",")])


def parse(source: Source, options: ParseOptions) -> Parsed:
    issues = Issues()
    parts = _parquet_in_place(source)
    if parts is None:
        data = read_whole(source, issues, options.progress)
        if data.startswith(_PARQUET):
            parts = _read_parquet(source.name, pa.BufferReader(data), len(data))
        else:
            text = _valid_text(data)
            parts = iter(
                [(_json_lines if text.startswith(b"{") else _read_csv)(source.name, text, issues)]
            )
    table = _join_parts(source.name, parts, issues, options.time_unit)
    if not table.num_rows:
        raise MalformedTrace(f"{source.name}: no complete operation-level row")
    facts: dict[str, object] = {"events": table.num_rows}
    return Parsed({"job_operations": table, "parse_issues": issues.table()}, facts=facts)


def _join_parts(
    name: str, parts: Iterator[Facts], issues: Issues, time_unit: str | None
) -> pa.Table:
    """Return the rows of all parts; what is made of one goes before the next is read. A unit that
    the numbers of the first tell holds for all."""
    tables: list[pa.Table] = []
    for columns in parts:
        if not are_rows(list(columns)):
            raise MalformedTrace(f"{name}: holds no operation-level rows: {REQUIRED}")
        if not tables:
            time_unit = unit_of_start(name, columns, time_unit)
        tables.append(operations_table(name, columns, issues, time_unit))
    if not tables:
        raise MalformedTrace(f"{name}: no complete operation-level row")
    return pa.concat_tables(tables).unify_dictionaries() if len(tables) > 1 else tables[0]


def _parquet_in_place(source: Source) -> Iterator[Facts] | None:
    """Only the columns that are needed, where the file can be read at any place; else None."""
    file = source.open()
    if not file.seekable() or file.read(len(_PARQUET)) != _PARQUET:
        file.close()
        return None
    size = file.seek(0, 2)
    file.seek(0)
    return _yield_then_close(file, _read_parquet(source.name, pa.PythonFile(file, mode="r"), size))


def _yield_then_close(file: Any, parts: Iterator[Facts]) -> Iterator[Facts]:
    with file:
        yield from parts


def _read_parquet(name: str, file: pa.NativeFile, size: int) -> Iterator[Facts]:
    """Yield the columns that are needed, some rows at a time."""
    from pyarrow import parquet

    try:
        opened = parquet.ParquetFile(file)
        columns = select_read_columns(opened.schema_arrow.names)
        if not are_rows(columns):
            raise UnknownFormat(f"{name}: a Parquet file without operation-level rows: {REQUIRED}")
        if opened.metadata.num_rows > _ROWS_PER_BYTE * size:
            raise MalformedTrace(
                f"{name}: claims {opened.metadata.num_rows:,} rows in {size:,} bytes, more "
                "than so many bytes can hold; is the file damaged?"
            )
        for batch in opened.iter_batches(_ROWS_AT_ONCE, columns=columns):
            table = pa.Table.from_batches([batch])
            yield dict(zip(table.column_names, table.columns, strict=True))
    except (pa.ArrowException, OSError) as error:
        raise MalformedTrace(
            f"{name}: truncated or damaged Parquet file ({_shorten_error(error)})"
        ) from None


def _valid_text(data: bytes) -> bytes:
    """The bytes from the first line on, as UTF-8 whatever they are: names are asked of them."""
    try:
        data.decode("utf8")
    except UnicodeDecodeError:
        data = data.decode("utf8", "replace").encode()
    return data.lstrip(b"\xef\xbb\xbf \r\n\t")


def _read_csv(name: str, data: bytes, issues: Issues) -> Facts:
    from pyarrow import csv

    def skip_bad_row(row: csv.InvalidRow) -> str:
        issues.add("broken_row", f"{row.actual_columns} values for {row.expected_columns} columns")
        return "skip"

    try:
        table = csv.read_csv(
            pa.BufferReader(data), parse_options=csv.ParseOptions(invalid_row_handler=skip_bad_row)
        )
    except pa.ArrowException as error:
        raise MalformedTrace(f"{name}: broken CSV ({_shorten_error(error)})") from None
    table = table.rename_columns([column.strip() for column in table.column_names])
    return {c: table[c] for c in select_read_columns(table.column_names)}


def _json_lines(name: str, data: bytes, issues: Issues) -> Facts:
    from pyarrow import json as arrow_json

    try:
        table = arrow_json.read_json(pa.BufferReader(data))
    except pa.ArrowException:  # a cut line, or values of several types: line by line
        rows = list(_whole_lines(data, issues))
        names = select_read_columns(list(dict.fromkeys(name for row in rows for name in row)))
        return {name: _build_column([row.get(name) for row in rows]) for name in names}
    return {c: table[c] for c in select_read_columns(table.column_names)}


def _build_column(values: list[Any]) -> pa.Array:
    """Return the values of one type; texts, where they are of several."""
    try:
        return pa.array(values)
    except (pa.ArrowException, OverflowError):
        return pa.array([None if value is None else str(value) for value in values], pa.string())


def _whole_lines(data: bytes, issues: Issues) -> Iterator[Fields]:
    for line in read_lines(Source(NAME, lambda: io.BytesIO(data)), issues):
        row = _parse_object(line.text)
        if row is not None:
            yield {k: v for k, v in row.items() if isinstance(v, str | int | float)}
        elif line.text.strip():
            issues.add("broken_row", "a line that is not a JSON object", line.offset)


def _parse_object(text: str) -> Fields | None:
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return parsed if isinstance(parsed, dict) else None


def _shorten_error(error: Exception) -> str:
    return str(error).partition("\n")[0][:200]
