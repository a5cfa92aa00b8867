"""Columns of texts by their distinct texts, against the same done row by row."""

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import build_texts
from htk.base.columns.coded_texts import CodedTexts

ROWS = ["mm", None, "add", "mm", "", None, "copy"]


def test_rows_are_those_given() -> None:
    column = CodedTexts.from_texts(ROWS)
    assert list(column) == ROWS
    assert [column[k] for k in range(len(column))] == ROWS
    assert column[2:5] == ["add", "mm", ""]
    assert len(set(column.distinct)) == len(column.distinct) == 5


def test_rows_of_a_table_and_none() -> None:
    table = pa.chunked_array([build_texts(["mm", "add", None]), build_texts(["copy", "mm"])])
    rows = np.array([4, -1, 0, 2, 3])
    assert list(CodedTexts.taken(table, rows)) == ["mm", None, "mm", None, "copy"]
    assert "add" not in CodedTexts.taken(table, rows).distinct
    assert not list(CodedTexts.taken(table, rows[:0]))


def test_questions_are_asked_once_for_each_text() -> None:
    asked: list[str] = []

    def is_long(text: str) -> bool:
        asked.append(text)
        return len(text) > 2

    column = CodedTexts.from_texts(ROWS)
    assert column.where(is_long).tolist() == [bool(t) and len(t) > 2 for t in ROWS]
    assert sorted(asked) == ["", "add", "copy", "mm"]
    assert column.isin("mm", "add").tolist() == [t in ("mm", "add") for t in ROWS]
    lengths = column.mapped(lambda text: len(text or "none"), np.int64)
    assert lengths.tolist() == [len(t or "none") for t in ROWS]


def test_more_rows_and_fewer_texts() -> None:
    column = CodedTexts.from_texts(ROWS).with_more(["add", "new", None])
    assert list(column) == [*ROWS, "add", "new", None]
    behind = CodedTexts.from_texts(ROWS).followed_by(
        CodedTexts.from_texts(["new", "add", None, "new"])
    )
    assert list(behind) == [*ROWS, "new", "add", None, "new"]
    assert list(behind.distinct) == list(dict.fromkeys(behind))
    emptied = CodedTexts.from_texts(["a", "b", "a"]).without(np.array([True, False, False]))
    assert list(emptied) == [None, "b", "a"]


def test_pairs_come_in_the_order_of_their_rows() -> None:
    others = ["[2]", "[2]", None, "[2]", "[1]", "[2]", "[1]"]
    pairs = CodedTexts.from_texts(ROWS).pairs_with(CodedTexts.from_texts(others))
    assert pairs == list(dict.fromkeys(zip(ROWS, others, strict=True)))
