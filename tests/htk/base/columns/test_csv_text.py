"""CSV for people starts nothing in a spreadsheet; raw CSV is exact."""

import csv
import io
from pathlib import Path

import pyarrow as pa
import pytest

from htk.base.columns.csv_text import write_csv
from htk.faces.cli.main import run_command_line
from tests.kineto_file import kernel, of_rank, write

FORMULAS = [
    "=1+1",
    "+1+cmd|' /C calc'!A0",
    "-2+3",
    "@SUM(A1)",
    "\t=1",
    "\r=1",
    "\n=1",
    "＝1",
    "＠x",
]
FORMULAS += ['=HYPERLINK("http://x","y")', "-", "+-1", "-1.2.3", "-0x10"]
HARMLESS = ["-5", "+5", "-1.5e-3", "-.5", "a=b", "", "'=1", " =1", "1-2", "void f<-1>()"]


def cells(table: pa.Table, *, raw: bool) -> list[list[str]]:
    target = pa.BufferOutputStream()
    write_csv(table, target, raw=raw)
    text = target.getvalue().to_pybytes().decode()
    return list(csv.reader(io.StringIO(text, newline="")))


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.dictionary("int32", "string")])
def test_texts_that_a_spreadsheet_would_take_for_formulas(kind: pa.DataType) -> None:
    texts = FORMULAS + HARMLESS
    numbers = pa.array([-k for k in range(len(texts))])
    table = pa.table({"name": pa.array(texts).cast(kind), "=cost": numbers})
    heading, *rows = cells(table, raw=False)
    assert heading == ["name", "'=cost"]
    assert [row[0] for row in rows] == [
        f"'{text}".replace("\r", " ") for text in FORMULAS
    ] + HARMLESS
    assert [int(row[1]) for row in rows] == numbers.to_pylist()
    heading, *rows = cells(table, raw=True)
    assert heading == ["name", "=cost"]
    assert [row[0] for row in rows] == texts


def test_nothing_steers_a_terminal_unless_raw_is_asked_for() -> None:
    evil = "a\x1b[2J\x1b]0;owned\x07\u202e\x9b31m\tb\nc"
    spelled = r"a\x1b[2J\x1b]0;owned\x07\u202e\x9b31m" + "\tb\nc"
    table = pa.table({f"n{evil}": [evil, None], "list": [[evil], None]})
    heading, (name, items), (nothing, _) = cells(table, raw=False)
    assert (heading[0], name, nothing) == (f"n{spelled}", spelled, "")
    assert "\\u001b[2J" in items and "\x9b" not in items
    assert cells(table, raw=True)[1][0] == evil


def test_nulls_and_nested_values_and_no_rows() -> None:
    table = pa.table({"a": ["=x", None, "y"], "b": [[1], None, []], "c": [["=z"], None, []]})
    assert cells(table, raw=False)[1:] == [
        ["'=x", "[1]", '["=z"]'],
        ["", "", ""],
        ["y", "[]", "[]"],
    ]
    assert cells(table.slice(0, 0), raw=False) == [["a", "b", "c"]]


def test_commands_write_safe_csv_unless_raw_is_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = '=HYPERLINK("http://evil","x")'
    write(tmp_path / "rank0.json", kernel(name, 1, 2), **of_rank(0))
    command = ["kernel_top", str(tmp_path), "--no-cache"]
    for words, shown in (([], f"'{name}"), (["--raw"], name)):
        assert run_command_line([*command, "--format", "csv", *words]) == 0
        rows = csv.DictReader(io.StringIO(capsys.readouterr().out))
        assert [row["name"] for row in rows] == [shown]
        folder = tmp_path / f"out{len(words)}"
        assert (
            run_command_line(
                ["convert", str(tmp_path), "--format", "csv", "-o", str(folder), *words]
            )
            == 0
        )
        with open(folder / "kernels" / "rank=0" / "part-0.csv", newline="") as file:
            assert [row["name"] for row in csv.DictReader(file)] == [shown]
    capsys.readouterr()
    assert run_command_line([*command, "--format", "json", "--raw"]) == 2
    assert "--raw is for --format csv" in capsys.readouterr().err
