"""A disk that is full while a recording is read, spilled, kept or stored: the right answer from
memory, or one line that says why there is none; never a traceback, never another number."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from htk.recording.simulate.config import Config, check_config
from htk.recording.simulate.job import simulate_job
from tests.thinned import thinned

JOB = {
    "model": "tiny", "layers": 4, "hidden": 64, "heads": 2, "ffn": 128, "vocab": 100, "seq": 32,
    "gpus_per_node": 2, "steps": 2, "clock_offset_us": 300.0,
}  # fmt: skip

# A command of htk under which every array and table is large, and files may not exceed a size.
COMMAND = """
import resource, signal, sys
limit, words = int(sys.argv[1]), sys.argv[2:]
import htk.base.io.spill as spill, htk.traces.trace.joined as joined
from htk.__main__ import _one_line
from htk.faces.cli.main import run_command_line
import warnings
warnings.formatwarning = _one_line
spill._LARGE_BYTES = 4096
spill._SMALLEST_BYTES = 1024
spill._COLUMNS_BYTES = 0
joined._FEWEST_FILES = 2
joined.JoinedTables.exceeds_memory = True
joined._SHARE_OF_ARRAYS = 1 << 40
import htk.traces.trace.matching as matching
matching.WORK_PER_CALL = 1 << 30
if limit:
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
for question in words[0].split(","):
    code = run_command_line([question, *words[1:]])
    if code:
        sys.exit(code)
"""
QUESTIONS = "summary,kernel-top,collective-times,idle-breakdown"
SAID = ("No space left on device", "File too large")


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("job")
    simulate_job(check_config(Config(**JOB)), folder)  # type: ignore[arg-type]
    return folder


@pytest.fixture(scope="module")
def answers(job: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """What is answered where the disk has room."""
    done = asked(0, tmp_path_factory.mktemp("roomy"), QUESTIONS, str(job))
    assert done.returncode == 0 and len(done.stdout) > 1000 and not done.stderr
    return done.stdout


def asked(limit: int, cache: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", COMMAND, str(limit), *words]
    setting = {**os.environ, "HTK_CACHE_DIR": str(cache)}
    return subprocess.run(command, env=setting, capture_output=True, text=True)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Callable[[int], Path]]:
    """Makes disks of so many kilobytes."""
    mounted = []

    def mount(kilobytes: int) -> Path:
        place = tmp_path / f"disk{kilobytes}"
        place.mkdir()
        words = ["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "none", str(place)]
        if not shutil.which("mount") or subprocess.run(words, capture_output=True).returncode:
            pytest.skip("needs the right to mount a small disk; files of limited size are tested")
        mounted.append(place)
        return place

    yield mount
    for place in mounted:
        subprocess.run(["umount", "-l", str(place)], check=True)


def check(done: subprocess.CompletedProcess[str], answer: str, where: Path) -> bool:
    """Return whether anything was said; what was is one line about the disk."""
    assert done.returncode == 0, done.stderr
    assert done.stdout == answer
    lines = done.stderr.splitlines()
    assert len(lines) <= 1, done.stderr
    for line in lines:
        assert line.startswith(f"htk: nothing kept in {where}") and line.endswith(SAID)
    return bool(lines)


@pytest.mark.parametrize("kilobytes", thinned([300, 4]))
def test_a_disk_that_fills_up_changes_no_answer(
    kilobytes: int, job: Path, answers: str, small_disk: Callable[[int], Path]
) -> None:
    disk = small_disk(kilobytes)
    assert check(asked(0, disk, QUESTIONS, str(job)), answers, disk)


@pytest.mark.parametrize("limit", thinned([1, 40_000]))
def test_files_that_may_not_grow_change_no_answer(
    limit: int, job: Path, answers: str, tmp_path: Path
) -> None:
    cache = tmp_path / "cache"
    assert check(asked(limit, cache, QUESTIONS, str(job)), answers, cache)


def test_a_store_on_a_full_disk_names_what_it_lacks(
    job: Path, small_disk: Callable[[int], Path], tmp_path: Path
) -> None:
    disk = small_disk(300)
    done = asked(0, tmp_path / "cache", "map", str(job), "--store", str(disk / "store"))
    assert done.returncode == 3 and "Traceback" not in done.stderr
    assert "No space left on device" in done.stderr
    assert len(done.stderr.splitlines()) <= 4  # one for each file
    assert not [f for f in (disk / "store").rglob("*") if f.name.startswith(".new-")]
