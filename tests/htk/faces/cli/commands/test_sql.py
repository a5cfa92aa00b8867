"""`htk sql` as it is typed."""

import json
import subprocess
import sys
from pathlib import Path

from tests.kineto_file import kernel, of_rank, write


def _sql(*args: str, typed: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "htk", "sql", *args]
    return subprocess.run(command, input=typed, capture_output=True, text=True, check=False)


def test_query_file_and_prompt(tmp_path: Path) -> None:
    path = str(write(tmp_path / "a.json", kernel("gemm", 1, 3), **of_rank(0)))
    asked = "select name from kernels"
    answer = _sql(path, asked, "--format", "json", "--no-cache")
    assert json.loads(answer.stdout)["rows"] == [{"name": "gemm"}]
    (tmp_path / "q.sql").write_text(asked)
    assert "gemm" in _sql(path, "-f", str(tmp_path / "q.sql"), "--no-cache").stdout
    typed = (
        ".tables\n.columns kernels\nselect nme\nfrom kernels;\nselect name from kernels;\n.quit\n"
    )
    session = _sql(path, "--no-cache", typed=typed)
    assert "time_breakdown" in session.stdout and "Registers per thread" in session.stdout
    assert "nme" in session.stderr and "gemm" in session.stdout
    assert session.returncode == 0


def test_the_trace_comes_first(tmp_path: Path) -> None:
    answer = _sql("select 1")
    assert answer.returncode == 2 and "it comes first" in answer.stderr
    missing = _sql(str(tmp_path / "no.json"), "select 1")
    assert missing.returncode == 3 and "no such file" in missing.stderr


def test_one_word_after_the_trace_is_a_query(tmp_path: Path) -> None:
    path = str(write(tmp_path / "a.json", kernel("gemm", 1, 3), **of_rank(0)))
    wrong = _sql(path, "selec", "--no-cache")
    assert wrong.returncode == 2 and "selec" in wrong.stderr and "no such file" not in wrong.stderr
    assert "time_breakdown" in _sql(path, ".tables").stdout


def test_sums_are_whole_numbers_with_their_unit(tmp_path: Path) -> None:
    path = str(write(tmp_path / "a.json", kernel("gemm", 1, 3), **of_rank(0)))
    asked = (
        "select sum(end_ns - start_ns) as total_ns, 1.5 as x, date '2026-01-02' as d from kernels"
    )
    rows = json.loads(_sql(path, asked, "--format", "json", "--no-cache").stdout)["rows"]
    assert rows == [{"total_ns": 3000, "x": 1.5, "d": "2026-01-02"}]


def test_a_query_longer_than_a_file_name_is_a_query(tmp_path: Path) -> None:
    path = str(write(tmp_path / "a.json", kernel("gemm", 1, 3), **of_rank(0)))
    asked = "select name from kernels where name in (" + "'gemm', " * 1000 + "'gemm')"
    rows = json.loads(_sql(path, asked, "--format", "json", "--no-cache").stdout)["rows"]
    assert rows == [{"name": "gemm"}]
