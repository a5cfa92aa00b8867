"""The cache: whole or not at all, for two at once, within its size."""

import io
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from htk.base.core.parser import Parsed, ParseOptions, Source
from htk.base.errors import UsageError
from htk.base.io.entry import MemoryEntry, StoredEntry
from htk.base.io.store import Store
from htk.base.schema import TEXT
from tests.htk.base.io.parsed_tables import parsed
from tests.kineto_file import of_rank, op, write


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
        return store.key(source, ParseOptions(keep))

    assert key("a") == key("a") != key("b")
    moved = store.key(Source("folder/t", io.BytesIO, 1, "a"), ParseOptions())
    assert moved == key("a")
    assert key("a") != key("a", keep=True)


@pytest.mark.parametrize("rows", [[1], []])
def test_derived_tables_are_made_once(tmp_path: Path, rows: list[int]) -> None:
    calls = []

    def make() -> pa.Table:
        calls.append(1)
        return pa.table({"x": pa.array(rows, pa.int64())})

    store = Store(tmp_path)
    for entry in (store.save("k", parsed()), store.find("k")):
        assert entry is not None
        assert entry.derived("links", make).to_pydict() == {"x": rows}
    assert calls == [1]


def test_tables_that_were_let_go_are_read_again(tmp_path: Path) -> None:
    entry = Store(tmp_path).save("k", parsed())
    links = pa.table({"x": [1, 2]})
    first = entry.tables["cpu_ops"], entry.derived("links", lambda: links)
    entry.release()
    assert entry.tables["cpu_ops"] is not first[0]
    assert entry.tables["cpu_ops"].equals(first[0])
    assert entry.derived("links", links.schema.empty_table).equals(links), "read, not made again"


def test_parsed_tables_are_let_go_by_themselves_and_their_rows_stay_known(tmp_path: Path) -> None:
    entry = Store(tmp_path).save("k", parsed())
    first, links = entry.tables["cpu_ops"], entry.derived("links", lambda: pa.table({"x": [1]}))
    entry.release_parsed()
    assert entry.rows("cpu_ops") == first.num_rows and entry.rows("nothing") == 0
    assert MemoryEntry(parsed()).rows("cpu_ops") == first.num_rows
    assert MemoryEntry(parsed()).rows("nothing") == 0
    assert entry.tables["cpu_ops"] is not first
    assert entry.tables["cpu_ops"].equals(first)
    assert entry.derived("links", links.schema.empty_table) is links


def test_texts_keep_their_codes(tmp_path: Path) -> None:
    names = pa.DictionaryArray.from_arrays(
        pa.array([2, None, 0, 2], pa.int32()), pa.array(["c", "unused", "a"])
    )
    schema = pa.schema([pa.field("name", TEXT, metadata={"doc": "What it is called."})])
    table = pa.table([names], schema=schema)
    Store(tmp_path).save("k", Parsed({"whole": table, "none": schema.empty_table()}))
    entry = Store(tmp_path).find("k")
    assert entry is not None
    found = entry.tables["whole"]["name"].chunk(0)
    assert found.indices.to_pylist() == [2, None, 0, 2]
    assert found.dictionary.to_pylist() == ["c", "unused", "a"]
    assert entry.tables["whole"].schema.equals(schema, check_metadata=True)
    assert entry.tables["none"].equals(schema.empty_table())


@pytest.mark.parametrize("damage", ["meta.json", "parsed.arrow"])
@pytest.mark.parametrize("left", [0, 20, None])
def test_a_damaged_entry_is_dropped_and_made_anew(
    tmp_path: Path, damage: str, left: int | None
) -> None:
    store = Store(tmp_path)
    store.save("k", parsed())
    file = tmp_path / "k" / damage
    whole = file.read_bytes()
    file.unlink()
    if left is not None:
        file.write_bytes(whole[:left])
    assert store.find("k") is None
    assert not (tmp_path / "k").exists()
    assert isinstance(store.save("k", parsed()), StoredEntry)


def entry_files(root: Path) -> list[str]:
    return sorted(f.name for f in (root / "k").iterdir())


