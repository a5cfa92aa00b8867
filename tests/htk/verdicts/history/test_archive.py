"""A history kept: once for each run, by several writers, whatever becomes of single files."""

import json
import threading
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from pyarrow import parquet

from htk.base.errors import MissingTable, TraceError, UsageError
from htk.traces.trace.opening import open_trace
from htk.verdicts.history.archive import _SCHEMAS, History, opened_history
from htk.verdicts.history.listing import Wanted, parse_moment
from htk.verdicts.history.notes import has_tags, parse_tags
from htk.verdicts.history.run_facts import hash_identity, run_facts
from htk.verdicts.history.sealed_parquet import unpack_table
from tests.htk.verdicts.history.recorded_runs import BASE_NS, facts, recording
from tests.kineto_file import kernel, of_rank, write

ROOT = Path(__file__).parents[4]


def kept(address: Path | str) -> dict[str, dict[str, str]]:
    return {run.run: dict(run.tags) for run in History(str(address)).runs}


def test_facts_are_those_of_the_recording(tmp_path: Path) -> None:
    row = run_facts(open_trace(str(recording(tmp_path / "run"))), "run").row
    assert row["name"] == "run" and row["recorded_at"] == "2026-01-01T00:00:00.000100000Z"
    assert (row["rank_count"], row["world_size"], row["timed_on"]) == (2, 2, "gpu")
    # The first of four steps computes for 20 + 80 us, the others for 80, and idle for 20.
    assert row["step_count"] == 4 and row["step_time_ns"] == 100_000
    assert (row["compute_ns"], row["exposed_comm_ns"]) == (85_000, 0)
    assert row["idle_ns"] == 15_000
    assert row["mfu_pct"] is None, "no shapes were recorded: not 0"


def test_a_run_is_itself_wherever_its_files_lie(tmp_path: Path) -> None:
    original = recording(tmp_path / "run")
    moved = tmp_path / "moved"
    original.rename(moved)
    (moved / "rank0.json").rename(moved / "another_name_rank0.json")
    trace = open_trace(str(moved))
    other = open_trace(str(recording(tmp_path / "run", base=BASE_NS + 1)))
    names = [run_facts(t, "x").run for t in (trace, other)]
    assert names[0] != names[1]
    original.rename(tmp_path / "later")
    assert run_facts(open_trace(str(tmp_path / "later")), "y").run == names[1]


def test_a_recording_without_times_or_steps_is_refused(tmp_path: Path) -> None:
    spans = pa.table({"rank": [0], "start_ns": pa.array([None], pa.int64()), "end_ns": [1]})
    with pytest.raises(MissingTable, match="no times"):
        hash_identity(spans)
    (tmp_path / "run").mkdir()
    write(tmp_path / "run/rank0.json", kernel("gemm", 0, 5), **of_rank(0, 1, BASE_NS))
    with pytest.raises(MissingTable, match=r"profiler\.step"):
        run_facts(open_trace(str(tmp_path / "run")), "run")


@pytest.mark.parametrize("where", ["folder", "memory", "bucket"])
def test_a_run_added_twice_is_there_once_with_all_its_tags(
    tmp_path: Path, where: str, request: pytest.FixtureRequest
) -> None:
    addresses = {"folder": str(tmp_path / "history"), "memory": "memory://history-of-a-test"}
    address = addresses.get(where) or f"{request.getfixturevalue('bucket')}/history"
    history = History(address)
    assert not history.is_kept
    assert history.add(facts(1), {"commit": "a", "model": "m"})
    assert not history.add(facts(1), {"commit": "b"})
    assert not history.add(facts(1), {"commit": "b"})
    assert history.add(facts(2), {})
    assert kept(address) == {f"{1:016x}": {"commit": "b", "model": "m"}, f"{2:016x}": {}}
    assert len(history._folder.listed("notes")) == 3, "the same tags again are no further note"


