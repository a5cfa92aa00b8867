"""A result on its way out: a table for people; json, csv, md, parquet, arrow, xlsx."""

import io
import json
import math
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

from htk.answers.output.coverage_text import coverage_lines
from htk.answers.output.result import MOMENTS, Result
from htk.base.core.humanize import (
    STEERING,
    command_name,
    format_change,
    format_value,
    make_visible,
    shorten_apart,
    terminal_width,
)
from htk.base.core.label import Label
from htk.base.core.markdown import escape_markdown, quote_markdown
from htk.base.core.whole_file import write_whole
from htk.base.errors import UsageError
from htk.base.schema import doc_of
from htk.base.schema.columns import build_headings, unit_of

FORMATS = ("table", "json", "json-relative", "csv", "md", "parquet", "arrow", "xlsx")
RAW_CSV = "csv, raw"  # with texts that a spreadsheet takes for formulas as they are
BINARY = ("parquet", "arrow", "xlsx")
_QUIET = ("rank", "cycle", "device", "step")  # left out of a table when they tell nothing apart
_TEXT_WIDTH = 60
_NAME_LEAST = 28  # of names, before columns are left out
_PROSE_LEAST = 30  # of sentences, which go over several lines then
# Sentences, which are given whole; names of kernels and operators are shortened.
CHANGES = {"diff_pct", "change_pct", "time_per_sample_change_pct"}  # of what was before
PROSE = {"finding", "advice", "text", "reason", "evidence", "verdict", "assumption", "question"}


def write_result(
    result: Result,
    form: str,
    output: str | None,
    *,
    limit: int = 200,
    printer: Callable[[IO[str]], None] | None = None,
) -> None:
    """Send a result where it was asked to go; `printer` writes the table for people, where the
    result has one of its own."""
    if form == "table" and printer is not None:
        _write_printed(printer, output)
    elif form in BINARY:
        _write_binary(result, form, output)
    elif output is not None:
        write_whole(output, to_text(result, form, limit=limit))
    elif form == "table":
        print_table(result, limit=limit)
    else:
        sys.stdout.write(_for_screen(to_text(result, form, limit=limit)))


def _write_printed(printer: Callable[[IO[str]], None], output: str | None) -> None:
    if output is None:
        printer(sys.stdout)
        return
    text = io.StringIO()
    printer(text)
    write_whole(output, text.getvalue())


def _for_screen(text: str) -> str:
    """Return text as it is for a pipe, for a terminal without what steers it."""
    lines = map(make_visible, text.split("\n"))
    return "\n".join(lines) if sys.stdout.isatty() else text


def to_text(result: Result, form: str, *, limit: int = 200) -> str:
    """Return the result as text of that form."""
    if form in ("json", "json-relative"):
        return _render_json(result if form == "json" else result.since_start())
    if form in ("csv", RAW_CSV):
        return _render_csv(result, raw=form == RAW_CSV)
    if form == "md":
        return _render_markdown(result, limit)
    return "\n".join(_plain_lines(result, limit, text_columns(result, limit))) + "\n"


def form_by_name(output: str | None) -> str:
    """Return the form that the ending of a file's name asks for; a table where it says nothing."""
    ending = Path(output or "").suffix.lstrip(".").lower()
    return ending if ending in FORMATS else "table"


def print_table(result: Result, *, limit: int = 200, file: IO[str] | None = None) -> None:
    """Print a table for people: units that read well, and no wider than the terminal."""
    target = file or sys.stdout
    columns = text_columns(result, limit)
    if hasattr(target, "isatty") and target.isatty():
        _print_fitting(result, limit, columns, target)
    else:
        target.write("\n".join(_plain_lines(result, limit, columns)) + "\n")


def _plain_lines(result: Result, limit: int, columns: "list[RenderedColumn]") -> Iterator[str]:
    """Yield the lines for a file or pipe: nothing is cut, coloured or wrapped."""
    yield from _in_short(result)
    widths = [max(map(terminal_width, [column.heading, *column.cells])) for column in columns]
    rows = zip(*([column.heading, *column.cells] for column in columns), strict=True)
    for row in rows:  # rows for people to read
        cells = [
            cell + " " * (width - terminal_width(cell))
            if c.is_text
            else " " * (width - terminal_width(cell)) + cell
            for cell, width, c in zip(row, widths, columns, strict=True)
        ]
        yield "  ".join(cells).rstrip()
    yield from left_out(result, limit, []) + coverage_lines(result.coverage)


def _in_short(result: Result) -> list[str]:
    """Return the verdict in sentences, where a result has one, and an empty line."""
    lines = [make_visible(line) for line in result.coverage.get("in_short", ())]
    return [*lines, ""] if lines else []


