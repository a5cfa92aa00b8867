"""Files from outside are read in a process of its own: its end is one failed file."""

import gc
import gzip
import io
import os
import pickle
import signal
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import fsspec
import pyarrow as pa
import pytest

from htk.base.core import child_process
from htk.base.core.parser import Parsed, ParseOptions, Source
from htk.base.errors import HtkError, TraceError, UsageError
from htk.base.io.raw_files import open_guarded
from htk.parsers import flight_recorder
from htk.quantities.derived import registry
from htk.traces.trace import confined
from htk.traces.trace.opening import OpenOptions, Progress, open_trace
from htk.traces.trace.trace import Trace
from tests.kineto_file import kernel, of_rank, step, write
from tests.parsers.hostile_values import dump

FRESH = OpenOptions(cache=False)


@pytest.fixture(params=["forked", "spawned"])
def way(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, no_reader_waits: None
) -> None:
    """Start processes in each of the ways."""
    if request.param == "forked" and sys.platform != "linux":
        pytest.skip("processes are forked on Linux alone")
    monkeypatch.setattr(child_process, "may_fork", lambda: request.param == "forked")


@pytest.fixture
def forked(monkeypatch: pytest.MonkeyPatch, no_reader_waits: None) -> None:
    """Copy this process, with what stands in for a parser in it."""
    if sys.platform != "linux":
        pytest.skip("processes are forked on Linux alone")
    monkeypatch.setattr(child_process, "may_fork", lambda: True)


def dumps(folder: Path, count: int) -> Path:
    for rank in range(count):
        (folder / f"dump_rank_{rank}").write_bytes(pickle.dumps(dump(), 2))
    return folder


def ranks(trace: Trace) -> list[int | None]:
    return [file.rank for file in trace.files]


def hurting(monkeypatch: pytest.MonkeyPatch, hurt: Callable[[], object]) -> None:
    """Have the reading of rank 1 do something that no parser does."""
    parse = flight_recorder.parse

    def parse_or_hurt(source: Source, options: ParseOptions) -> Parsed:
        if source.name.endswith("rank_1"):
            hurt()
        return parse(source, options)

    monkeypatch.setattr(flight_recorder, "parse", parse_or_hurt)


@pytest.mark.usefixtures("way")
def test_a_process_reads_what_this_one_reads(tmp_path: Path) -> None:
    write(tmp_path / "rank0.json", kernel("gemm", 1, 2), kernel("copy", 4, 2), **of_rank(0))
    data = (tmp_path / "rank0.json").read_bytes()
    system = fsspec.filesystem("memory")
    system.pipe("/confined/rank0.json.gz", gzip.compress(data))
    here = open_trace(tmp_path / "rank0.json", FRESH)
    for there in (
        open_trace(tmp_path / "rank0.json", OpenOptions(cache=False, confined=True)),
        open_trace("memory://confined/rank0.json.gz", FRESH),
    ):
        for name in here.tables:
            assert without_file(there.tables[name]).equals(without_file(here.tables[name])), name


def without_file(table: pa.Table) -> pa.Table:
    return table.select([c for c in table.column_names if c not in ("file", "file_bytes")])


