"""Files and caches of others: no permission, other umasks, and a clock that goes back."""

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from htk.answers.ask import ask_trace
from htk.traces.trace.opening import OpenOptions, open_trace
from tests.kineto_file import kernel, of_rank, write

NOBODY = 65534
on_linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="users of Linux")
Rows = list[dict[str, object]]


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Yield a folder that every user may enter, with two ranks; its cache is `cache`."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    (folder / "cache").mkdir()
    (folder / "cache").chmod(0o1777)
    (folder / "run").mkdir()
    monkeypatch.setenv("HTK_CACHE_DIR", str(folder / "cache"))
    for rank in (0, 1):
        path = write(folder / "run" / f"rank{rank}.json", kernel("gemm", 1, 2), **of_rank(rank))
        path.chmod(0o644)
    yield folder
    shutil.rmtree(folder)


def kernels(run: Path, *, cache: bool) -> tuple[Rows, int]:
    """Return the kernels of a run, and how many files were left out."""
    trace = open_trace(run, OpenOptions(cache=cache))
    return ask_trace(trace, "kernel_top").to_pylist(), len(trace.failed)


def as_nobody(check: Callable[[], bool]) -> bool:
    """Return what a check says in a process of another user, who has nothing of ours."""
    child = os.fork()
    if child == 0:
        code = 2
        try:
            if os.geteuid() == 0:
                os.setgroups([])
                os.setgid(NOBODY)
                os.setuid(NOBODY)
            code = 0 if check() else 1
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@on_linux
def test_a_rank_that_may_not_be_read_is_one_failed_file(shared: Path) -> None:
    run = shared / "run"
    rows, _ = kernels(run, cache=False)  # imports what another user could not
    (run / "rank0.json").chmod(0)
    assert as_nobody(lambda: kernels(run, cache=False)[1] == 1)
    assert as_nobody(lambda: kernels(run, cache=False)[0][0]["count"] == 1)
    assert rows[0]["count"] == 2


@on_linux
@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077, 0o277])
def test_users_of_one_cache_answer_alike_whatever_their_umask(shared: Path, umask: int) -> None:
    run = shared / "run"
    before = os.umask(umask)
    try:
        rows, failed = kernels(run, cache=True)
    finally:
        os.umask(before)
    assert failed == 0 and rows[0]["count"] == 2
    assert as_nobody(lambda: kernels(run, cache=True) == (rows, 0))
    assert kernels(run, cache=True) == (rows, 0)


@pytest.mark.parametrize("years", [-30, 30])
def test_a_clock_that_jumps_changes_no_answer(shared: Path, years: int) -> None:
    run = shared / "run"
    rows, _ = kernels(run, cache=True)
    then = time.time() + years * 365 * 86_400
    for path in (shared / "cache").rglob("*"):
        os.utime(path, (then, then))
    assert kernels(run, cache=True) == (rows, 0)
    write(run / "rank0.json", kernel("gemm", 1, 2), kernel("gemm", 4, 2), **of_rank(0))
    os.utime(run / "rank0.json", (then, then))
    assert kernels(run, cache=True)[0][0]["count"] == 3
