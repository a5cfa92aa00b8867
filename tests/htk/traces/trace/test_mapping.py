"""Shares of a recording parsed into a store, and the store opened as the recording."""

import json
import shutil
import zipfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from htk.base.errors import TraceError, UsageError
from htk.base.io.shared_store import MARK, SharedStore
from htk.base.io.store import META, Store
from htk.base.io.table_file import read_tables, write_tables
from htk.faces.cli.main import run_command_line
from htk.traces.trace.mapping import Shard, map_files
from htk.traces.trace.opening import open_trace
from htk.verdicts.overview.summary import build_summary_result, reach_verdict
from tests.kineto_file import kernel, launch, of_rank, op, step, write
from tests.two_ranks import write_ranks

RANKS = 22


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """22 ranks of one all-reduce a step, each later than the one before."""
    folder = tmp_path_factory.mktemp("many")
    for rank in range(RANKS):
        events = [
            event
            for k in (0, 1)
            for event in (
                step(k, 100 * k, 100),
                op("aten::mm", 100 * k + 2, 5),
                launch(k + 1, 100 * k + 3),
                kernel("ampere_bf16_gemm", 100 * k + 5, 10 + rank % 7, k + 1),
            )
        ]
        write(folder / f"rank{rank}.json", *events, **of_rank(rank, RANKS))
    return folder


@pytest.fixture
def fresh_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache of another machine."""
    cache = tmp_path / "cache-of-the-reader"
    monkeypatch.setenv("HTK_CACHE_DIR", str(cache))
    return cache


def answers(path: str | Path) -> Any:
    trace = open_trace(path)
    assert not trace.failed and not trace.unread
    return trace.ranks, build_summary_result(reach_verdict(trace)).to_pylist()


def test_shares_in_a_bucket_answer_as_the_files_do(
    many: Path, bucket: str, fresh_cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = f"{bucket}/run"
    for shard in ("2/2", "1/2"):
        assert run_command_line(["map", str(many), "--shard", shard, "--store", store]) == 0
    assert capsys.readouterr().out.count("11 files stored, 0 were there before") == 2
    assert run_command_line(["map", str(many), "--store", store]) == 0
    assert "0 files stored, 22 were there before" in capsys.readouterr().out
    of_files = answers(many)
    shutil.rmtree(fresh_cache)
    assert answers(store) == of_files


def test_shares_are_of_all_files_once(many: Path) -> None:
    files = sorted(many.iterdir())
    shares = [Shard(k, 5).take_share(files) for k in range(1, 6)]  # type: ignore[arg-type]
    assert sorted(file for share in shares for file in share) == files  # type: ignore[type-var]
    assert max(map(len, shares)) - min(map(len, shares)) == 1


@pytest.mark.parametrize("text", ["0/3", "4/3", "3", "-1/3", "1/0", "a/b", ""])
def test_what_is_no_share_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="shard"):
        Shard.parsed(text)


@pytest.fixture
def store(tmp_path: Path, fresh_cache: Path) -> Path:
    """Two ranks in a store, which no cache of this machine holds."""
    (tmp_path / "ranks").mkdir()
    folder = write_ranks(tmp_path / "ranks")
    mapped = map_files(folder, str(tmp_path / "store"), Shard())
    assert (mapped.stored, mapped.there_before, mapped.failed) == (2, 0, ())
    shutil.rmtree(fresh_cache)
    return tmp_path / "store"


def entries(store: Path) -> list[Path]:
    return sorted(store.glob("*/*.zip"))


def changed(entry: Path, name: str, content: bytes | None) -> None:
    """Write an entry anew with other bytes under a member's name; None: without it."""
    with zipfile.ZipFile(entry) as archive:
        members = {m.filename: archive.read(m) for m in archive.infolist()}
    path = f"{entry.stem}/{name}"
    members = {k: v for k, v in members.items() if k != path}
    with zipfile.ZipFile(entry, "w") as archive:
        for member, kept in (members | ({} if content is None else {path: content})).items():
            archive.writestr(member, kept)


def member(entry: Path, name: str) -> bytes:
    with zipfile.ZipFile(entry) as archive:
        return archive.read(f"{entry.stem}/{name}")


