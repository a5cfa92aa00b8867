"""The cache: whole or not at all, for two at once, within its size."""

import io
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from htk.arrow import texts
from htk.errors import UsageError
from htk.parser import Parsed, ParseOptions, Source
from htk.store import MemoryEntry, Store


def parsed(rows: int = 3) -> Parsed:
    table = pa.table({"n": np.arange(rows), "name": texts(["a", None, "b"] * (rows // 3))})
    return Parsed({"cpu_ops": table}, 4, 8, {"host": "h"})


def test_what_is_saved_is_found_as_it_was(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.save("k", parsed(), "t.json")
    entry = Store(tmp_path).find("k")
    assert entry is not None
    assert entry.tables["cpu_ops"].equals(parsed().tables["cpu_ops"])
    assert (entry.parsed.rank, entry.parsed.world_size) == (4, 8)
    assert entry.parsed.facts == {"host": "h"}
    assert [e.source for e in store.list()] == ["t.json"]


def test_a_file_that_changed_is_another(tmp_path: Path) -> None:
    store = Store(tmp_path)

    def key(identity: str, *, keep: bool = False) -> str:
        source = Source("t", io.BytesIO, 1, identity)
        return store.key(source, "kineto", ParseOptions(keep))

    assert key("a") == key("a") != key("b")
    assert key("a") != key("a", keep=True)


def test_derived_tables_are_made_once(tmp_path: Path) -> None:
    calls = []

    def make() -> pa.Table:
        calls.append(1)
        return pa.table({"x": [1]})

    store = Store(tmp_path)
    for entry in (store.save("k", parsed()), store.find("k")):
        assert entry is not None
        assert entry.derived("links", make).to_pydict() == {"x": [1]}
    assert calls == [1]


@pytest.mark.parametrize("damage", ["meta.json", "cpu_ops.arrow"])
def test_a_damaged_entry_is_dropped(tmp_path: Path, damage: str) -> None:
    store = Store(tmp_path)
    store.save("k", parsed())
    file = tmp_path / "k" / damage
    file.write_bytes(file.read_bytes()[:20])
    assert store.find("k") is None
    assert not (tmp_path / "k").exists()


def test_the_least_recently_used_goes_first(tmp_path: Path) -> None:
    store = Store(tmp_path, limit_bytes=1 << 40)
    for k, key in enumerate("abc"):
        store.save(key, parsed(3000))
        os.utime(tmp_path / key / "meta.json", (k, k))
    size = store.list()[0].size_bytes
    Store(tmp_path, limit_bytes=2 * size + 100).save("d", parsed(3000))
    assert {e.folder.name for e in store.list()} == {"c", "d"}


def test_clear(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.save("k", parsed())
    assert store.clear() == 1
    assert store.list() == [] and list(tmp_path.iterdir()) == []


def test_where_nothing_can_be_kept_it_stays_in_memory(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.warns(RuntimeWarning, match="nothing kept"):
        entry = Store(blocked / "cache").save("k", parsed())
    assert isinstance(entry, MemoryEntry)
    assert entry.tables["cpu_ops"].num_rows == 3


def test_a_full_disk_fails_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("htk.store._write", full)
    with pytest.warns(RuntimeWarning, match="No space left"):
        entry = Store(tmp_path).save("k", parsed())
    assert isinstance(entry, MemoryEntry)
    assert list(tmp_path.iterdir()) == []


def test_a_kill_in_the_middle_leaves_no_entry(tmp_path: Path) -> None:
    code = (
        "import sys, time, htk.store as s; from tests.htk.test_store import parsed\n"
        "def slow(*a): open(sys.argv[1] + '/started', 'w'); time.sleep(60)\n"
        "s._write = slow; s.Store(s.Path(sys.argv[1])).save('k', parsed())"
    )
    child = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)])
    for _ in range(600):
        if (tmp_path / "started").exists():
            break
        time.sleep(0.05)
    child.send_signal(signal.SIGKILL)
    child.wait()
    (tmp_path / "started").unlink()
    store = Store(tmp_path)
    assert store.find("k") is None and store.list() == []
    store._sweep(0)
    assert list(tmp_path.iterdir()) == []


def _save(root: str) -> int:
    entry = Store(Path(root)).save("k", parsed(30_000))
    return entry.tables["cpu_ops"].num_rows


def test_two_processes_at_once(tmp_path: Path) -> None:
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        assert pool.map(_save, [str(tmp_path)] * 6) == [30_000] * 6
    assert [e.folder.name for e in Store(tmp_path).list()] == ["k"]
    assert {p.name for p in tmp_path.iterdir()} == {"k"}


def test_only_the_user_can_look(tmp_path: Path) -> None:
    root = tmp_path / "cache"
    Store(root).save("k", parsed())
    assert root.stat().st_mode & 0o077 == 0


def test_a_limit_that_is_none_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTK_CACHE_LIMIT", "plenty")
    with pytest.raises(UsageError, match="number of bytes"):
        Store()