def two_tables(first: int = 0) -> Parsed:
    """Two tables of one shape and size, so that one can pass for the other."""
    schema = pa.schema([("n", pa.int64())])
    tables = {
        name: pa.table({"n": np.arange(start, start + 40)}, schema=schema)
        for name, start in (("cpu_ops", first), ("launches", first + 1000))
    }
    return Parsed(tables, 4, 8, {"host": "h"})


def opened_or_made(store: Store, key: str, first: int = 0) -> dict[str, list[int]]:
    """What a user is answered: from the entry, or from the trace."""
    entry = store.find(key) or store.save(key, two_tables(first))
    links = entry.derived("links", lambda: pa.table({"n": [first, first + 7]}))
    tables = {name: table["n"].to_pylist() for name, table in entry.tables.items()}
    return tables | {"links": links["n"].to_pylist(), "rank": [entry.parsed.rank or 0]}


def damages(whole: bytes) -> Iterator[bytes]:
    """A file overwritten here and there, cut, emptied, and longer than it was."""
    for start in range(0, len(whole), 13):
        yield whole[:start] + bytes([whole[start] ^ 0x10]) + whole[start + 1 :]
    for length in range(0, len(whole), 29):
        yield whole[:length]
    yield whole + whole
    yield whole + b"\0"


@pytest.mark.parametrize(
    "name", ["parsed.arrow", "derived-links.arrow", "meta.json", "checked.txt"]
)
def test_damage_to_any_file_of_an_entry_changes_no_answer(tmp_path: Path, name: str) -> None:
    store = Store(tmp_path)
    expected = opened_or_made(store, "k")
    assert opened_or_made(Store(tmp_path), "k") == expected
    assert name in entry_files(tmp_path)
    whole = (tmp_path / "k" / name).read_bytes()
    for damaged in damages(whole):
        (tmp_path / "k" / name).write_bytes(damaged)
        assert opened_or_made(store, "k") == expected
    assert opened_or_made(store, "k") == expected


def test_swapped_files_change_no_answer(tmp_path: Path) -> None:
    """Within an entry, between the entries of two files, and another table's derived one."""
    store = Store(tmp_path)
    expected = {key: opened_or_made(store, key, first) for key, first in (("k", 0), ("m", 500))}
    assert expected["k"] != expected["m"]
    names = ["parsed.arrow", "derived-links.arrow", "meta.json", "checked.txt"]
    for key, first in (("k", 0), ("m", 500)):  # noted as checked too
        opened_or_made(store, key, first)
    pairs = [(f"k/{name}", f"m/{name}") for name in names]
    pairs += [("k/parsed.arrow", "k/derived-links.arrow")]
    for one, other in pairs:
        first_file, second_file = tmp_path / one, tmp_path / other
        aside = tmp_path / "aside"
        first_file.rename(aside)
        second_file.rename(first_file)
        aside.rename(second_file)
        assert opened_or_made(store, "k", 0) == expected["k"], (one, other)
        assert opened_or_made(store, "m", 500) == expected["m"], (one, other)


def test_what_was_checked_is_not_read_whole_again_until_somebody_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened_or_made(Store(tmp_path), "k")
    opened_or_made(Store(tmp_path), "k")  # checks the derived table, which was new
    read: list[int] = []

    def counted(content: pa.Buffer) -> int:
        read.append(content.size)
        return zlib.crc32(content)

    monkeypatch.setattr("htk.base.io.table_file.compute_checksum", counted)
    opened_or_made(Store(tmp_path), "k")
    assert read == []
    os.utime(tmp_path / "k" / "parsed.arrow")
    opened_or_made(Store(tmp_path), "k")
    assert len(read) == 1
    monkeypatch.setattr("htk.base.io.table_file.boot_id", lambda: "another")
    opened_or_made(Store(tmp_path), "k")
    assert len(read) == 3


