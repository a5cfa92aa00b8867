"""What is not whole goes with its process, and no sooner."""

import multiprocessing
import os
import signal
import sys
import time
from pathlib import Path

import pytest

from htk.base.io import temporary
from htk.base.io.object_folder import ObjectFolder
from htk.base.io.store import Store
from htk.base.io.temporary import is_given_up, temporary_folder, temporary_name
from tests.htk.base.io.parsed_tables import parsed

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="elsewhere nothing tells whether a process is gone"
)
BYTES = 50_000


def _write_and_wait(root: str, ready: str) -> None:
    folder = temporary_folder(Path(root))
    (folder / "parsed.arrow").write_bytes(bytes(BYTES))
    Path(ready).touch()
    time.sleep(600)


@pytest.fixture
def writer(tmp_path: Path) -> multiprocessing.process.BaseProcess:
    (tmp_path / "cache").mkdir()
    ready = tmp_path / "ready"
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=_write_and_wait, args=(str(tmp_path / "cache"), str(ready)))
    process.start()
    while not ready.exists():
        assert process.is_alive()
        time.sleep(0.02)
    return process


def test_a_killed_writer_s_folder_goes_and_one_at_work_counts(
    tmp_path: Path, writer: multiprocessing.process.BaseProcess
) -> None:
    root = tmp_path / "cache"
    try:
        Store(root).save("a", parsed(3000))
        (unfinished,) = root.glob(".new-*")
        size = Store(root).list()[0].size_bytes
        # Two entries would fit, but not with what is being written.
        Store(root, limit_bytes=2 * size + BYTES // 2).save("b", parsed(3000))
        assert [e.folder.name for e in Store(root).list()] == ["b"] and unfinished.exists()
    finally:
        assert writer.pid is not None
        os.kill(writer.pid, signal.SIGKILL)
        writer.join()
    Store(root, limit_bytes=2 * size + BYTES // 2).save("c", parsed(3000))
    assert not unfinished.exists()
    assert {e.folder.name for e in Store(root).list()} == {"b", "c"}


def test_of_processes_elsewhere_only_the_age_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / temporary_name()
    monkeypatch.setattr(temporary, "_name_namespace", lambda: "another1")
    foreign = tmp_path / temporary_name().replace(f"-{os.getpid()}-", "-4194305-")
    monkeypatch.undo()
    gone = tmp_path / temporary_name().replace(f"-{os.getpid()}-", "-4194305-")  # beyond all
    odd = [tmp_path / name for name in (".new-", ".new-x", ".new-1-2", ".new--99999999999999-x")]
    for path in (own, foreign, gone, *odd, tmp_path / "entry"):
        path.mkdir()
    assert [path.name for path in tmp_path.iterdir() if is_given_up(path)] == [gone.name]
    long_ago = time.time() - temporary.STALE_S - 1
    for path in (own, foreign, *odd, tmp_path / "entry"):
        os.utime(path, (long_ago, long_ago))
    assert {p.name for p in tmp_path.iterdir() if not is_given_up(p)} == {"entry"}


def test_a_store_that_machines_share_loses_what_killed_writers_left(tmp_path: Path) -> None:
    folder = ObjectFolder(str(tmp_path))
    folder.put_bytes(b"1", "kept")
    left = tmp_path / temporary_name("entry.zip").replace(f"-{os.getpid()}-", "-4194305-")
    left.write_bytes(b"half")
    at_work = tmp_path / temporary_name("entry.zip")
    at_work.write_bytes(b"half")
    folder.make_folder()
    assert {path.name for path in tmp_path.iterdir()} == {"kept", at_work.name}
