"""Large tables that are mapped while a file is still being read."""

import gc
import gzip
import mmap
import os
import re
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from htk.base.columns.arrow import decode_texts
from htk.base.core.engine import load_core
from htk.base.io.spill import Spill, arrays_in_files, begin_writing
from htk.base.io.store import Store
from htk.traces.trace.opening import OpenOptions, open_trace

_kineto: Any = load_core()


def _takes_unnamed_files() -> bool:
    try:
        os.close(os.open(tempfile.gettempdir(), os.O_TMPFILE | os.O_RDWR, 0o600))
    except (AttributeError, OSError):
        return False
    return True


in_files = pytest.mark.skipif(
    _kineto is None or not _takes_unnamed_files(),
    reason="arrays lie in files on Linux, with the compiled core, on disks that take unnamed files",
)

SAMPLES = Path(__file__).parents[4] / "sample_traces"
ROWS = 1_500_000


def _large() -> pa.Table:
    codes = np.arange(ROWS) % 7 - 1
    return pa.table({"n": np.arange(ROWS), "name": decode_texts(codes, pa.array([*"abcdef"]))})


def test_a_large_table_is_mapped_and_leaves_no_file(tmp_path: Path) -> None:
    table = _large()
    before = pa.total_allocated_bytes()
    mapped = Spill(tmp_path / "cache")(table)
    assert mapped.equals(table) and mapped.schema.equals(table.schema, check_metadata=True)
    assert pa.total_allocated_bytes() - before < 1 << 20, "not in memory a second time"
    assert list((tmp_path / "cache").iterdir()) == []
    with pytest.raises(ValueError):
        mapped["n"].chunk(0).to_numpy()[0] = 5


def test_a_small_table_and_one_that_the_disk_refuses_stay_in_memory(tmp_path: Path) -> None:
    small = pa.table({"n": [1, 2]})
    assert Spill(tmp_path / "cache")(small) is small
    assert not (tmp_path / "cache").exists()
    (tmp_path / "file").write_text("")
    large = _large()
    assert Spill(tmp_path / "file")(large) is large


def test_what_is_read_with_it_is_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTK_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr("htk.base.io.spill._LARGE_BYTES", 1000)
    file = SAMPLES / "simulated/llama2-7b/rank0.pt.trace.json.gz"
    spilled, in_memory = open_trace(file), open_trace(file, OpenOptions(cache=False))
    assert in_memory.tables["kernels"].num_rows > 100
    for name in in_memory.tables:
        assert spilled.tables[name].equals(in_memory.tables[name]), name


@pytest.fixture
def one_budget() -> Iterator[None]:
    """Large blocks stay in memory again once a test is over."""
    gc.collect()  # what earlier tests left in files would go meanwhile
    yield
    _kineto.spill_beyond("", sys.maxsize)


def _unwritten_kb(mapped: mmap.mmap) -> int:
    """Return how much of the only file that this process maps under that size is not written."""
    fields = Path("/proc/self/smaps").read_text().split("VmFlags")
    (of_file,) = (text for text in fields if re.search(rf"Size: +{len(mapped) >> 10} kB", text))
    return sum(int(kb) for kb in re.findall(r"_Dirty: +(\d+) kB", of_file))


@in_files
def test_what_is_written_soon_holds_no_memory(tmp_path: Path) -> None:
    """The system alone begins to write half a minute later."""
    content = bytes(2017 * mmap.PAGESIZE)  # no other file of this process has as many pages
    with (tmp_path / "file").open("w+b") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
            assert mapped.find(b"x") < 0, "each page is looked at"
            if _unwritten_kb(mapped):
                pytest.skip("this file system keeps files in memory")
            file.seek(0)
            file.write(content)
            file.flush()
            begin_writing(file)
            last = time.monotonic() + 25
            while _unwritten_kb(mapped) and time.monotonic() < last:
                time.sleep(0.05)
            assert _unwritten_kb(mapped) == 0


@in_files
@pytest.mark.usefixtures("one_budget")
def test_arrays_beyond_the_budget_lie_in_files_and_hold_what_was_put_in(tmp_path: Path) -> None:
    random = np.random.default_rng(5)
    on_heap, before = _kineto.held()
    with arrays_in_files(tmp_path / "cache", on_heap + (6 << 20)):
        first = np.arange(500_000)  # 4 MB: within the budget
        assert _kineto.held()[1] == before
        second = np.zeros(1_000_000)
        assert _kineto.held()[1] - before >= second.nbytes > 0
        assert not second.any(), "zeros are zero in a file too"
        order = random.permutation(len(second))
        second[order] = np.arange(len(order))
        assert np.array_equal(np.argsort(second), order)
        grown = np.arange(400_000)
        grown.resize(3_000_000, refcheck=False)  # from the heap to a file, and on within one
        grown[-1] = 7
        grown.resize(6_000_000, refcheck=False)
        assert np.array_equal(grown[:400_000], np.arange(400_000))
        assert grown[2_999_999] == 7 and not grown[3_000_000:].any()
        assert list((tmp_path / "cache").iterdir()) == [], "files have no names"
    assert np.arange(3_000_000)[-1] == 2_999_999
    after = _kineto.held()[1] - before
    assert after >= second.nbytes + grown.nbytes, "what lies in files stays there"
    assert first[-1] == 499_999
    del second, grown, order
    assert _kineto.held()[1] == before