def test_two_writers_of_an_entry_write_the_same(store: Path, tmp_path: Path) -> None:
    shutil.rmtree(tmp_path / "cache-of-the-reader", ignore_errors=True)
    map_files(tmp_path / "ranks", str(tmp_path / "other"), Shard())
    assert [e.stem for e in entries(store)] == [e.stem for e in entries(tmp_path / "other")]
    for entry, other in zip(entries(store), entries(tmp_path / "other"), strict=True):
        with zipfile.ZipFile(entry) as archive:
            names = [name.partition("/")[2] for name in archive.namelist()]
        assert "derived-kernel_links.arrow" in names and "parsed.arrow" in names
        for name in set(names) - {META}:  # which says when it was written
            assert member(entry, name) == member(other, name)


def test_an_entry_is_there_once_it_is_whole(store: Path, tmp_path: Path) -> None:
    entries(store)[0].rename(entries(store)[0].with_suffix(".zip.123"))  # a writer at work
    assert len(open_trace(store).ranks) == 1
    mapped = map_files(tmp_path / "ranks", str(store), Shard())
    assert (mapped.stored, mapped.there_before) == (1, 1)
    assert open_trace(store).ranks == [0, 1]


@pytest.mark.parametrize("damage", ["flip", "cut", "missing", "strange", "outside"])
@pytest.mark.parametrize("key", ["", "none"])
def test_a_changed_entry_is_found_and_the_rest_answers(
    store: Path, fresh_cache: Path, monkeypatch: pytest.MonkeyPatch, damage: str, key: str
) -> None:
    monkeypatch.setenv("HTK_STORE_KEY", key)
    entry = entries(store)[1]
    content = bytearray(member(entry, "parsed.arrow"))
    content[len(content) // 2] ^= 1
    if damage == "flip":
        changed(entry, "parsed.arrow", bytes(content))
    elif damage == "cut":
        entry.write_bytes(entry.read_bytes()[:-100])
    elif damage == "missing":
        changed(entry, "parsed.arrow", None)
    else:
        changed(entry, "notes.txt" if damage == "strange" else "../../escaped.arrow", b"x")
    trace = open_trace(store)
    assert len(trace.ranks) == 1
    assert "not what was written" in trace.failed[0][1] and "htk map" in trace.failed[0][1]
    kept = SharedStore(str(store)).cache_key(entries(store)[0].stem)
    assert {path.name for path in fresh_cache.iterdir() if path.is_dir()} == {kept}


def test_a_table_that_htk_would_not_write_is_refused(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTK_STORE_KEY", "none")
    entry, path = entries(store)[0], tmp_path / "parsed.arrow"
    path.write_bytes(member(entry, "parsed.arrow"))
    stored = read_tables(path, entry.stem, path.name, thorough=True)
    tables = {name: stored[name] for name in stored.index}
    table = tables["kernels"]
    position = table.column_names.index("start_ns")
    texts = pa.array(["x"] * table.num_rows)
    tables["kernels"] = table.set_column(position, "start_ns", texts)
    path.unlink()  # it is mapped
    write_tables(path, tables, entry.stem, path.name)
    changed(entry, "parsed.arrow", path.read_bytes())
    assert "kernels.start_ns" in open_trace(store).failed[0][1]


def test_entries_of_another_version_are_named(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("htk.base.io.shared_store.table_code", lambda: "another" * 3)
    with pytest.raises(TraceError, match="another version of htk; run htk map again"):
        open_trace(store)


def test_a_damaged_file_is_named_and_the_others_are_stored(
    tmp_path: Path, fresh_cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "ranks").mkdir()
    folder = write_ranks(tmp_path / "ranks")
    (folder / "rank2.json").write_text("")
    code = run_command_line(["map", str(folder), "--store", str(tmp_path / "store")])
    output = capsys.readouterr()
    assert code == TraceError.exit_code
    assert "2 files stored" in output.out and "1 failed" in output.out
    assert "rank2.json: empty file" in output.err


def test_only_what_is_marked_is_a_store(store: Path, tmp_path: Path) -> None:
    assert SharedStore.at(str(store)) is not None
    assert SharedStore.at(str(tmp_path / "ranks")) is None
    assert SharedStore.at("https://host/store") is None
    assert json.loads((store / MARK).read_text())["kind"]
    for entry in entries(store):
        entry.unlink()
    with pytest.raises(TraceError, match="the store is empty"):
        open_trace(store)


def test_a_request_that_fails_is_made_again(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shared = SharedStore(str(store))
    system, times = type(shared._folder._system), iter([OSError("slow down"), OSError("slow down")])
    get_file = system.get_file

    def throttled(self: Any, *args: Any, **kwargs: Any) -> Any:
        error = next(times, None)
        if error is not None:
            raise error
        return get_file(self, *args, **kwargs)

    monkeypatch.setattr(system, "get_file", throttled)
    shared.fetch(entries(store)[0].stem, Store())
    assert (Store().root / shared.cache_key(entries(store)[0].stem) / META).is_file()


def test_ranks_whose_files_are_alike_have_an_entry_each(tmp_path: Path, fresh_cache: Path) -> None:
    for rank in (0, 1):
        folder = tmp_path / "run" / f"rank_{rank}"
        folder.mkdir(parents=True)
        write(folder / "trace.json", op("aten::mm", 2, 5), launch(1, 3), kernel("gemm", 5, 9, 1))
    store = str(tmp_path / "store")
    assert map_files(tmp_path / "run", store, Shard()).stored == 2
    assert map_files(tmp_path / "run", store, Shard()).there_before == 2
    shutil.rmtree(fresh_cache)
    assert open_trace(store).ranks == open_trace(tmp_path / "run").ranks == [0, 1]


def test_a_cache_too_small_for_a_share_costs_time_alone(
    many: Path, tmp_path: Path, fresh_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTK_CACHE_LIMIT", "1")  # it keeps the file that was read last
    mapped = map_files(many, str(tmp_path / "store"), Shard(1, 3))
    assert (mapped.stored, mapped.failed) == (8, ())
    monkeypatch.delenv("HTK_CACHE_LIMIT")
    share = [str(file) for file in sorted(many.iterdir())][::3]
    of_store, of_files = open_trace(tmp_path / "store"), open_trace(share)
    assert of_store.ranks == of_files.ranks
    assert of_store.tables["kernel_links"].equals(of_files.tables["kernel_links"])


def test_a_file_that_the_cache_never_holds_is_named(
    tmp_path: Path, fresh_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ranks").mkdir()
    ranks = write_ranks(tmp_path / "ranks")
    put = SharedStore.put

    def emptied(self: SharedStore, folders: Any) -> None:
        if "rank0" in Store().list()[0].source:
            shutil.rmtree(folders[0])
        put(self, folders)

    monkeypatch.setattr(SharedStore, "put", emptied)
    mapped = map_files(ranks / "rank0.json", str(tmp_path / "store"), Shard())
    assert mapped.stored == 0 and "HTK_CACHE_LIMIT" in mapped.failed[0][1]


def test_what_is_no_trace_is_named(
    tmp_path: Path, fresh_cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "ranks").mkdir()
    ranks = write_ranks(tmp_path / "ranks")
    (ranks / "odd\x1b.json").write_text("[1, 2]")
    assert run_command_line(["map", str(ranks), "--store", str(tmp_path / "store")]) == 0
    output = capsys.readouterr()
    assert "1 are no traces" in output.out and "odd" in output.err and "\x1b" not in output.err
    assert run_command_line(["map", str(ranks), "--store", ""]) == UsageError.exit_code
    assert "--store is empty" in capsys.readouterr().err


def test_a_store_takes_what_its_entries_do(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line(["cache", "need", str(store), "--format", "json"]) == 0
    need = json.loads(capsys.readouterr().out)
    assert (need["files"], need["parsed_files"]) == (2, 0)
    assert need["expected_bytes"] == sum(entry.stat().st_size for entry in entries(store))
    open_trace(store)
    assert run_command_line(["cache", "need", str(store), "--format", "json"]) == 0
    need = json.loads(capsys.readouterr().out)
    assert (need["parsed_files"], need["expected_bytes"]) == (2, 0)
    assert need["parsed_bytes"] > 0


def test_a_bucket_that_is_not_there_is_not_made(
    bucket: str, tmp_path: Path, fresh_cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import boto3

    (tmp_path / "ranks").mkdir()
    ranks = str(write_ranks(tmp_path / "ranks"))
    assert run_command_line(["map", ranks, "--store", "s3://parsd/run"]) == TraceError.exit_code
    assert "parsd" in capsys.readouterr().err
    buckets = boto3.client("s3").list_buckets()["Buckets"]
    assert "parsd" not in {each["Name"] for each in buckets}
