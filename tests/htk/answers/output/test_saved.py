"""An answer as a file: each ending, read again."""

from pathlib import Path

import pyarrow.csv
import pyarrow.parquet
import pytest

import htk
from htk.answers.output.result import Result
from htk.base.errors import UsageError


@pytest.fixture(scope="module")
def answer() -> Result:
    return htk.open("sample").kernel_top(n=5)


def test_tables_hold_all_rows(answer: Result, tmp_path: Path) -> None:
    assert answer.save(tmp_path / "a.csv") == tmp_path / "a.csv"
    table = pyarrow.csv.read_csv(tmp_path / "a.csv")
    assert table["total_ns"].to_pylist() == answer["total_ns"].to_pylist()
    answer.save(str(tmp_path / "a.parquet"))
    kept = pyarrow.parquet.read_table(tmp_path / "a.parquet")
    assert kept["name"].to_pylist() == answer["name"].to_pylist()
    answer.save(tmp_path / "a.xlsx")
    assert (tmp_path / "a.xlsx").read_bytes()[:2] == b"PK"


def test_pages_show_the_question_and_each_row(answer: Result, tmp_path: Path) -> None:
    page = answer.save(tmp_path / "a.html").read_text()
    assert page.startswith("<!doctype html>") and "Which kernels cost most GPU time?" in page
    text = answer.save(tmp_path / "a.MD").read_text()
    assert text.count("\n| ") == 1 + len(answer), "and the rule below the headings"


def test_another_ending_is_refused(answer: Result, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"a\.pptx: .* one of \.json, \.csv"):
        answer.save(tmp_path / "a.pptx")
    assert not (tmp_path / "a.pptx").exists()
