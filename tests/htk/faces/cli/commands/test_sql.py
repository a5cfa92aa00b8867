"""`htk sql` as it is typed."""

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from htk.faces.cli.main import run_command_line
from tests.kineto_file import kernel, of_rank, write


class Printed(NamedTuple):
    code: int
    out: str
    err: str


Ask = Callable[..., Printed]


@pytest.fixture
def sql(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Ask:
    """Runs the command on some words and what is typed into it."""

    def asked(*words: str, typed: str = "") -> Printed:
        monkeypatch.setattr("sys.stdin", io.StringIO(typed))
        return Printed(run_command_line(["sql", *words]), *capsys.readouterr())

    return asked


def test_query_file_and_prompt(tmp_path: Path, sql: Ask) -> None:
    path = str(write(tmp_path / "a.json", kernel("gemm", 1, 3), **of_rank(0)))
    asked = "select name from kernels"
    answer = sql(path, asked, "--format", "json", "--no-cache")
    assert json.loads(answer.out)["rows"] == [{"name": "gemm"}]
    (tmp_path / "q.sql").write_text(asked)
    assert "gemm" in sql(path, "-f", str(tmp_path / "q.sql"), "--no-cache").out
    typed = (
        ".tables\n.columns kernels\nselect nme\nfrom kernels;\nselect name from kernels;\n.quit\n"
    )
    session = sql(path, "--no-cache", typed=typed)
    assert "time_breakdown" in session.out and "Registers per thread" in session.out
    assert "nme" in session.err and "gemm" in session.out
    assert session.code == 0


def test_the_trace_comes_first(tmp_path: Path, sql: Ask) -> None:
    answer = sql("select 1")
    assert answer.code == 2 and "it comes first" in answer.err
    missing = sql(str(tmp_path / "no.json"), "select 1")
    assert missing.code == 3 and "no such file" in missing.err


def test_one_word_after_the_trace_is_a_query(tmp_path: Path, sql: Ask) -> None:
    path = str(write(tmp_path / "a.json", kernel("gemm", 1, 3), **of_rank(0)))
    wrong = sql(path, "selec", "--no-cache")
    assert wrong.code == 2 and "selec" in wrong.err and "no such file" not in wrong.err
    assert "time_breakdown" in sql(path, ".tables").out


def test_sums_are_whole_numbers_with_their_unit(
    tmp_path: Path, sql: Callable[..., Printed]
) -> None:
    path = str(write(tmp_path / "a.json", kernel("gemm", 1, 3), **of_rank(0)))
    asked = (
        "select sum(end_ns - start_ns) as total_ns, 1.5 as x, date '2026-01-02' as d from kernels"
    )
    rows = json.loads(sql(path, asked, "--format", "json", "--no-cache").out)["rows"]
    assert rows == [{"total_ns": 3000, "x": 1.5, "d": "2026-01-02"}]


def test_a_query_longer_than_a_file_name_is_a_query(
    tmp_path: Path, sql: Callable[..., Printed]
) -> None:
    path = str(write(tmp_path / "a.json", kernel("gemm", 1, 3), **of_rank(0)))
    asked = "select name from kernels where name in (" + "'gemm', " * 1000 + "'gemm')"
    rows = json.loads(sql(path, asked, "--format", "json", "--no-cache").out)["rows"]
    assert rows == [{"name": "gemm"}]
