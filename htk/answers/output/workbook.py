"""Answers as sheets of a spreadsheet file: exact numbers, texts that are never formulas."""

import io
from collections.abc import Sequence
from typing import Any

from htk.answers.output.coverage_text import coverage_lines
from htk.answers.output.result import Result
from htk.base.core.extras import require_extra
from htk.base.core.humanize import make_visible
from htk.base.errors import UsageError
from htk.base.schema import doc_of, unit_of

_MOST_ROWS = (1 << 20) - 1  # of a sheet, without its head
_MOST_CHARACTERS = 32_767  # of a cell
_EXACT = 1 << 53  # beyond it a spreadsheet's numbers are rounded
_NAME_LENGTH = 31  # of a sheet
_WIDEST = 60  # characters of a column


def build_workbook(answers: Sequence[Result]) -> bytes:
    """Return an .xlsx file: a sheet for each answer, and one of what the columns mean; of several
    answers it comes first.

    Columns keep their names and numbers their units (times in ns); integers beyond 2^53, such as
    times since the epoch, are texts, for a spreadsheet would round them.
    """
    require_extra("xlsx", "a spreadsheet file")
    import xlsxwriter  # type: ignore[import-untyped]

    _check_sizes(answers)
    target = io.BytesIO()
    options = {"in_memory": True, "strings_to_formulas": False, "strings_to_urls": False}
    with xlsxwriter.Workbook(target, options) as book:
        formats = {
            "head": book.add_format({"bold": True, "bottom": 1}),
            "integer": book.add_format({"num_format": "#,##0"}),
            "float": book.add_format({"num_format": "#,##0.0##"}),
        }
        names = _sheet_names([answer.analysis.name for answer in answers])
        # Who reads the first sheet of a file wants its one answer.
        in_order = [*names, "contents"] if len(names) == 1 else ["contents", *names]
        sheets = {name: book.add_worksheet(name) for name in in_order}
        _write_contents(sheets["contents"], answers, names, formats)
        for answer, name in zip(answers, names, strict=True):
            _write_sheet(sheets[name], answer, formats)
    return target.getvalue()


def _check_sizes(answers: Sequence[Result]) -> None:
    for answer in answers:
        if len(answer) > _MOST_ROWS:
            raise UsageError(
                f"{answer.analysis.name} has {len(answer):,} rows and a sheet holds "
                f"{_MOST_ROWS:,}; write parquet or csv"
            )


def _write_contents(sheet: Any, answers: Sequence[Result], names: list[str], formats: Any) -> None:
    """The sheets, what they rest on, and what each column means."""
    heads = ("sheet", "column", "unit", "meaning")
    rows: list[tuple[str, str, str, str]] = []
    for answer, name in zip(answers, names, strict=True):
        rows.append((name, "", "", answer.analysis.question))
        rows += [(name, "", "", line) for line in coverage_lines(answer.coverage)]
        rows += [(name, f.name, unit_of(f.name), doc_of(f)) for f in answer.table.schema]
    for column, head in enumerate(heads):
        sheet.write_string(0, column, head, formats["head"])
    for line, row in enumerate(rows, 1):
        for column, text in enumerate(row):
            sheet.write_string(line, column, _bound_text(text))
    for column, width in enumerate((24, 28, 10, 100)):
        sheet.set_column(column, column, width)
    sheet.freeze_panes(1, 0)


def _write_sheet(sheet: Any, answer: Result, formats: Any) -> None:
    for column, field in enumerate(answer.table.schema):
        values = answer.table[field.name].to_pylist()
        width = len(field.name) + 3
        sheet.write_string(0, column, field.name, formats["head"])
        for line, value in enumerate(values, 1):  # rows that a person opens
            width = max(width, _write_cell(sheet, line, column, value, formats))
        sheet.set_column(column, column, min(width, _WIDEST))
    sheet.freeze_panes(1, 0)
    if len(answer):
        sheet.autofilter(0, 0, len(answer), len(answer.columns) - 1)


def _write_cell(sheet: Any, line: int, column: int, value: Any, formats: Any) -> int:
    """Write a cell; return its width in characters. What is null stays empty."""
    if value is None or value != value:
        return 0
    if isinstance(value, bool):
        sheet.write_boolean(line, column, value)
    elif isinstance(value, int) and abs(value) <= _EXACT:
        sheet.write_number(line, column, value, formats["integer"])
        return len(f"{value:,}") + 1
    elif isinstance(value, float) and abs(value) != float("inf"):
        sheet.write_number(line, column, value, formats["float"])
        return len(f"{value:,.3f}") + 1
    else:
        text = _bound_text(str(value))
        sheet.write_string(line, column, text)
        return len(text)
    return 0


def _bound_text(text: str) -> str:
    return make_visible(text)[:_MOST_CHARACTERS]


def _sheet_names(names: Sequence[str]) -> list[str]:
    """Return the names that a spreadsheet takes: short, and each once whatever its case."""
    taken = {"contents"}
    unique = []
    for name in names:
        short = name[:_NAME_LENGTH]
        number = 1
        while short.lower() in taken:
            number += 1
            short = f"{name[: _NAME_LENGTH - 4]} {number}"
        taken.add(short.lower())
        unique.append(short)
    return unique
