"""Answers that cannot be written: one line that names the file, exit code 2, and no half of one."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from htk.faces.cli.main import run_command_line
from tests.kineto_file import kernel, launch, of_rank, op, step, write

if sys.platform != "linux":
    pytest.skip("disks are made full and read-only as Linux does", allow_module_level=True)

ANSWERS = (
    ("kernel-top", "answer.csv"),
    ("kernel-top", "answer.json"),
    ("kernel-top", "answer.parquet"),
    ("kernel-top", "answer.xlsx"),
    ("summary", "answer.json"),
    ("doctor", "answer.txt"),
    ("report", "answer.html"),
    ("report", "answer.md"),
    ("timeline", "answer.html"),
    ("scrub", "scrubbed"),
)


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trace")
    events = [step(0, 0, 2000)]
    for k in range(60):
        events += [op(f"aten::op{k}", 20 * k, 9), launch(k + 1, 20 * k + 1)]
        events += [kernel(f"a_kernel_with_a_long_name_{k}", 20 * k + 5, 9, k + 1)]
    return write(folder / "rank0.json", *events, **of_rank(0))


@pytest.fixture
def full_disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No file grows beyond 1 kB: as a disk that is full, whoever runs this."""
    import resource

    # Python would keep compiled modules cut short, and not notice.
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.fixture(scope="module")
def read_only(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder on a disk that may only be read; without the right to mount, one without the right
    to write."""
    folder = tmp_path_factory.mktemp("disk")
    command = ["mount", "-t", "tmpfs", "-o", "size=64k,ro", "tmpfs", str(folder)]
    mounted = os.getuid() == 0 and not subprocess.run(command, capture_output=True).returncode
    if not mounted:
        folder.chmod(0o500)
        if os.getuid() == 0:
            pytest.skip("neither a mount nor a user without rights can be had here")
    yield folder
    if mounted:
        subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.parametrize(("command", "name"), ANSWERS)
def test_a_full_disk(
    trace: Path,
    command: str,
    name: str,
    tmp_path: Path,
    full_disk: None,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run_command_line([command, str(trace), "--no-cache", "-o", str(tmp_path / name)]) == 2
    said = capsys.readouterr().err
    assert "File too large" in said and "internal error" not in said
    assert said.strip().count("\n") == 0
    assert [file for file in tmp_path.rglob("*") if file.is_file()] == []


@pytest.mark.parametrize(("command", "name"), [ANSWERS[0], ANSWERS[6], ANSWERS[9]])
def test_a_disk_that_may_only_be_read(
    trace: Path, command: str, name: str, read_only: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command_line([command, str(trace), "--no-cache", "-o", str(read_only / name)]) == 2
    said = capsys.readouterr().err
    assert str(read_only) in said and said.strip().count("\n") == 0


def test_standard_output_on_a_full_disk(trace: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "htk", "kernel-top", str(trace)]
    cache = {**os.environ, "HTK_CACHE_DIR": str(tmp_path)}
    subprocess.run(command, stdout=subprocess.PIPE, env=cache, check=True)  # its answer is kept
    for words in (command, [*command, "--no-cache"]):
        with open("/dev/full", "w") as full:
            done = subprocess.run(
                words, stdout=full, stderr=subprocess.PIPE, text=True, env=cache, check=False
            )
        assert done.returncode == 2
        assert done.stderr == "htk: what was to be written is not whole: No space left on device\n"


@pytest.mark.skipif(os.name != "posix", reason="other systems tell it otherwise")
def test_a_reader_that_had_enough(trace: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "htk", "kernel-top", str(trace), "--no-cache"]
    done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, check=False)
    os.close(write)
    assert (done.returncode, done.stderr) == (0, b"")
