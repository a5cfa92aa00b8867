"""Joined tables that are kept are those that files give, and never another recording's."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from htk.answers.ask import ask_trace
from htk.base.io.entry import StoredEntry
from htk.base.io.store import Store
from htk.physics.hardware import OWN_FILE
from htk.quantities.derived.registry import OVER_RANKS
from htk.recording.simulate.config import Config, check_config
from htk.recording.simulate.job import simulate_job
from htk.traces.trace.joined import JoinedTables
from htk.traces.trace.opening import OpenOptions, open_trace
from htk.traces.trace.trace import Trace
from htk.verdicts.overview.summary import summarise_trace

JOB = Config(
    model="gpt3-126m",
    layers=1,
    seq=128,
    nodes=2,
    gpus_per_node=4,
    steps=2,
    carry_in=2,
    seed=3,
    stagger_us=500.0,
)


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("job") / "ranks"
    simulate_job(check_config(JOB), folder)
    return folder


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HTK_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr("htk.traces.trace.joined._FEWEST_FILES", 8)  # as many as the job has
    return tmp_path / "cache"


def joined_files(cache: Path) -> set[str]:
    """Return the tables that are kept joined."""
    folders = [e.folder for e in Store(cache).list() if e.source.endswith("files joined")]
    return {f.stem.removeprefix("derived-") for folder in folders for f in folder.glob("d*.arrow")}


def assert_same(trace: Trace, other: Trace) -> None:
    for name in trace.tables:
        assert trace.tables[name].equals(other.tables[name], check_metadata=True), name


def test_no_table_of_a_file_stays_open_for_what_is_joined(ranks: Path) -> None:
    trace = open_trace(ranks)
    for name in trace.tables:
        assert trace.tables[name] is not None
    entries = [file.entry for file in trace.files]
    assert all(isinstance(entry, StoredEntry) for entry in entries)
    still_open = {name for entry in entries for name in entry.tables._open}  # type: ignore[attr-defined]
    assert not still_open


def test_tables_are_those_of_the_files_whether_joined_or_kept(ranks: Path, cache: Path) -> None:
    by_file = open_trace(ranks, OpenOptions(cache=False))
    assert by_file.tables["aligned_matches"].num_rows == 80
    assert_same(open_trace(ranks), by_file)
    assert joined_files(cache) == set(by_file.tables)
    again = open_trace(ranks)
    assert_same(again, by_file)
    assert again.tables["cpu_ops"]["name"].num_chunks == 1  # a map of what was kept
    chosen = again.sel(ranks=[1, 6], steps=[1])
    assert_same(chosen, by_file.sel(ranks=[1, 6], steps=[1]))
    assert again.has_steps
    assert joined_files(cache) == {*by_file.tables, "steps"}


def test_answers_rest_on_what_is_kept(ranks: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = summarise_trace(open_trace(ranks)).to_pylist()
    kernels = ask_trace(open_trace(ranks), "kernel_top").to_pylist()

    def joined(trace: Trace, name: str) -> pa.Table:
        raise AssertionError(f"{name} was joined again")

    monkeypatch.setattr(Trace, "_joined_table", joined)
    assert summarise_trace(open_trace(ranks)).to_pylist() == expected
    assert ask_trace(open_trace(ranks), "kernel_top").to_pylist() == kernels


def test_of_few_large_files_what_is_made_of_all_is_kept(
    ranks: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("htk.traces.trace.joined._FEWEST_FILES", 32)
    small = open_trace(ranks)
    assert summarise_trace(small).to_pylist() and joined_files(cache) == set()
    monkeypatch.setattr("htk.traces.trace.joined._LEAST_BYTES", 1000)
    large = open_trace(ranks)
    assert_same(large, small)
    assert joined_files(cache) == set(OVER_RANKS)
    for chosen in ({"ranks": [1, 6]}, {"steps": [1]}, {"cycles": [0]}):
        assert_same(open_trace(ranks).sel(**chosen), small.sel(**chosen))


def test_another_set_of_files_is_another_join(ranks: Path, cache: Path, tmp_path: Path) -> None:
    moved = tmp_path / "moved"
    shutil.copytree(ranks, moved)
    first = open_trace(moved).tables["kernels"]
    shutil.copy(moved / "rank3.pt.trace.json.gz", moved / "rank9.pt.trace.json.gz")
    assert open_trace(moved, OpenOptions(rank_pattern=r"rank(\d+)")).ranks == [*range(8), 9]
    nine = open_trace(moved, OpenOptions(rank_pattern=r"rank(\d+)")).tables["kernels"]
    assert set(nine["rank"].to_pylist()) == {*range(8), 9} and nine.num_rows > first.num_rows
    (moved / "rank9.pt.trace.json.gz").unlink()
    assert open_trace(moved).tables["kernels"].equals(first)


def test_facts_of_opening_are_part_of_the_name(ranks: Path, cache: Path) -> None:
    """The same entries under other ranks, times and counts of events."""
    trace = open_trace(ranks)
    assert trace.joined is not None
    changes = ({"rank": 70}, {"cycle": 1}, {"first_event": 5}, {"shift_ns": 7}, {"file": "x"})
    seen = [trace.tables["kernels"]]
    for change in changes:
        files = (*trace.files[:-1], replace(trace.files[-1], **change))
        joined = JoinedTables(Store(), files, trace.work)
        other = replace(trace, files=files, joined=joined).tables[
            "ranks" if "file" in change else "kernels"
        ]
        assert not any(other.equals(table) for table in seen), change
        seen.append(other)


def test_few_files_large_tables_and_own_gpus_are_not_kept(
    ranks: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    open_trace([ranks / f"rank{k}.pt.trace.json.gz" for k in range(7)]).need("kernels")
    assert joined_files(cache) == set()
    monkeypatch.setattr("htk.traces.trace.joined._LARGEST_BYTES", 20_000)
    trace = open_trace(ranks)
    assert trace.need("kernels").num_rows and trace.tables["ranks"].num_rows == 8
    assert joined_files(cache) == {"ranks"}
    monkeypatch.setattr("htk.traces.trace.joined._LARGEST_BYTES", 1 << 30)
    little = OpenOptions(memory_bytes=4 * 20_000)
    assert open_trace(ranks, little).need("kernels").num_rows
    assert joined_files(cache) == {"ranks"}
    monkeypatch.setenv(OWN_FILE, str(tmp_path / "own.toml"))
    assert open_trace(ranks).tables["rank_windows"].num_rows
    assert joined_files(cache) == {"ranks"}


def test_small_tables_of_a_file_are_kept_joined_alone(
    ranks: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_file = open_trace(ranks, OpenOptions(cache=False))
    rank = by_file.files[3]
    sizes = {n: rank.table(n).get_total_buffer_size() for n in ("op_links", "step_windows")}
    assert sizes["step_windows"] < 2_000 < sizes["op_links"]
    monkeypatch.setattr("htk.traces.trace.file._SMALL_BYTES", 2_000)
    trace = open_trace(ranks)
    assert_same(trace, by_file)
    assert [*cache.glob("*/derived-step_windows.arrow")] == [
        path for path in cache.glob("*/derived-step_windows.arrow") if "joined" in meta(path)
    ]
    assert len([*cache.glob("*/derived-op_links.arrow")]) == 9, "of each file, and joined"
    alone = open_trace(ranks / "rank3.pt.trace.json.gz")
    assert alone.tables["step_windows"].equals(rank.table("step_windows"))
    assert len([*cache.glob("*/derived-step_windows.arrow")]) == 2, "of one file by itself"


def test_what_costs_less_to_make_than_to_find_is_kept_of_no_file(
    ranks: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, by_file = ranks / "rank3.pt.trace.json.gz", open_trace(ranks, OpenOptions(cache=False))

    def kept() -> set[str]:
        """Ask for three tables of a file; return those that the cache has now."""
        alone = open_trace(file)
        for name in ("activities", "rank_windows", "step_windows"):
            assert alone.tables[name].equals(by_file.files[3].table(name))
        return {path.stem.removeprefix("derived-") for path in cache.glob("*/derived-*.arrow")}

    always = {"kernel_links", "op_links", "server_marks", "step_windows"}
    assert kept() == always
    monkeypatch.setattr("htk.traces.trace.file._FEW_BYTES", 0)
    assert kept() == {*always, "rank_windows"}


def meta(table: Path) -> str:
    """Return what the entry of a table is made of."""
    return str(json.loads((table.parent / "meta.json").read_text())["source"])


def test_what_is_damaged_is_joined_again(ranks: Path, cache: Path) -> None:
    expected = open_trace(ranks).need("kernels")
    (kept,) = cache.glob("*/derived-kernels.arrow")
    content = bytearray(kept.read_bytes())
    content[len(content) // 2] ^= 1
    kept.unlink()
    kept.write_bytes(content)
    assert open_trace(ranks).need("kernels").equals(expected)
