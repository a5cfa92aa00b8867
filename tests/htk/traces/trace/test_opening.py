"""From files to a trace: whose is which, what is missing, what is left out."""

import gzip
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from htk.base.errors import (
    MalformedTrace,
    MissingTable,
    TraceError,
    UnknownFormat,
    UnknownRank,
    UsageError,
)
from htk.base.io.store import Store
from htk.traces.trace.opening import OpenOptions, open_trace
from htk.verdicts.overview.doctor import check_recording
from htk.verdicts.overview.summary import reach_verdict
from tests.kineto_file import kernel, of_rank, op, step, write

KEEP_NOTHING = OpenOptions(cache=False)
SAMPLES = Path(__file__).parents[4] / "sample_traces"
XPLANE = SAMPLES / "xplane/host.xplane.pb"


def test_rank_is_what_the_file_says(tmp_path: Path) -> None:
    write(tmp_path / "rank-9.json", op("a", 1, 1), **of_rank(3, 8))
    ranks = open_trace(tmp_path, KEEP_NOTHING).tables["ranks"].to_pylist()
    assert [(r["rank"], r["rank_from"], r["world_size"]) for r in ranks] == [
        (3, "distributedInfo", 8)
    ]


def test_else_what_its_name_says(tmp_path: Path) -> None:
    for k in (0, 11):
        write(tmp_path / f"rank-{k}.json", op("a", 1, 1))
    trace = open_trace(tmp_path, KEEP_NOTHING)
    assert trace.ranks == [0, 11]
    assert {r["rank_from"] for r in trace.tables["ranks"].to_pylist()} == {"file name"}


def test_one_file_alone_is_rank_zero_or_as_given(tmp_path: Path) -> None:
    path = write(tmp_path / "trace.json", op("a", 1, 1))
    assert open_trace(path, KEEP_NOTHING).ranks == [0]
    assert open_trace(path, OpenOptions(cache=False, rank=5)).ranks == [5]


def test_hosts_of_a_jax_job_are_ranks_in_the_order_of_their_names(tmp_path: Path) -> None:
    """JAX writes each host's planes, and a timeline of the same beside them."""
    folder = tmp_path / "plugins/profile/2026_01_01"
    folder.mkdir(parents=True)
    for host in ("b", "a"):
        (folder / f"{host}.xplane.pb").write_bytes(XPLANE.read_bytes())
        with gzip.open(folder / f"{host}.trace.json.gz", "wt") as file:
            file.write('{"displayTimeUnit": "ns", "traceEvents": []}')
    rows = open_trace(tmp_path, KEEP_NOTHING).tables["ranks"].to_pylist()
    assert [(r["rank"], Path(r["file"]).name, r["rank_from"]) for r in rows] == [
        (0, "a.xplane.pb", "guess: order of names"),
        (1, "b.xplane.pb", "guess: order of names"),
    ]


def test_a_file_of_events_that_nobody_reads_is_not_ok(tmp_path: Path) -> None:
    driver = [{**op("nvidia_ioctl", k, 1), "cat": "driver"} for k in range(36)]
    trace = open_trace(write(tmp_path / "t.json", *driver, **of_rank(0)), KEEP_NOTHING)
    rows = {(row["section"], row["item"]): row for row in check_recording(trace).table.to_pylist()}
    assert rows["files", "t.json"]["state"] == "warning"
    assert rows["damage", "unread_events"]["finding"].endswith(" read: driver")
    with pytest.raises(MissingTable, match="36 events, none of them read"):
        reach_verdict(trace)


@pytest.mark.parametrize(("phases", "count"), [("b", 20), ("BE", 20), ("ne", 20), ("i", None)])
def test_events_of_phases_that_are_not_read_are_counted(
    tmp_path: Path, phases: str, count: int | None
) -> None:
    """Begins with their ends are one event each; marks of an instant are none."""
    others = [{**op("npu", k, 1, tid=9), "ph": phase} for k in range(20) for phase in phases]
    path = write(tmp_path / "t.json", op("aten::mm", 0, 9), *others)
    issues = open_trace(path).tables["parse_issues"].to_pylist()
    assert {row["kind"]: row["count"] for row in issues}.get("unread_events") == count


def test_an_execution_trace_alone_says_what_to_put_beside_it() -> None:
    with pytest.raises(MissingTable, match="beside the profiler's trace"):
        reach_verdict(open_trace(SAMPLES / "execution_trace/rank0_et.json.gz", KEEP_NOTHING))


