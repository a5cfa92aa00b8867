"""A result on its way out: a table for people, or json, csv, md, parquet, arrow for machines."""

import io
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from htk.errors import UsageError
from htk.result import Result
from htk.schema import ABSOLUTE_TIMES, doc_of
from htk.schema.columns import unit_of
from htk.units import for_people, shortened, time

FORMATS = ("table", "json", "csv", "md", "parquet", "arrow")
_BINARY = ("parquet", "arrow")
_QUIET = ("rank", "cycle", "device", "step")  # left out of a table when they tell nothing apart
_TEXT_WIDTH = 60
_ENDLESS = 100_000  # into a file or pipe nothing is cut
# Sentences, which are given whole; names of kernels and operators are shortened.
PROSE = {"finding", "advice", "text", "reason", "evidence", "verdict", "assumption", "question"}


def write(result: Result, form: str, output: str | None, *, limit: int = 200) -> None:
    """Send a result where it was asked to go."""
    if form in _BINARY:
        _write_binary(result, form, output)
        return
    text = to_text(result, form, limit=limit)
    if output is not None:
        Path(output).write_text(text, encoding="utf-8")
    elif form == "table":
        print_table(result, limit=limit)
    else:
        sys.stdout.write(text)


def to_text(result: Result, form: str, *, limit: int = 200) -> str:
    """The result as text of that form."""
    if form == "json":
        return json.dumps(result.to_json(), ensure_ascii=False, allow_nan=False) + "\n"
    if form == "csv":
        return _csv(result)
    if form == "md":
        return _markdown(result, limit)
    target = io.StringIO()
    print_table(result, limit=limit, file=target)
    return target.getvalue()


def print_table(result: Result, *, limit: int = 200, file: IO[str] | None = None) -> None:
    """A table for people: units that read well, and no wider than the terminal."""
    from rich.console import Console
    from rich.table import Table

    target = file or sys.stdout
    wide = not (hasattr(target, "isatty") and target.isatty())
    console = Console(
        file=target,
        highlight=False,
        width=_ENDLESS if wide else None,
        force_jupyter=False,
        # colours are for terminals, whatever a notebook's environment forces
        color_system=None if wide else "auto",
        force_terminal=False if wide else None,
    )
    columns = text_columns(result, limit)
    shown = columns if wide else _fitting(columns, console.width)
    table = Table(header_style="bold", box=None, pad_edge=False)
    for column in shown:
        table.add_column(
            column.heading, justify="left" if column.is_text else "right", no_wrap=True
        )
    for row in zip(*(column.cells for column in shown), strict=True):  # rows for people to read
        table.add_row(*map(_escape, row))
    console.print(table)
    for line in left_out(result, limit, columns[len(shown) :]) + coverage_lines(result.coverage):
        console.print(line, style="dim", markup=False, soft_wrap=True)


@dataclass(frozen=True)
class Column:
    heading: str
    cells: list[str]
    is_text: bool
    values: list[Any]  # what the cells show, to sort by
    doc: str = ""

    @property
    def width(self) -> int:
        return max(map(len, [self.heading, *self.cells]))


def text_columns(result: Result, limit: int) -> list[Column]:
    """Columns as people read them; a time and its share stand in one cell."""
    names = _shown_columns(result)
    rows = result.table.slice(0, limit).to_pylist()
    columns = []
    for name in names:
        stem = name.removesuffix("_pct")
        if name.endswith("_pct") and f"{stem}_ns" in names:
            continue
        share = name.removesuffix("_ns") + "_pct"
        both = name.endswith("_ns") and share in names
        origin = _origin(result, name)
        cells = [
            _cell(_since(row[name], origin), name) + (f" {_share(row[share]):>5}" if both else "")
            for row in rows
        ]
        heading = _heading(name) + (" %" if both else "")
        values = [row[name] for row in rows]
        doc = doc_of(result.table.schema.field(name))
        columns.append(Column(heading, cells, _is_text(result, name), values, doc))
    return columns


def _origin(result: Result, name: str) -> int:
    """What times of a column are told from: absolute ones from the start of the trace."""
    return int(result.coverage.get("origin_ns") or 0) if name in ABSOLUTE_TIMES else 0


def _since(value: Any, origin: int) -> Any:
    return value - origin if origin and value is not None else value


def _share(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f}"


def _fitting(columns: list[Column], width: int) -> list[Column]:
    """As many columns from the left as the terminal holds, but two at least."""
    used = 0
    for k, column in enumerate(columns):
        used += column.width + 2
        if used > width + 2 and k > 1:
            return columns[:k]
    return columns


def left_out(result: Result, limit: int, columns: list[Column]) -> list[str]:
    lines = [] if result.table.num_rows else ["nothing found"]
    if result.table.num_rows > limit:
        more = result.table.num_rows - limit
        lines.append(f"… {more:,} more rows (--limit, or --format csv or json for all)")
    if columns:
        names = ", ".join(c.heading for c in columns)
        lines.append(f"… more columns in a wider terminal: {names}")
    return lines