def _print_fitting(
    result: Result, limit: int, columns: "list[RenderedColumn]", target: IO[str]
) -> None:
    """Print to a terminal, with the columns that fit."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    console = Console(file=target, highlight=False, force_jupyter=False)
    shown = _fit_columns(columns, console.width, _main_columns(result))
    table = Table(header_style="bold", box=None, pad_edge=False)
    for column in shown:
        table.add_column(
            column.heading,
            justify="left" if column.is_text else "right",
            no_wrap=not column.is_prose,
        )
    for row in zip(*(column.cells for column in shown), strict=True):  # rows for people to read
        table.add_row(*map(escape, row))
    for line in _in_short(result):
        console.print(line, markup=False, soft_wrap=True)
    console.print(table)
    headings = {column.heading for column in shown}  # no two are alike
    hidden = [column for column in columns if column.heading not in headings]
    for line in left_out(result, limit, hidden) + coverage_lines(result.coverage):
        console.print(line, style="dim", markup=False, soft_wrap=True)


def print_cells(
    label: Label,
    columns: Mapping[str, list[str]],
    *,
    empty: str,
    limit: int,
    file: IO[str],
) -> None:
    """Print columns of texts, the first to the left; those whose cells are all empty are left
    out."""
    import pyarrow as pa

    (key, names), *others = columns.items()
    shown = {key: names}
    for heading, cells in others:
        if any(cell != empty for cell in cells):
            wide = max(map(len, [heading, *cells]))
            shown[heading] = [cell.rjust(wide) for cell in cells]
    print_table(Result(label, pa.table(shown), {}), limit=limit, file=file)


@dataclass(frozen=True)
class RenderedColumn:
    heading: str
    cells: list[str]
    is_text: bool
    values: list[Any]  # what the cells show, to sort by
    doc: str = ""
    is_prose: bool = False  # sentences, which may go over several lines
    shares: list[str] | None = None  # at the ends of cells, where each has one
    name: str = ""

    @property
    def width(self) -> int:
        return max(map(len, [self.heading, *self.cells]))

    @property
    def least(self) -> int:
        """The width that it needs in a narrow terminal."""
        return min(self.width, _PROSE_LEAST) if self.is_prose else self.width

    def narrowed(self, width: int) -> "RenderedColumn":
        """Return the table with names cut to that width, no two alike; numbers stay whole."""
        if not self.is_text or self.is_prose or self.width <= width:
            return self
        texts = [_format_cell(value, self.name) for value in self.values]
        cut = shorten_apart(texts, width)
        return replace(self, cells=[cut[text] for text in texts])


def text_columns(result: Result, limit: int) -> list[RenderedColumn]:
    """Return the columns as people read them; a time and its share stand in one cell."""
    names = _shown_columns(result)
    words = build_headings(names)
    rows = result.table.slice(0, limit).to_pylist()
    columns: list[RenderedColumn] = []
    for name in names:
        stem = name.removesuffix("_pct")
        if name.endswith("_pct") and f"{stem}_ns" in names:
            continue
        share = name.removesuffix("_ns") + "_pct"
        both = name.endswith("_ns") and share in names
        cells = [_format_cell(_since_origin(result, name, row[name]), name) for row in rows]
        shares = [_format_share(row[share], share) for row in rows] if both else None
        if shares:
            cells = [f"{cell} {own:>5}" for cell, own in zip(cells, shares, strict=True)]
        heading = words[name] + (" %" if both else "")
        values = [row[name] for row in rows]
        doc = doc_of(result.table.schema.field(name))
        text = _is_text(result, name)
        prose = name in PROSE
        column = RenderedColumn(heading, cells, text, values, doc, prose, shares, name)
        columns.append(column.narrowed(_TEXT_WIDTH))
    return columns


def _since_origin(result: Result, name: str, value: Any) -> Any:
    """Return a value; of an absolute time, what it is from the start of the trace."""
    is_moment = name in MOMENTS and value is not None
    return value - int(result.coverage.get("origin_ns") or 0) if is_moment else value


def _format_share(value: float | None, name: str) -> str:
    if value is None:
        return "–"
    words = format_change(value) if name in CHANGES else f"{value:.1f}"
    return words.removesuffix(" %").removeprefix("+")


def _fit_columns(
    columns: list[RenderedColumn], width: int, main: Collection[str]
) -> list[RenderedColumn]:
    """Columns for a narrow terminal: names are cut first; then words about the rows go, sentences
    and at last numbers, each from the right. What the rows are called stays, and the main number:
    of `main`, or the first time."""
    for most in (_TEXT_WIDTH, 44, _NAME_LEAST):
        columns = [column.narrowed(most) for column in columns]
        if _measure_width(columns) <= width:
            return columns
    called = next(
        (c for c in columns if c.name == "name"),
        next((c for c in columns if c.is_text), columns[0]),
    )
    times = [c for c in columns if c.name.endswith("_ns") and c.name not in MOMENTS]
    numbers = [c for name in main for c in columns if c.name == name]
    number = next(iter(numbers + times), None)
    stay = [c for c in columns if c is called or c is number]
    more = [c for c in reversed(columns) if c not in stay]
    shown = columns
    for column in sorted(more, key=lambda c: (not c.is_text, c.is_prose)):
        if _measure_width(shown) <= width or len(shown) <= 2:
            break
        shown = [c for c in shown if c is not column]
    return shown


def _main_columns(result: Result) -> Collection[str]:
    """Return the main numbers of an answer: what its chart draws, or what changed."""
    drawn = getattr(result.analysis.chart, "y", "diff_ns")
    return (drawn,) if isinstance(drawn, str) else drawn


def _measure_width(columns: list[RenderedColumn]) -> int:
    return sum(column.least + 2 for column in columns) - 2


def left_out(result: Result, limit: int, columns: list[RenderedColumn]) -> list[str]:
    lines = [] if result.table.num_rows else [str(result.coverage.get("verdict", "nothing found"))]
    if result.table.num_rows > limit:
        more = result.table.num_rows - limit
        command = command_name(result.analysis.name)
        lines.append(f"… {more:,} more rows (htk {command} has all, by --limit or --format csv)")
    if columns:
        names = ", ".join(c.heading for c in columns)
        lines.append(f"… more columns in a wider terminal: {names}")
    return lines


def _shown_columns(result: Result) -> list[str]:
    """Return all columns but those that hold nothing, or the same rank, cycle, device or step."""
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


def _format_cell(value: object, name: str) -> str:
    if isinstance(value, str):
        return command_name(value) if name == "analysis" else make_visible(value)
    return format_value(value, unit_of(name)).removesuffix(" %")  # the heading has it


def _render_json(result: Result) -> str:
    """JSON knows no infinite numbers, dates or bytes: null, and their text."""
    answer = result.to_json()
    try:
        text = json.dumps(answer, ensure_ascii=False, allow_nan=False, default=str)
    except ValueError:
        text = json.dumps(
            _replace_infinite(answer), ensure_ascii=False, allow_nan=False, default=str
        )
    # Steering characters that JSON does not escape are spelled as it can: equal once it is read.
    return STEERING.sub(lambda match: f"\\u{ord(match[0]):04x}", text) + "\n"


def _replace_infinite(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _replace_infinite(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_replace_infinite(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _render_csv(result: Result, *, raw: bool) -> str:
    import pyarrow as pa

    from htk.base.columns.csv_text import write_csv

    target = pa.BufferOutputStream()
    write_csv(result.table, target, raw=raw)
    return str(target.getvalue().to_pybytes().decode())


def _render_markdown(result: Result, limit: int) -> str:
    columns = text_columns(result, limit)
    lines = [escape_markdown(line) for line in _in_short(result)]
    lines.append("| " + " | ".join(escape_markdown(c.heading) for c in columns) + " |")
    lines.append("|" + "|".join(" --- " if c.is_text else " ---: " for c in columns) + "|")
    cells = [_markdown_cells(column) for column in columns]
    lines += ["| " + " | ".join(row) + " |" for row in zip(*cells, strict=True)]
    rest = [*left_out(result, limit, []), *coverage_lines(result.coverage)]
    return "\n".join([*lines, "", *map(escape_markdown, rest)]) + "\n"


def _markdown_cells(column: RenderedColumn) -> list[str]:
    spell = quote_markdown if column.is_text and not column.is_prose else escape_markdown
    return [spell(cell) for cell in column.cells]


def to_bytes(result: Result, form: str) -> bytes:
    """Return the result as a file of that form."""
    if form not in BINARY:
        return to_text(result, form).encode()
    if form == "xlsx":
        from htk.answers.output.workbook import build_workbook

        return build_workbook([result])
    import pyarrow as pa
    from pyarrow import parquet

    from htk.base.columns.arrow import plain_text

    table = plain_text(_with_coverage(result))
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
        write_whole(output, to_bytes(result, form))
    elif sys.stdout.isatty():
        raise UsageError(f"{form} is binary; give a file with -o, or pipe it somewhere")
    else:
        sys.stdout.buffer.write(to_bytes(result, form))


def _with_coverage(result: Result) -> Any:
    metadata = {b"analysis": result.analysis.name, b"coverage": json.dumps(dict(result.coverage))}
    return result.table.replace_schema_metadata(metadata)