def test_files_of_two_clocks_are_told_apart(tmp_path: Path) -> None:
    for rank, base_ns in enumerate((0, 1_760_000_000_000_000_000)):
        write(tmp_path / f"{rank}.json", op("a", 1, 1), **of_rank(rank, base=base_ns))
    rows = check_recording(open_trace(tmp_path, KEEP_NOTHING)).table.to_pylist()
    (times,) = [row for row in rows if (row["section"], row["item"]) == ("clocks", "times")]
    assert (times["state"], times["finding"].count("kineto")) == ("warning", 2)


def test_two_files_without_a_rank_are_never_guessed(tmp_path: Path) -> None:
    for name in ("node-3.json", "node-4.json"):
        write(tmp_path / name, op("a", 1, 1))
    with pytest.raises(UnknownRank, match="--rank-pattern"):
        open_trace(tmp_path, KEEP_NOTHING)
    given = OpenOptions(cache=False, rank_pattern=r"node-(\d+)")
    assert open_trace(tmp_path, given).ranks == [3, 4]


def test_a_file_of_another_format_that_says_no_rank_is_left_out_alone(tmp_path: Path) -> None:
    """Kernels of ranks that are known answer; whose memory a snapshot is nobody says."""
    for k in (0, 1):
        write(tmp_path / f"rank-{k}.json", op("a", 1, 1))
    snapshot = {"segments": [{"device": 0, "total_size": 9, "blocks": 4}], "device_traces": []}
    (tmp_path / "node-1.pickle").write_bytes(pickle.dumps(snapshot))
    trace = open_trace(tmp_path, KEEP_NOTHING)
    assert trace.ranks == [0, 1]
    ((file, why),) = trace.failed
    assert file.endswith("node-1.pickle") and "--rank-pattern" in why
    assert "memory" not in trace.tables or not trace.tables["memory"].num_rows
    with_pattern = OpenOptions(cache=False, rank_pattern=r"(?:node|rank)-(\d+)")
    placed = open_trace(tmp_path, with_pattern)
    assert not placed.failed and placed.tables["memory"].column("rank").to_pylist() == [1]
    with pytest.raises(MalformedTrace, match="--rank-pattern"):
        open_trace(tmp_path, OpenOptions(cache=False, strict=True))


def test_recordings_of_one_rank_are_one_timeline(tmp_path: Path) -> None:
    write(tmp_path / "b.json", op("late", 100, 1), op("later", 102, 1), **of_rank(0))
    write(tmp_path / "a.json", op("early", 1, 1), **of_rank(0))
    ops = open_trace(tmp_path, KEEP_NOTHING).tables["cpu_ops"].to_pylist()
    assert [(o["name"], o["cycle"], o["event"]) for o in ops] == [
        ("early", 0, 0),
        ("late", 1, 1),
        ("later", 1, 2),
    ]


def test_two_processes_of_one_rank_are_both_kept_and_said(tmp_path: Path) -> None:
    write(tmp_path / "run.1.json", op("x", 1, 5), **of_rank(0))
    write(tmp_path / "run.2.json", op("x", 1, 5), op("y", 7, 1), **of_rank(0))
    trace = open_trace(tmp_path, KEEP_NOTHING)
    ops = [(o["name"], o["cycle"]) for o in trace.tables["cpu_ops"].to_pylist()]
    assert ops == [("x", 0), ("x", 1), ("y", 1)]
    (issue,) = trace.tables["parse_issues"].to_pylist()
    assert issue["kind"] == "same_rank" and "run.1.json" in issue["text"]


def test_a_copy_of_a_file_is_left_out_and_said(tmp_path: Path) -> None:
    path = write(tmp_path / "a.json", op("x", 1, 5), **of_rank(0))
    (tmp_path / "a.json.gz").write_bytes(gzip.compress(path.read_bytes()))
    trace = open_trace(tmp_path, KEEP_NOTHING)
    assert trace.tables["cpu_ops"].num_rows == 1
    (issue,) = trace.tables["parse_issues"].to_pylist()
    assert issue["kind"] == "copy_of_a_file" and issue["file"].endswith("a.json.gz")


def test_of_two_recordings_whose_steps_begin_anew_the_newer_is_taken(tmp_path: Path) -> None:
    for name, base in (("old", 0), ("new", 5_000_000)):
        steps = [step(k, 100 * k, 100) for k in (3, 4)]
        write(tmp_path / f"{name}.json", *steps, op(name, 310, 5), **of_rank(0, base=base))
    trace = open_trace(tmp_path, KEEP_NOTHING)
    assert [o["name"] for o in trace.tables["cpu_ops"].to_pylist()] == ["new"]
    (issue,) = trace.tables["parse_issues"].to_pylist()
    assert issue["kind"] == "older_recording" and issue["file"].endswith("old.json")
    (damage,) = (row for row in check_recording(trace).to_pylist() if row["section"] == "damage")
    assert damage["finding"].startswith("1 time in old.json: an older recording of the rank of ")


