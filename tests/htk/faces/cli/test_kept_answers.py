"""The same command asked again: answered from what was printed, and never from what is stale."""

import io
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from htk.faces.cli.kept_answers import answer_or_run
from htk.faces.cli.main import run_command_line as run_command
from tests.kineto_file import kernel, of_rank, write


class Printed(NamedTuple):
    code: int
    out: str
    err: str
    kept: bool  # whether nothing was run for it


class Shell:
    """Commands that keep their answers in a folder of their own."""

    def __init__(self, folder: Path) -> None:
        self.cache = folder / "cache"

    def process(self, *args: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """A command as it is typed; what it imports stands among its errors."""
        return subprocess.run(
            [sys.executable, "-X", "importtime", "-m", "htk", *args],
            env=os.environ | {"HTK_CACHE_DIR": str(self.cache)} | environment,
            capture_output=True,
            text=True,
            check=False,
        )

    def htk(self, *args: str, **environment: str) -> Printed:
        """A command in this process."""
        runs = []

        def counted(argv: Sequence[str]) -> int:
            runs.append(argv)
            return run_command(list(argv))

        with pytest.MonkeyPatch.context() as patch:
            for name, value in ({"HTK_CACHE_DIR": str(self.cache)} | environment).items():
                patch.setenv(name, value)
            out = io.StringIO()
            err = io.StringIO()
            patch.setattr(sys, "stdout", out)
            patch.setattr(sys, "stderr", err)
            code = answer_or_run(args, counted)
            return Printed(code, out.getvalue(), err.getvalue(), not runs)

    def was_kept(self, *args: str, **environment: str) -> bool:
        """Whether a command is answered without being run."""
        answer = self.htk(*args, **environment)
        assert answer.code == 0, answer.err[-500:]
        return answer.kept

    def names(self, *args: str) -> list[str]:
        return [row["name"] for row in json.loads(self.htk(*args).out)["rows"]]


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = tmp_path / "run"
    folder.mkdir()
    return folder


def test_the_same_question_is_answered_without_opening_the_trace(shell: Shell, run: Path) -> None:
    path = str(write(run / "a.json", kernel("gemm", 1, 3), **of_rank(0)))
    first = shell.process("kernel_top", path)
    assert "pyarrow" in first.stderr and "gemm" in first.stdout
    again = shell.process("kernel_top", path)
    assert "pyarrow" not in again.stderr and again.stdout == first.stdout
    assert not shell.was_kept("kernel_top", path)  # here packages lie in other folders
    assert shell.was_kept("kernel_top", path)
    assert not shell.was_kept("kernel_top", path, "--n", "1")  # another question
    assert not shell.was_kept("kernel_top", path, HTK_ENGINE="pure")  # another reader


def test_a_folder_s_answer_outlives_files_that_appear_beside_it(shell: Shell, run: Path) -> None:
    write(run / "rank0.json", kernel("gemm", 1, 3), **of_rank(0))
    assert not shell.was_kept("kernel_top", str(run))
    (run.parent / "another run").mkdir()
    assert shell.was_kept("kernel_top", str(run))


def test_a_changed_file_is_read_anew(shell: Shell, run: Path) -> None:
    path = write(run / "rank0.json", kernel("gemm", 1, 3), **of_rank(0))
    asked = ("kernel_top", str(run), "--format", "json")
    assert shell.names(*asked) == shell.names(*asked) == ["gemm"]
    before = path.stat()
    write(path, kernel("norm", 1, 3), **of_rank(0))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))  # as copied with its times
    assert path.stat().st_size == before.st_size and shell.names(*asked) == ["norm"]
    write(run / "rank1.json", kernel("copy", 1, 5), **of_rank(1))
    assert sorted(shell.names(*asked)) == ["copy", "norm"]


def test_what_is_not_a_complete_answer_is_not_kept(shell: Shell, run: Path) -> None:
    path = str(write(run / "a.json", kernel("gemm", 1, 3), **of_rank(0)))
    (run / "b.json").write_text("")
    asked = ("kernel_top", path, str(run / "b.json"))
    first, second = shell.htk(*asked), shell.htk(*asked)
    assert "left out" in first.err and "left out" in second.err
    assert shell.htk("kernel_top", str(run / "none.json")).code == 3
    assert not shell.was_kept("doctor", path) and not shell.was_kept("doctor", path)
    assert not shell.was_kept("kernel_top", path, "--no-cache")
    assert not shell.was_kept("kernel_top", path, "--no-cache")


def test_a_damaged_answer_is_made_anew(shell: Shell, run: Path) -> None:
    path = str(write(run / "a.json", kernel("gemm", 1, 3), **of_rank(0)))
    whole = shell.htk("kernel_top", path).out
    (kept,) = (shell.cache / "answers").iterdir()
    kept.write_bytes(kept.read_bytes().replace(b"gemm", b"norm"))
    assert shell.htk("kernel_top", path).out == whole
    assert shell.was_kept("kernel_top", path)
    assert shell.htk("cache", "clear").code == 0
    assert not list((shell.cache / "answers").iterdir())


def test_what_a_pattern_or_a_home_folder_names_is_read_anew_too(
    shell: Shell, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = str(write(run / "rank0.json", kernel("gemm", 1, 3), **of_rank(0)))
    others = run.parent / "others"
    others.mkdir()
    write(others / "rank1.json", kernel("norm", 1, 4), **of_rank(1))
    monkeypatch.setenv("HOME", str(run.parent))
    for named in (str(others / "*.json"), str(run.parent / "**/rank[12].json"), "~/others"):
        asked = ("kernel_top", first, named, "--format", "json")
        (others / "rank2.json").unlink(missing_ok=True)
        assert shell.names(*asked) == shell.names(*asked) == ["norm", "gemm"]
        write(others / "rank2.json", kernel("copy", 1, 5), **of_rank(2))
        assert shell.names(*asked) == ["copy", "norm", "gemm"]


def test_an_output_that_takes_few_characters_takes_an_answer_made_or_kept(
    shell: Shell, run: Path
) -> None:
    path = str(write(run / "a.json", kernel("wörk", 1, 3), **of_rank(0)))
    asked = ("kernel_top", path, "--format", "csv")
    made = shell.process(*asked, PYTHONIOENCODING="ascii")
    assert made.returncode == 0 and '"w\\xf6rk"' in made.stdout, made.stderr[-500:]
    assert '"wörk"' in shell.process(*asked, PYTHONIOENCODING="utf-8").stdout  # as it was kept
    again = shell.process(*asked, PYTHONIOENCODING="ascii")
    assert "pyarrow" not in again.stderr and again.stdout == made.stdout