def test_verify_removes_what_is_not_as_written(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for key in ("k", "m", "o"):
        store.save(key, two_tables(), f"{key}.json")
    assert store.verify() == (3, [])
    file = tmp_path / "m" / "parsed.arrow"
    facts, whole = file.stat(), file.read_bytes()
    file.write_bytes(whole[:200] + bytes([whole[200] ^ 1]) + whole[201:])
    os.utime(file, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    (tmp_path / "o" / "parsed.arrow").unlink()
    whole_ones, damaged = store.verify()
    assert (whole_ones, sorted(damaged)) == (1, ["m.json", "o.json"])
    assert [e.source for e in store.list()] == ["k.json"]
    assert store.verify() == (1, [])


def test_what_one_may_only_read_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(tmp_path)
    store.save("k", parsed())

    def refused(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("os.utime", refused)
    entry = store.find("k")
    assert entry is not None and entry.tables["cpu_ops"].num_rows == 3


def test_tables_outlive_the_removal_of_their_entry(
    tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    store = Store(tmp_path)
    entry = store.save("k", parsed())
    assert Store(tmp_path).clear() == 1
    assert entry.tables["cpu_ops"].equals(parsed().tables["cpu_ops"])
    assert entry.derived("links", lambda: pa.table({"x": [1]})).num_rows == 1
    assert not [w for w in recwarn if w.category is RuntimeWarning]  # garbage may warn too


def test_the_least_recently_used_goes_first(tmp_path: Path) -> None:
    store = Store(tmp_path, limit_bytes=1 << 40)
    for k, key in enumerate("abc"):
        store.save(key, parsed(3000))
        os.utime(tmp_path / key / "meta.json", (k, k))
    size = store.list()[0].size_bytes
    Store(tmp_path, limit_bytes=5 * size // 2).save("d", parsed(3000))
    assert {e.folder.name for e in store.list()} == {"c", "d"}


def test_of_a_full_cache_more_goes_than_must(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each entry would have thousands of others counted again."""
    store = Store(tmp_path, limit_bytes=1 << 40)
    store.save("first", parsed(300))
    full = Store(tmp_path, limit_bytes=48 * store.list()[0].size_bytes)
    counts = []
    sweep = Store._sweep_leftovers
    monkeypatch.setattr(Store, "_sweep_leftovers", lambda *a: (counts.append(1), sweep(*a))[1])
    for k in range(96):
        full.save(f"{k}", parsed(300))
        assert sum(e.size_bytes for e in store.list()) <= full.limit_bytes
    assert len(counts) <= 1 + 48 / 3 + 1  # a sixteenth of 48 is three


def test_what_was_joined_goes_before_what_was_parsed(tmp_path: Path) -> None:
    store = Store(tmp_path, limit_bytes=1 << 40)
    for k, key in enumerate("abj"):
        store.save(key, parsed(3000), is_joined=key == "j")
        os.utime(tmp_path / key / "meta.json", (k, k))
    assert [(e.folder.name, e.is_joined) for e in store.list()] == [
        ("j", True), ("b", False), ("a", False)
    ]  # fmt: skip
    size = store.list()[0].size_bytes
    Store(tmp_path, limit_bytes=7 * size // 2).save("d", parsed(3000))
    assert {e.folder.name for e in store.list()} == {"a", "b", "d"}


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


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of one megabyte."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(place)]
    if not shutil.which("mount") or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("needs the right to mount a small disk")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def test_nothing_kept_is_one_line_of_a_command(tmp_path: Path) -> None:
    write(tmp_path / "t.json", op("a", 1, 1), **of_rank(0))
    (tmp_path / "file").write_text("")
    command = [sys.executable, "-m", "htk", "op-breakdown", str(tmp_path / "t.json")]
    setting = {**os.environ, "HTK_CACHE_DIR": str(tmp_path / "file" / "cache")}
    done = subprocess.run(command, env=setting, capture_output=True, text=True)
    assert done.returncode == 0
    assert done.stderr == f"htk: nothing kept in {tmp_path}/file/cache: Not a directory\n"


def test_a_full_disk_fails_nothing(full_disk: Path) -> None:
    store = Store(full_disk)
    with pytest.warns(RuntimeWarning, match="No space left"):
        entry = store.save("k", parsed(300_000))
    assert isinstance(entry, MemoryEntry)
    assert list(full_disk.iterdir()) == []
    small = store.save("small", parsed())
    assert isinstance(small, StoredEntry)
    with pytest.warns(RuntimeWarning, match="No space left"):
        big = small.derived("big", lambda: pa.table({"n": np.arange(300_000)}))
    assert big.num_rows == 300_000
    assert sorted(f.name for f in (full_disk / "small").iterdir()) == [
        "checked.txt",
        "meta.json",
        "parsed.arrow",
    ]


def test_a_disk_that_fails_where_none_can_be_mounted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("htk.base.io.table_file.write_tables", full)
    with pytest.warns(RuntimeWarning, match="No space left"):
        entry = Store(tmp_path).save("k", parsed())
    assert isinstance(entry, MemoryEntry)
    assert list(tmp_path.iterdir()) == []


def test_a_kill_in_the_middle_leaves_no_entry(tmp_path: Path) -> None:
    code = (
        "import sys, time, htk.base.io.store as s, htk.base.io.table_file as f\n"
        "from tests.htk.base.io.parsed_tables import parsed\n"
        "def slow(*a): open(sys.argv[1] + '/started', 'w'); time.sleep(600)\n"
        "f.write_tables = slow; s.Store(s.Path(sys.argv[1])).save('k', parsed())"
    )
    child = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)])
    while not (tmp_path / "started").exists() and child.poll() is None:
        time.sleep(0.05)
    child.send_signal(signal.SIGKILL)
    child.wait()
    (tmp_path / "started").unlink()
    store = Store(tmp_path)
    assert store.find("k") is None and store.list() == []
    (left,) = tmp_path.glob(".new-*")
    os.utime(left, (1, 1))  # old; on Linux it goes without that, see test_temporary
    store.save("other", parsed())
    assert {p.name for p in tmp_path.iterdir()} == {"other", "kept"}


def _save(root: str) -> int:
    """Keep and find the same few entries again and again, with room for about two of them."""
    rows = 0
    for turn in range(60):
        store = Store(Path(root), limit_bytes=1_000_000)
        key = f"k{turn % 4}"
        entry = store.find(key) or store.save(key, parsed(30_000))
        entry.derived("links", lambda: pa.table({"x": [1]}))
        rows += entry.tables["cpu_ops"].num_rows
    return rows


def test_who_asks_while_a_slow_disk_still_writes_does_not_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The entry is half written: nobody sees it, another reader keeps its own, and in the end there
    is one, whole."""
    halfway, go_on = threading.Event(), threading.Event()
    fill = Store._fill

    def slowly(store: Store, *arguments: Any) -> None:
        fill(store, *arguments)
        if threading.current_thread() is slow:
            halfway.set()
            assert go_on.wait(180)

    monkeypatch.setattr(Store, "_fill", slowly)
    kept = []
    slow = threading.Thread(target=lambda: kept.append(Store(tmp_path).save("k", parsed(), "t")))
    slow.start()
    assert halfway.wait(180)
    other = Store(tmp_path)
    assert other.find("k") is None and other.list() == []
    entry = other.save("k", parsed(), "t")
    assert entry.tables["cpu_ops"].equals(parsed().tables["cpu_ops"])
    go_on.set()
    slow.join()
    assert kept[0].tables["cpu_ops"].equals(parsed().tables["cpu_ops"])
    assert [e.source for e in other.list()] == ["t"]
    assert [folder.name for folder in tmp_path.iterdir() if folder.is_dir()] == ["k"]


def test_several_processes_at_once(tmp_path: Path) -> None:
    with multiprocessing.get_context("spawn").Pool(3) as pool:
        assert pool.map(_save, [str(tmp_path)] * 3) == [60 * 30_000] * 3
    kept = {e.folder.name for e in Store(tmp_path).list()}
    assert kept and {p.name for p in tmp_path.iterdir()} == kept | {"kept"}


def test_only_the_user_can_look(tmp_path: Path) -> None:
    root = tmp_path / "cache"
    Store(root).save("k", parsed())
    assert root.stat().st_mode & 0o077 == 0


def test_its_place_is_the_users_choice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTK_CACHE_DIR", str(tmp_path / "here"))
    Store().save("k", parsed())
    assert (tmp_path / "here" / "k" / "meta.json").exists()


def test_a_limit_that_is_none_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTK_CACHE_LIMIT", "plenty")
    with pytest.raises(UsageError, match="number of bytes"):
        Store()