def coverage_lines(coverage: Mapping[str, Any]) -> list[str]:
    """What the numbers rest on, in a line or two."""
    parts = []
    ranks, missing = coverage.get("ranks") or [], coverage.get("missing_ranks") or []
    if ranks:
        world = coverage.get("world_size")
        of = f" of {world}" if world else ""
        parts.append(f"{len(ranks)}{of} rank{'s' if (world or len(ranks)) > 1 else ''}")
    if missing:
        parts.append(f"missing ranks {_few(missing)}")
    if coverage.get("gpu_activities"):
        parts.append(f"{coverage['gpu_activities']:,} GPU activities")
        parts.append(f"{coverage['gpu_activities_linked_pct']:g} % of GPU time linked to launches")
    if coverage.get("carry_in_activities"):
        carried = time(coverage["carry_in_ns"])
        parts.append(f"{coverage['carry_in_activities']:,} carried in ({carried})")
    if coverage.get("unlinked_activities"):
        parts.append(f"{coverage['unlinked_activities']:,} unlinked")
    if coverage.get("dropped"):
        parts.append(f"{coverage['dropped']:,} parse issues (htk doctor shows them)")
    for name in ("files_failed", "files_unread"):
        if coverage.get(name):
            parts.append(f"{coverage[name]} {name.replace('_', ' ')}")
    lines = ["coverage: " + ", ".join(parts)] if parts else []
    known = _GENERIC
    own = {k: v for k, v in coverage.items() if k not in known and v not in (None, "", [], {})}
    if own:
        lines.append("          " + ", ".join(f"{k}: {_own(k, v)}" for k, v in own.items()))
    return lines


_GENERIC = {
    "ranks",
    "world_size",
    "missing_ranks",
    "events",
    "dropped",
    "issues",
    "files_unread",
    "files_failed",
    "gpu_activities",
    "gpu_activities_linked_pct",
    "carry_in_activities",
    "carry_in_ns",
    "unlinked_activities",
    "unlinked_ns",
    "origin_ns",
}


def _own(name: str, value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{k} {_own(k, v)}" for k, v in value.items())
    if isinstance(value, list):
        return _few(value)
    return for_people(value, unit_of(name))


def _few(values: list[Any]) -> str:
    text = ", ".join(map(str, values[:8]))
    return text + (f", … ({len(values)})" if len(values) > 8 else "")


def _shown_columns(result: Result) -> list[str]:
    """All columns but those that hold nothing, or the same rank, cycle, device or step."""
    names = []
    for name in result.table.column_names:
        column = result.table[name]
        if result.table.num_rows and column.null_count == len(column):
            continue
        if name == "complete" and False not in column.unique().to_pylist():
            continue
        if name in _QUIET and result.table.num_rows > 1 and len(column.unique()) == 1:
            continue
        names.append(name)
    return names


def _is_text(result: Result, name: str) -> bool:
    return str(result.table.schema.field(name).type).startswith(("string", "dictionary"))


def _heading(name: str) -> str:
    for suffix in ("_ns", "_bytes", "_pct", "_gbps"):
        if name.endswith(suffix):
            name = name.removesuffix(suffix) + (" %" if suffix == "_pct" else "")
    return name.replace("_", " ")


def _cell(value: object, name: str) -> str:
    if isinstance(value, str):
        return value if name in PROSE else shortened(value, _TEXT_WIDTH)
    text = for_people(value, unit_of(name))
    return text.removesuffix(" %") if name.endswith("_pct") else text


def _escape(text: str) -> str:
    return text.replace("[", "\\[")


def _csv(result: Result) -> str:
    import pyarrow as pa
    from pyarrow import csv

    from htk.dataset import plain

    target = pa.BufferOutputStream()
    csv.write_csv(plain(result.table), target)
    return str(target.getvalue().to_pybytes().decode())


def _markdown(result: Result, limit: int) -> str:
    columns = text_columns(result, limit)
    lines = ["| " + " | ".join(c.heading for c in columns) + " |"]
    lines.append("|" + "|".join(" --- " if c.is_text else " ---: " for c in columns) + "|")
    for row in zip(*(column.cells for column in columns), strict=True):
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |")
    lines += ["", *left_out(result, limit, []), *coverage_lines(result.coverage)]
    return "\n".join(lines) + "\n"


def to_bytes(result: Result, form: str) -> bytes:
    """The result as a file of that form."""
    if form not in _BINARY:
        return to_text(result, form).encode()
    import pyarrow as pa
    from pyarrow import parquet

    table = _with_coverage(result)
    target = pa.BufferOutputStream()
    if form == "parquet":
        parquet.write_table(table, target)
    else:
        with pa.ipc.new_file(target, table.schema) as writer:
            writer.write_table(table)
    data: bytes = target.getvalue().to_pybytes()
    return data


def _write_binary(result: Result, form: str, output: str | None) -> None:
    if output is not None:
        Path(output).write_bytes(to_bytes(result, form))
    elif sys.stdout.isatty():
        raise UsageError(f"{form} is binary; give a file with -o, or pipe it somewhere")
    else:
        sys.stdout.buffer.write(to_bytes(result, form))


def _with_coverage(result: Result) -> Any:
    metadata = {b"analysis": result.analysis.name, b"coverage": json.dumps(dict(result.coverage))}
    return result.table.replace_schema_metadata(metadata)