@in_files
@pytest.mark.usefixtures("one_budget")
def test_many_arrays_in_files_leave_a_process_its_open_files(tmp_path: Path) -> None:
    def open_files() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    before = open_files()
    with arrays_in_files(tmp_path, 0):
        arrays = [np.full(40_000, k) for k in range(400)]
        assert open_files() - before <= 130
        for k, array in enumerate(arrays):  # the last ones lie in files that are closed
            array.resize(80_000, refcheck=False)
            assert (array[:40_000] == k).all() and not array[40_000:].any()
    del arrays, array
    assert open_files() == before


@in_files
@pytest.mark.usefixtures("one_budget")
def test_where_no_file_can_be_made_arrays_stay_in_memory(tmp_path: Path) -> None:
    with arrays_in_files(tmp_path / "cache", 0):
        (tmp_path / "cache").rmdir()
        before = _kineto.held()
        there = np.arange(1_000_000)
        assert _kineto.held()[1] == before[1] and _kineto.held()[0] - before[0] >= there.nbytes
    assert int(there.sum()) == 499_999_500_000


@in_files
def test_threads_allocate_and_free_at_once(tmp_path: Path, one_budget: None) -> None:
    def work(seed: int) -> bool:
        with arrays_in_files(tmp_path, 2 << 20):
            random = np.random.default_rng(seed)
            kept = {}
            for k in range(60):
                size = int(random.integers(1, 200_000))
                kept[k % 7] = np.full(size, k), k
                if not all((array == value).all() for array, value in kept.values()):
                    return False
        return True

    before = _kineto.held()
    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(4)))
    assert _kineto.held() == before


@in_files
@pytest.mark.usefixtures("one_budget")
def test_a_file_read_into_files_gives_the_same_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTK_CACHE_DIR", str(tmp_path / "cache"))
    file = SAMPLES / "simulated/llama2-7b/rank0.pt.trace.json.gz"
    in_memory = open_trace(file, OpenOptions(cache=False))
    monkeypatch.setattr("htk.base.io.spill._COLUMNS_BYTES", 0)
    monkeypatch.setattr("htk.base.io.spill._SMALLEST_BYTES", 4096)
    sizes = []
    write_tables = Store.save_all

    def watched(*arguments: Any) -> Any:
        sizes.append(_kineto.held()[1])
        return write_tables(*arguments)

    monkeypatch.setattr(Store, "save_all", watched)
    read = open_trace(file)
    assert sizes[0] > 1 << 20, "tables are made of columns in files"
    for name in in_memory.tables:
        assert read.tables[name].equals(in_memory.tables[name]), name


@in_files
@pytest.mark.usefixtures("one_budget")
def test_a_small_file_that_unpacks_to_many_events_is_read_into_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    event = b',{"ph":"X","cat":"cpu_op","name":"a","pid":1,"tid":1,"ts":1,"dur":1}'
    packed = gzip.compress(b'{"traceEvents":[{}' + event * 1_000_000 + b"]}")
    (tmp_path / "rank0.json.gz").write_bytes(packed)
    assert len(packed) < 1 << 20
    monkeypatch.setenv("HTK_CACHE_DIR", str(tmp_path / "cache"))
    in_files, map_table = [], Spill.__call__

    def watched(spill: Spill, table: pa.Table) -> pa.Table:
        in_files.append(_kineto.held()[1])
        return map_table(spill, table)

    monkeypatch.setattr(Spill, "__call__", watched)
    assert open_trace(tmp_path / "rank0.json.gz").tables["cpu_ops"].num_rows == 1_000_000
    assert max(in_files) > 8 << 20


def test_a_large_file_is_read_where_no_cache_can_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("HTK_CACHE_DIR", str(tmp_path / "file" / "cache"))
    path = SAMPLES / "simulated/llama2-7b/rank0.pt.trace.json.gz"
    with pytest.warns(RuntimeWarning, match="nothing kept in .*: Not a directory"):
        trace = open_trace(path)
    assert not trace.failed and trace.tables["kernels"].num_rows > 1000
    with arrays_in_files(tmp_path / "file" / "cache", 0):
        assert np.ones(1_000_000).sum() == 1_000_000