def test_writers_at_once_lose_nothing(tmp_path: Path) -> None:
    """Eight writers add the same runs, each with a tag of its own."""

    def write_all(writer: int) -> None:
        history = History(str(tmp_path))
        for number in range(6):
            history.add(facts(number), {f"writer{writer}": str(number)})

    writers = [threading.Thread(target=write_all, args=(k,)) for k in range(8)]
    for each in writers:
        each.start()
    for each in writers:
        each.join()
    tags = {f"writer{k}" for k in range(8)}
    runs = kept(tmp_path)
    assert len(runs) == 6
    assert all(set(of_run) == tags for of_run in runs.values())
    assert not list(tmp_path.rglob(".new-*"))


@pytest.mark.parametrize("damage", ["cut", "empty", "other", "newer", "swapped", "text"])
def test_one_bad_file_costs_no_other_run(tmp_path: Path, damage: str) -> None:
    history = History(str(tmp_path))
    for number in range(3):
        history.add(facts(number), {})
    path = tmp_path / "runs" / f"{1:016x}.parquet"
    content = path.read_bytes()
    if damage == "newer":
        table = parquet.read_table(path)
        table = table.replace_schema_metadata({b"htk.history.version": b"99"})
        parquet.write_table(table, path)
    elif damage == "other":
        parquet.write_table(pa.table({"x": [1]}), path)
    else:
        swapped = (tmp_path / "runs" / f"{2:016x}.parquet").read_bytes()
        new = {"cut": content[:-40], "empty": b"", "swapped": swapped, "text": b"not parquet"}
        path.write_bytes(new[damage])
    again = History(str(tmp_path))
    assert [run.row["name"] for run in again.runs] == ["run0", "run2"]
    ((name, why),) = again.unread
    assert name == f"runs/{1:016x}.parquet" and why
    assert "99" in why or damage != "newer"