def test_one_bad_file_does_not_spoil_the_others(tmp_path: Path) -> None:
    write(tmp_path / "rank-0.json", op("a", 1, 1), **of_rank(0, 2))
    (tmp_path / "rank-1.json").write_text('{"schemaVersion": 1, "deviceProperties": []')
    (tmp_path / "notes.txt").write_text("not a trace")
    trace = open_trace(tmp_path, KEEP_NOTHING)
    assert trace.ranks == [0]
    assert [name.rsplit("/", 1)[-1] for name, _ in trace.failed] == ["rank-1.json"]
    with pytest.raises(TraceError):
        open_trace(tmp_path, OpenOptions(cache=False, strict=True))


@pytest.mark.parametrize(
    ("content", "error"),
    [(b"", MalformedTrace), (b"  \n", MalformedTrace), (b"hello", UnknownFormat)],
)
def test_what_is_no_trace_is_refused(
    tmp_path: Path, content: bytes, error: type[TraceError]
) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(content)
    with pytest.raises(error, match=r"x\.json"):
        open_trace(path, KEEP_NOTHING)


def test_strict_refuses_a_loss(tmp_path: Path) -> None:
    path = tmp_path / "cut.json"
    whole = write(path, kernel("k", 1, 2), kernel("l", 4, 2)).read_text()
    path.write_text(whole[:-30])
    assert open_trace(path, KEEP_NOTHING).tables["kernels"].num_rows == 1
    with pytest.raises(MalformedTrace, match="truncated"):
        open_trace(path, OpenOptions(cache=False, strict=True))


def test_times_are_absolute(tmp_path: Path) -> None:
    base = 1_700_000_000_000_000_000
    path = write(tmp_path / "t.json", op("a", 1.5, 0.25), **of_rank(0, 1, base))
    (row,) = open_trace(path, KEEP_NOTHING).tables["cpu_ops"].to_pylist()
    assert (row["start_ns"], row["end_ns"]) == (base + 1_500, base + 1_750)


def test_durations_that_cannot_be_are_mended_and_counted(tmp_path: Path) -> None:
    path = write(tmp_path / "t.json", op("a", 1, -3), op("b", 2, 9e15), op("c", 3, 1))
    trace = open_trace(path, KEEP_NOTHING)
    spans = [o["end_ns"] - o["start_ns"] for o in trace.tables["cpu_ops"].to_pylist()]
    assert spans == [0, 0, 1000]
    kinds = {i["kind"]: i["count"] for i in trace.tables["parse_issues"].to_pylist()}
    assert kinds == {"negative_duration": 1, "overflowed_duration": 1}


def test_unknown_arguments_are_kept_on_request(tmp_path: Path) -> None:
    path = write(tmp_path / "t.json", op("a", 1, 1, **{"My key": [1, 2]}))
    kept = OpenOptions(cache=False, keep_unknown_arguments=True)
    assert open_trace(path, kept).tables["events"]["arguments"].to_pylist() == ['{"My key":[1,2]}']
    assert open_trace(path, KEEP_NOTHING).tables["events"]["arguments"].to_pylist() == [None]


def test_a_touched_file_of_the_same_content_is_known_by_its_content(tmp_path: Path) -> None:
    path = write(tmp_path / "t.json", op("a", 1, 1))
    by_content = OpenOptions(cache_by_content=True)
    open_trace(path, by_content)
    before = len(Store().list())
    os.utime(path, ns=(1, 1))
    open_trace(path, by_content)
    assert len(Store().list()) == before
    open_trace(path)
    assert len(Store().list()) == before + 1


def test_a_file_that_is_recognised_imports_no_later_parser(tmp_path: Path) -> None:
    file = write(tmp_path / "trace.json", op("a", 1, 1))
    code = (
        "import sys; from htk.traces.trace.opening import OpenOptions, open_trace;"
        f"open_trace({str(file)!r}, OpenOptions(cache=False));"
        "print({m for m in sys.modules if m.count('.') == 2 and m.startswith('htk.parsers.')})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "'htk.parsers.kineto'" in done.stdout and "'htk.parsers.xplane'" in done.stdout
    assert "'htk.parsers.nccl_debug'" not in done.stdout and "ras'" not in done.stdout


def test_a_rank_is_not_given_to_files_that_say_theirs(tmp_path: Path) -> None:
    for rank in (0, 1):
        write(tmp_path / f"{rank}.json", op("aten::mm", 0, 1), **of_rank(rank))
    with pytest.raises(
        UsageError, match=r"these say theirs \(0\.\.1\): choose among them by --ranks"
    ):
        open_trace(tmp_path, OpenOptions(rank=1, cache=False))
    alone = open_trace(tmp_path / "1.json", OpenOptions(rank=1, cache=False))
    assert alone.ranks == [1]