@pytest.mark.usefixtures("way")
def test_packed_and_archived_dumps_and_the_cache(tmp_path: Path) -> None:
    data = pickle.dumps(dump(), 2)
    (tmp_path / "dump_rank_0.pickle.gz").write_bytes(gzip.compress(data))
    with zipfile.ZipFile(tmp_path / "more.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("dump_rank_1", data)
        archive.writestr("dump_rank_2", data)
    dumps(tmp_path, 4)
    (tmp_path / "dump_rank_0").unlink()
    first = open_trace(tmp_path, OpenOptions())
    again = open_trace(tmp_path, OpenOptions())
    assert not first.failed and not again.failed
    assert {0, 1, 2, 3} == set(ranks(first)) == set(ranks(again))
    assert first.tables["collectives"].equals(again.tables["collectives"])


@pytest.mark.usefixtures("way")
def test_more_memory_than_a_file_may_take(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if sys.platform != "linux":
        pytest.skip("only Linux keeps such a limit")
    dumps(tmp_path, 3)
    many = dump() | {"entries": [{} for _ in range(3_000_000)]}  # 12 MB that take 200
    (tmp_path / "dump_rank_1").write_bytes(pickle.dumps(many, 2))
    monkeypatch.setenv("HTK_PARSE_MEMORY", str(100 << 20))
    trace = open_trace(tmp_path, FRESH)
    assert ranks(trace) == [0, 2]
    ((_, why),) = trace.failed
    assert "memory" in why and "HTK_PARSE_MEMORY" in why and "\n" not in why


@pytest.mark.usefixtures("forked")
@pytest.mark.parametrize("cache", [True, False])
def test_what_is_made_of_a_file_is_made_in_the_process(
    cache: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for rank in (0, 1):
        file = tmp_path / f"rank{rank}.json"
        write(file, step(0, 1, 9), kernel("gemm", 1, 2 + rank), **of_rank(rank))
    maker = registry.find_maker("kernel_totals").function

    def refuse_a_kernel(
        kernels: pa.Table, kernel_links: pa.Table, kernel_passes: pa.Table
    ) -> pa.Table:
        if kernels["end_ns"][0].as_py() - kernels["start_ns"][0].as_py() > 2000:
            raise MemoryError
        return maker(kernels, kernel_links, kernel_passes)

    patch_maker(monkeypatch, "kernel_totals", refuse_a_kernel)
    trace = open_trace(tmp_path, OpenOptions(cache=cache, confined=True))
    assert ranks(trace) == [0]
    ((name, why),) = trace.failed
    assert name.endswith("rank1.json") and "memory" in why
    entry = trace.files[0].entry
    not_kept = {*registry.VIEWS, *registry.EXTENTS}  # which take no time to make
    assert {table for table in registry.PER_FILE if entry.lacks(table)} == not_kept
    again = open_trace(tmp_path, OpenOptions(cache=cache, confined=True))
    assert ranks(again) == [0], "what failed is not kept"


def patch_maker(
    monkeypatch: pytest.MonkeyPatch, name: str, function: Callable[..., pa.Table]
) -> None:
    """Have something else make a table."""
    maker = registry.find_maker
    made = {name: registry.Maker(function)}
    monkeypatch.setattr(registry, "find_maker", lambda name: made.get(name) or maker(name))


@pytest.mark.usefixtures("forked")
@pytest.mark.parametrize("cache", [True, False])
def test_what_is_made_of_several_files_is_made_in_the_process(
    cache: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = os.getpid()

    def say_where(collectives: pa.Table) -> pa.Table:
        if os.getppid() != here:
            raise AssertionError("made in the process that asks")
        os.kill(os.getpid(), signal.SIGKILL)
        return collectives

    trace = open_trace(dumps(tmp_path, 2), OpenOptions(cache=cache))  # pickles: from outside
    patch_maker(monkeypatch, "collective_matches", say_where)
    for part in (trace, trace.sel(to_ns=1)):
        with pytest.raises(TraceError, match="not made: its process was ended"):
            _ = part.tables["collective_matches"]
    monkeypatch.undo()
    assert trace.tables["collective_matches"].num_rows == 4


@pytest.mark.usefixtures("forked")
def test_a_server_has_processes_that_outlast_recordings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = []
    start = confined.start_child
    monkeypatch.setattr(confined, "start_child", lambda *a: started.append(a) or start(*a))
    with confined.held_ready(1):
        for name in ("one", "other"):
            (tmp_path / name).mkdir()
            trace = open_trace(dumps(tmp_path / name, 2), FRESH)
            assert trace.tables["collective_matches"].num_rows == 4
            del trace
            gc.collect()
        assert len(started) == 1


@pytest.mark.usefixtures("forked")
@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT])
def test_the_end_of_the_process_is_one_failed_file(
    end: signal.Signals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hurting(monkeypatch, lambda: os.kill(os.getpid(), end))
    trace = open_trace(dumps(tmp_path, 5), FRESH)
    assert ranks(trace) == [0, 2, 3, 4]
    assert trace.tables["collectives"].num_rows == 8
    ((name, why),) = trace.failed
    assert name.endswith("dump_rank_1") and "was ended" in why


@pytest.mark.usefixtures("forked")
def test_processor_time_and_the_clock_are_limited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def endless() -> None:
        while True:
            pass

    hurting(monkeypatch, endless)
    monkeypatch.setenv("HTK_PARSE_SECONDS", "1")
    monkeypatch.setattr(confined, "_WALL", 600.0)
    trace = open_trace(dumps(tmp_path, 3), FRESH)
    assert ranks(trace) == [0, 2] and "processor time" in trace.failed[0][1]
    monkeypatch.setattr(confined, "_WALL", 8.0)  # a busy machine needs seconds for the others
    hurting(monkeypatch, signal.pause)  # takes no processor time at all
    trace = open_trace(tmp_path, FRESH)
    assert ranks(trace) == [0, 2] and "not read within 8" in trace.failed[0][1]


@pytest.mark.usefixtures("forked")
def test_any_exception_of_the_process_is_one_failed_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def divide() -> None:
        raise ZeroDivisionError("division\nby zero")

    hurting(monkeypatch, divide)
    trace = open_trace(dumps(tmp_path, 3), FRESH)
    assert ranks(trace) == [0, 2]
    assert "ZeroDivisionError: division by zero" in trace.failed[0][1]


class _GivenUp(HtkError):
    pass


class _Impatient(Progress):
    def advance(self, stored_bytes: int) -> None:
        raise _GivenUp("no more")


@pytest.mark.usefixtures("way")
def test_who_gives_up_is_obeyed(tmp_path: Path) -> None:
    many = dump() | {"entries": [{"pad": f"{k:04}" * 250} for k in range(9000)]}
    (tmp_path / "dump_rank_0").write_bytes(pickle.dumps(many, 2))
    with pytest.raises(_GivenUp):
        open_trace(tmp_path, OpenOptions(cache=False, progress=_Impatient()))


class _Ill(io.RawIOBase):
    def readable(self) -> bool:
        return True

    def read(self, size: int | None = -1) -> bytes:
        raise OSError("the disk is ill")


@pytest.mark.usefixtures("way")
def test_bytes_that_cannot_be_had_are_said() -> None:
    readers = confined.ConfinedReaders(())
    name = "s3://bucket/rank0.json"
    ill = Source(name, lambda: open_guarded(name, lambda: _cast(_Ill())))
    good = Source("s3://bucket/dump_rank_1", lambda: io.BytesIO(pickle.dumps(dump(), 2)))
    try:
        with pytest.raises(TraceError, match=r"rank0\.json: the disk is ill"):
            readers.entries(ill, ParseOptions(), None, None)
        (entry,) = readers.entries(good, ParseOptions(), None, None)
        assert entry.tables["collectives"].num_rows == 2
    finally:
        readers.stop()
    with pytest.raises(TraceError):
        readers.entries(good, ParseOptions(), None, None)


def _cast(file: Any) -> BinaryIO:
    opened: BinaryIO = file
    return opened


def test_limits_that_are_none_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    assert confined.limits_of(10**9).memory_bytes > confined.limits_of(0).memory_bytes
    for wrong in ("much", "0", "-1"):
        monkeypatch.setenv("HTK_PARSE_MEMORY", wrong)
        with pytest.raises(UsageError, match="HTK_PARSE_MEMORY"):
            confined.limits_of(0)
