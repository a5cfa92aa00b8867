"""The command line as a user meets it."""

import fcntl
import json
import os
import signal
import subprocess
import sys
import termios
import time
from functools import partial
from pathlib import Path

import psutil
import pyarrow.parquet as pq
import pytest

from htk.faces.cli.main import run_command_line
from tests.kineto_file import kernel, launch, of_rank, op, step, write


@pytest.fixture
def path(tmp_path: Path) -> str:
    events = [step(0, 1, 9), op("aten::mm", 2, 2), launch(1, 3), kernel("gemm", 4, 3, 1)]
    return str(write(tmp_path / "t.json", *events, **of_rank(0)))


@pytest.mark.parametrize("name", ["kernel_top", "kernel-top"])
def test_names_take_hyphens_or_underscores(
    path: str, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command_line([name, path]) == 0
    assert "gemm" in capsys.readouterr().out


def test_machine_formats_hold_the_same_rows(
    path: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command_line(["kernel_top", path, "--format", "json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["rows"][0]["name"] == "gemm" and answer["rows"][0]["total_ns"] == 3000
    assert answer["coverage"]["ranks"] == [0]
    assert run_command_line(["kernel_top", path, "--format", "csv"]) == 0
    header, row = capsys.readouterr().out.splitlines()
    assert header.startswith('"rank","cycle","step","name"') and '"gemm"' in row
    file = tmp_path / "out.parquet"
    assert run_command_line(["kernel_top", path, "--format", "parquet", "-o", str(file)]) == 0
    assert pq.read_table(file)["total_ns"].to_pylist() == [3000]
    assert run_command_line(["kernel_top", path, "-o", str(tmp_path / "by_name.parquet")]) == 0
    assert pq.read_table(tmp_path / "by_name.parquet")["count"].to_pylist() == [1]
    assert run_command_line(["kernel_top", path, "--format", "md"]) == 0
    assert capsys.readouterr().out.startswith("| name |")


def test_where_a_limit_of_memory_cannot_hold_is_said(
    path: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    limited = ["kernel-top", path, "--memory", "1GB"]
    assert run_command_line(limited) == 0
    assert not capsys.readouterr().err
    assert run_command_line([*limited, "--no-cache"]) == 0
    said = "htk: --memory bounds questions by rank and the critical path alone: "
    assert capsys.readouterr().err == f"{said}--no-cache leaves no folder for the rest\n"
    monkeypatch.setattr(sys, "platform", "darwin")
    assert run_command_line(limited) == 0
    assert capsys.readouterr().err == f"{said}this system is not Linux\n"


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (["nonsense"], 2, "No such command"),
        (["kernel_topp"], 2, "did you mean kernel-top"),
        (["kernel_top"], 2, "Missing argument"),
        (["kernel_top", "{path}", "--n", "many"], 2, "--n"),
        (["kernel_top", "{path}", "--n", "-3"], 2, "--n"),
        (["kernel_top", "{path}", "-o", "{path}.d/no/a.csv"], 2, "No such file or directory"),
        (["kernel_top", "{path}", "--steps", "x"], 2, "0,2..5"),
        (["kernel_top", "/no/such/file.json"], 3, "no such file"),
        (["kernel_top", "{path}", "--steps", "7"], 3, "within steps 7 (of 0)"),
        (["summary", "{path}", "--from", "1s"], 3, "within times from 1.00 s on"),
        (["trim", "{path}", "--ranks", "9", "-o", "{path}.d"], 3, "within ranks 9 (of 0)"),
        (["kernel_top", "{path}", "--steps", "2..1"], 2, "write it as 1..2"),
        (["kernel_top", "{path}", "--ranks", "5,6"], 3, "within ranks 5..6 (of 0)"),
        (["kernel_top", "{path}", "--from", "5ms", "--to", "3ms"], 2, "ends before it begins"),
        (["kernel_top", "{path}", "--annotation", "("], 2, "not a regular expression"),
        (["convert", "{path}", "-o", "{path}.d", "--table", "nonsense"], 2, "no table"),
    ],
)
def test_errors_are_one_line_and_a_code(
    path: str, args: list[str], code: int, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command_line([a.replace("{path}", path) for a in args]) == code
    shown = capsys.readouterr().err
    assert words in shown and "Traceback" not in shown


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("--from", "9" * 400 + "s", "longer than a century"),
        ("--memory", "9" * 400 + "GB", "the most 1024TB"),
        ("--ranks", "9" * 400, "so large"),
    ],
)
def test_numbers_that_nothing_can_be_made_of_are_refused(
    option: str, value: str, words: str, path: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command_line(["kernel-top", path, option, value]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("htk: ") and words in line


def test_convert_writes_a_dataset_by_rank(path: str, tmp_path: Path) -> None:
    folder = tmp_path / "set"
    assert run_command_line(["convert", path, "-o", str(folder)]) == 0
    rows = pq.read_table(folder / "kernels").to_pylist()
    assert [(r["rank"], r["name"]) for r in rows] == [(0, "gemm")]


def test_convert_to_csv_and_arrow(path: str, tmp_path: Path) -> None:
    for form in ("csv", "arrow"):
        folder = tmp_path / form
        args = ["convert", path, "--format", form, "--table", "kernels", "-o", str(folder)]
        assert run_command_line(args) == 0
        assert (folder / "kernels/rank=0" / f"part-0.{form}").stat().st_size > 0


def test_convert_says_its_form_as_people_do(path: str, tmp_path: Path) -> None:
    assert run_command_line(["convert", path, "--to", "csv", "-o", str(tmp_path / "out")]) == 0
    assert list((tmp_path / "out").rglob("*.csv"))


def test_doctor_names_what_is_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cpu_only = write(tmp_path / "cpu.json", op("aten::mm", 2, 2), **of_rank(0, 4))
    assert run_command_line(["doctor", str(cpu_only)]) == 0
    shown = capsys.readouterr().out
    assert "3 of 4 ranks have no file" in shown
    assert "kernel-top" in shown and "ProfilerActivity.CUDA" in shown
    assert "ncclras" in shown  # what fills the counts of communicators


def test_doctor_names_arguments_that_nothing_reads(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = {**kernel("k", 3, 1, 7), "args": {**kernel("k", 3, 1, 7)["args"], "warp mood": 3}}
    path = write(tmp_path / "t.json", op("aten::mm", 0, 2), launch(7, 1), told, **of_rank(0))
    assert run_command_line(["doctor", str(path)]) == 0
    assert "arguments not read  of events: warp mood 1" in capsys.readouterr().out


def test_doctor_fits_a_narrow_terminal(
    path: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "70")
    assert run_command_line(["doctor", path]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert max(len(line) for line in shown if not line.startswith("coverage")) <= 70
    assert any("kineto" in line for line in shown)


def test_listings(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line(["analyses"]) == 0
    assert "kernel-top" in capsys.readouterr().out
    assert run_command_line(["formats"]) == 0
    assert "kineto" in capsys.readouterr().out
    assert run_command_line(["formats", "--format", "json"]) == 0
    assert "kineto" in {row["name"] for row in json.loads(capsys.readouterr().out)}


def waits_for_more(child: subprocess.Popen[bytes]) -> bool:
    """It has read all that was written to it, and sleeps."""
    assert child.stdin is not None
    left = int.from_bytes(fcntl.ioctl(child.stdin, termios.FIONREAD, bytes(4)), sys.byteorder)
    return left == 0 and psutil.Process(child.pid).status() == psutil.STATUS_SLEEPING


def test_giving_up_leaves_nothing_behind(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    command = [sys.executable, "-m", "htk", "doctor", "-"]
    environment = os.environ | {"HTK_CACHE_DIR": str(cache)}
    heard = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)  # a shell's background ignores it
    child = subprocess.Popen(
        command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, env=environment, preexec_fn=heard
    )
    assert child.stdin is not None and child.stderr is not None
    child.stdin.write(b'{"traceEvents": [')
    child.stdin.flush()
    while not waits_for_more(child) and child.poll() is None:
        time.sleep(0.05)
    child.send_signal(signal.SIGINT)
    assert child.wait(180) == 130
    assert child.stderr.read().strip() == b"htk: stopped"
    assert not cache.exists() or not list(cache.iterdir())


def test_giving_up_while_a_command_is_imported_is_said_in_a_line(tmp_path: Path) -> None:
    command = [sys.executable, "-X", "importtime", "-m", "htk", "doctor", "-"]
    environment = os.environ | {"HTK_CACHE_DIR": str(tmp_path / "cache")}
    heard = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    child = subprocess.Popen(
        command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, env=environment, preexec_fn=heard
    )
    assert child.stdin is not None and child.stderr is not None
    while b"htk.base.core.defer_imports" not in child.stderr.readline():
        assert child.poll() is None
    child.send_signal(signal.SIGINT)  # before the command is known
    *imported, said, _ = child.communicate(timeout=180)[1].split(b"\n")
    assert child.returncode == 130 and said == b"htk: stopped"
    assert all(line.startswith(b"import time:") for line in imported)


def test_the_shell_completes_questions() -> None:
    words = {"_HTK_COMPLETE": "bash_complete", "COMP_WORDS": "htk kernel-t", "COMP_CWORD": "1"}
    command = [
        sys.executable,
        "-c",
        "import sys; from htk.faces.cli.main import run_command_line; "
        "sys.exit(run_command_line([]))",
    ]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | words)
    assert "plain,kernel-top" in done.stdout


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("can't start new thread")])
def test_too_little_memory_is_said_as_such(
    path: str, error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("htk.faces.cli.commands.common.ask_trace", fails)
    assert run_command_line(["kernel_top", path]) == 1
    said = capsys.readouterr().err
    assert "more memory" in said and "--ranks" in said and "bug" not in said


def test_only_what_is_gone_counts_as_removed(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HTK_CACHE_DIR", str(tmp_path / "cache"))
    assert run_command_line(["kernel_top", path]) == 0
    with monkeypatch.context() as read_only:
        read_only.setattr("htk.base.io.store.Store._remove", lambda *_: None)
        assert run_command_line(["cache", "clear"]) == 0
        assert capsys.readouterr().err.startswith("0 parsed traces removed")
    assert run_command_line(["cache", "clear"]) == 0
    assert capsys.readouterr().err.startswith("1 parsed traces removed")
