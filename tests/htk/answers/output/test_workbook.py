"""Answers as a spreadsheet file, read back by another library."""

import io
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import htk
from htk.answers.output import workbook as module
from htk.answers.output.result import Result
from htk.answers.output.workbook import build_workbook
from htk.base.core.label import Label
from htk.base.errors import UsageError

openpyxl = pytest.importorskip("openpyxl")


def result(analysis: str = "answer", **columns: Any) -> Result:
    return Result(Label(analysis, "What is shown?"), pa.table(columns), {})


def sheets(data: bytes) -> Any:
    return openpyxl.load_workbook(io.BytesIO(data))


def cells(sheet: Any) -> list[list[Any]]:
    return [[cell.value for cell in row] for row in sheet.iter_rows()]


def test_numbers_are_exact_and_null_is_empty() -> None:
    answer = result(
        rank=pa.array([0, None, 2]),
        start_ns=pa.array([1_731_348_189_620_565_623, 1 << 53, -5]),
        share_pct=pa.array([12.0625, None, float("nan")]),
        complete=pa.array([True, False, None]),
    )
    assert cells(sheets(build_workbook([answer]))["answer"]) == [
        ["rank", "start_ns", "share_pct", "complete"],
        [0, "1731348189620565623", 12.0625, True],
        [None, 1 << 53, None, False],
        [2, -5, None, None],
    ]


@pytest.mark.parametrize("text", ["=1+1", "@SUM(A1)", "+1", "-1", "{=A1}", "https://x.y/z"])
def test_a_name_is_never_a_formula_or_a_link(text: str) -> None:
    sheet = sheets(build_workbook([result(name=pa.array([text]))]))["answer"]
    assert sheet["A2"].value == text and sheet["A2"].data_type == "s"
    assert sheet["A2"].hyperlink is None


def test_texts_fit_a_cell_and_steer_nothing() -> None:
    data = build_workbook([result(name=pa.array(["k" * 40_000, "a\x1b[31m\x00b\u202ec\nd"]))])
    (_, (long,), (steering,)) = cells(sheets(data)["answer"])
    assert long == "k" * 32_767
    assert steering == "a\\x1b[31m\\x00b\\u202ec d"


def test_sheets_of_one_name_are_kept_apart() -> None:
    name = "a_question_with_a_name_longer_than_a_sheet_may_have"
    book = sheets(
        build_workbook([result(name, n=[1]), result(name, n=[2]), result("Contents", n=[3])])
    )
    assert [cells(sheet)[1][0] for sheet in book.worksheets[1:]] == [1, 2, 3]
    assert all(len(title) <= 31 for title in book.sheetnames)
    assert len({title.lower() for title in book.sheetnames}) == 4


def test_more_rows_than_a_sheet_holds_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_ROWS", 3)
    with pytest.raises(UsageError, match="answer has 4 rows and a sheet holds 3"):
        build_workbook([result(n=[1, 2, 3, 4])])


def test_a_report_is_a_workbook_with_what_its_columns_mean(tmp_path: Path) -> None:
    trace = htk.open("sample")
    path = trace.report(tmp_path / "run.xlsx", whatif=False)
    book = sheets(path.read_bytes())
    names = [name.replace(" ", "_") for name in book.sheetnames]
    assert {"contents", "summary", "time_breakdown", "kernel_top", "comm_wait"} <= set(names)
    head, *rows = cells(book["kernel_top"])
    answer = trace.kernel_top()
    assert head == answer.columns
    total = head.index("total_ns")
    assert [row[total] for row in rows] == answer["total_ns"].to_pylist()
    described = {(row[0], row[1]) for row in cells(book["contents"])}
    assert {("kernel_top", column) for column in answer.columns} <= described


def test_the_first_sheet_of_one_answer_is_the_answer() -> None:
    one, two = result("one", a=pa.array([1])), result("two", a=pa.array([2]))
    assert sheets(build_workbook([one])).sheetnames == ["one", "contents"]
    assert sheets(build_workbook([one, two])).sheetnames == ["contents", "one", "two"]