@pytest.mark.parametrize("every", [7, pytest.param(1, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("folder", ["runs", "costs", "summaries"])
def test_no_flipped_bit_is_read(tmp_path: Path, folder: str, every: int) -> None:
    history = History(str(tmp_path))
    history.add(facts(1), {})
    path = tmp_path / folder / f"{1:016x}.parquet"
    content = path.read_bytes()
    for position in range(0, len(content), every):
        damaged = bytearray(content)
        damaged[position] ^= 1 << position % 8
        with pytest.raises(Exception):  # noqa: B017 - of Arrow's many kinds, caught by who reads
            unpack_table(bytes(damaged), f"{folder}/{path.name}", _SCHEMAS[folder])


def test_costs_of_another_run_are_refused(tmp_path: Path) -> None:
    history = History(str(tmp_path))
    history.add(facts(1), {})
    history.add(facts(2), {})
    one, other = (tmp_path / "costs" / f"{number:016x}.parquet" for number in (1, 2))
    one.write_bytes(other.read_bytes())
    assert history.costs(f"{2:016x}").steps
    with pytest.raises(TraceError, match="checksum differs; add the run again"):
        history.costs(f"{1:016x}")


def test_any_reader_of_parquet_reads_a_sealed_file(tmp_path: Path) -> None:
    History(str(tmp_path)).add(facts(1), {})
    asked = duckdb.sql(f"select name, step_time_ns from '{tmp_path}/runs/*.parquet'")
    assert asked.fetchall() == [("run1", 100_000_000)]


def test_a_bad_note_costs_that_note(tmp_path: Path) -> None:
    history = History(str(tmp_path))
    history.add(facts(1), {"model": "m"})
    history.mark(f"{1:016x}", "good", {})
    notes = sorted((tmp_path / "notes").iterdir())
    other = json.loads(notes[0].read_text()) | {"run": f"{2:016x}"}
    (tmp_path / "notes" / notes[0].name.replace("0000001.", "0000009.", 1)).write_text("{")
    notes[0].write_text(json.dumps(other))
    again = History(str(tmp_path))
    (run,) = again.runs
    assert run.remarks.mark == "good" and run.tags == {}
    assert len(again.unread) == 2


def test_a_table_of_an_older_version_lacks_columns_and_is_read(tmp_path: Path) -> None:
    History(str(tmp_path)).add(facts(1), {})
    path = tmp_path / "runs" / f"{1:016x}.parquet"
    table = parquet.read_table(path)
    table = table.drop_columns(["slowdown"])
    older = table.replace_schema_metadata({b"htk.history.version": b"1"})
    parquet.write_table(older, path)
    (run,) = History(str(tmp_path)).runs
    assert run.row["slowdown"] is None and run.row["step_time_ns"] == 100_000_000


def test_the_newest_mark_holds_and_costs_come_back(tmp_path: Path) -> None:
    history = History(str(tmp_path))
    history.add(facts(1), {})
    for mark in ("good", "bad"):
        history.mark(f"{1:016x}", mark, {})  # type: ignore[arg-type]
    (run,) = History(str(tmp_path)).runs
    assert run.remarks.mark == "bad"
    costs = History(str(tmp_path)).costs(run.run)
    assert costs.kinds["time"]["total"].by_step.tolist() == [1e8, 1.02e8, 0.98e8]
    (tmp_path / "costs" / f"{run.run}.parquet").write_bytes(b"")
    with pytest.raises(TraceError, match="add the run again"):
        History(str(tmp_path)).costs(run.run)


def test_runs_are_chosen_by_tag_time_and_mark(tmp_path: Path) -> None:
    history = History(str(tmp_path))
    for number in range(5):
        history.add(facts(number), {"model": "llama" if number % 2 else "gpt", "lr": "3e-4"})
    history.mark(f"{3:016x}", "good", {})
    runs = History(str(tmp_path)).runs

    def names(**wanted: object) -> list[str]:
        return [run.row["name"] for run in Wanted(**wanted).chosen(runs)]  # type: ignore[arg-type]

    assert names() == ["run0", "run1", "run2", "run3", "run4"]
    assert names(tags={"model": "llama"}) == ["run1", "run3"]
    assert names(tags={"model": "g*", "lr": "3e-4"}) == ["run0", "run2", "run4"]
    assert names(since=parse_moment("2026-01-03"), before=parse_moment("2026-01-05")) == [
        "run2",
        "run3",
    ]
    assert names(mark="good") == ["run3"]
    assert opened_history(str(tmp_path)).find("run2").run == f"{2:016x}"
    with pytest.raises(UsageError, match="5 runs are called so"):
        opened_history(str(tmp_path)).find("0000")
    with pytest.raises(UsageError, match="no run is called so"):
        opened_history(str(tmp_path)).find("run9")
    with pytest.raises(UsageError, match="htk history add"):
        opened_history(str(tmp_path / "elsewhere"))


@pytest.mark.parametrize("text", ["model", "=x", "model=", "1x=2", "a b=c", f"a={'x' * 201}"])
def test_what_is_no_tag_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is not a tag"):
        parse_tags([text])


def test_tags_and_times_are_read() -> None:
    assert parse_tags(["a=1, b=x=y", "a=2"]) == {"a": "2", "b": "x=y"}
    assert has_tags({}, {}) and not has_tags({}, {"a": "1"}) and has_tags({"a": "12"}, {"a": "1?"})
    assert parse_moment("2026-11-22T10:00+02:00") == "2026-11-22T08:00:00"
    with pytest.raises(UsageError, match="is not a time"):
        parse_moment("yesterday")


def test_operation_level_rows_are_a_run(tmp_path: Path) -> None:
    trace = open_trace(str(ROOT / "sample_traces/operation_rows/slow_worker.parquet"))
    row = run_facts(trace, "job").row
    assert row["timed_on"] == "operations" and row["cause"] == "worker"
    assert row["slowdown"] == pytest.approx(1.21, abs=0.01)
    assert row["step_time_ns_p10"] <= row["step_time_ns"] <= row["step_time_ns_p90"]
    assert row["mfu_pct"] is None and row["exposed_comm_ns"] is None
