"""What can be told of collectives when some of a job's ranks were not recorded."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from htk.answers.ask import ask_trace
from htk.recording.simulate.config import Config, check_config
from htk.recording.simulate.job import simulate_job
from htk.traces.trace.opening import OpenOptions, open_trace
from htk.traces.trace.trace import Trace
from tests.thinned import thinned

Row = dict[str, Any]
ROOTED = ("broadcast", "scatter", "send", "recv")


def some_of(folder: Path, pattern: str, ranks: list[int], to: Path) -> Trace:
    to.mkdir()
    for rank in ranks:
        (file,) = folder.glob(pattern.format(rank))
        shutil.copy(file, to)
    return open_trace(to, OpenOptions(cache=False))


def calls(trace: Trace) -> dict[tuple[int, int], Row]:
    rows = ask_trace(trace, "collective_times", align=False).to_pylist()
    return {(r["rank"], r["event"]): r for r in rows}


def apart(start: int, others: list[int], length: int) -> int:
    """The plain definition: until the last of the others has come, within the call."""
    return min(max(max(others) - start, 0), length)


@pytest.mark.parametrize("strategy", ["ddp", "full_shard", "hybrid_shard"])
@pytest.mark.parametrize("kept", thinned([[0, 1, 2], [1, 4, 6, 7], [3]], 3))
def test_against_the_whole_job(strategy: str, kept: list[int], tmp_path: Path) -> None:
    """Rank 5, which is late throughout, is not recorded: nothing that it cost may be transfer."""
    job = Config(
        model="gpt3-126m",
        layers=2,
        nodes=2,
        gpus_per_node=4,
        strategy=strategy,
        micro_batch=2,
        seq=256,
        steps=2,
        seed=3,
        plants=("straggler:rank=5,factor=1.6",),
    )
    simulate_job(check_config(job), tmp_path / "all")
    whole = calls(open_trace(tmp_path / "all", OpenOptions(cache=False)))
    part = calls(some_of(tmp_path / "all", "rank{}.*", kept, tmp_path / "part"))
    assert {key for key in whole if key[0] in kept} == set(part)
    undetermined = 0
    for key, row in part.items():
        truth, length = whole[key], row["end_ns"] - row["start_ns"]
        members = [
            r for r in whole.values() if r["match"] == truth["match"] and r["match"] is not None
        ]
        here = [r for r in members if r["rank"] in kept]
        if len(here) < 2:
            assert row["wait_ns"] is None and row["undetermined_ns"] == length
        else:
            assert row["type"] not in ROOTED
            assert row["wait_ns"] == apart(row["start_ns"], [r["start_ns"] for r in here], length)
            assert row["wait_ns"] <= truth["wait_ns"]
            assert row["transfer_ns"] <= truth["transfer_ns"]
            assert row["wait_ns"] + row["transfer_ns"] + row["undetermined_ns"] == length
            assert (row["undetermined_ns"] > 0) <= (len(here) < row["members_expected"])
        undetermined += row["undetermined_ns"]
    lost = sum(
        whole[key]["wait_ns"] - (row["wait_ns"] or 0)
        for key, row in part.items()
        if whole[key]["wait_ns"] is not None
    )
    assert undetermined >= lost > 0  # what cannot be told holds all waiting that was not seen


def test_three_files_of_eight(shared: Path, tmp_path: Path) -> None:
    """Of this public job 94 % of communication is waiting, mostly for rank 7."""
    folder = shared / "traces/dlrm_8rank"
    whole = open_trace(folder, OpenOptions(cache=False))
    part = some_of(folder, "worker{}_*", [0, 1, 2], tmp_path / "three")
    both = [{r["rank"]: r for r in ask_trace(t, "comm_wait").to_pylist()} for t in (whole, part)]
    for rank, row in both[1].items():
        truth = both[0][rank]
        assert truth["undetermined_ns"] == 0
        assert row["transfer_ns"] <= truth["transfer_ns"]
        assert row["wait_ns"] < truth["wait_ns"] <= row["wait_ns"] + row["undetermined_ns"]
        assert row["exposed_transfer_ns"] <= truth["exposed_transfer_ns"]
        assert row["transfer_overlap_pct"] is None
    assert ask_trace(part, "comm_wait").coverage["unrecorded_ranks"] == "5 of 8"
    assert all(r["busbw_gbps"] is None for r in ask_trace(part, "collective_times").to_pylist())
    spans = [
        [r["span_ns"] for r in ask_trace(t, "late_arrivals").to_pylist()] for t in (whole, part)
    ]
    assert min(spans[0]) > 0 and set(spans[1]) == {None}
    assert {r["basis"] for r in ask_trace(part, "comm_model").to_pylist()} <= {"fastest tenth"}
    advice = {r["finding"]: r for r in ask_trace(part, "recommendations", min_pct=0.5).to_pylist()}
    unknown = advice["exposed communication: wait or transfer, cannot be told"]
    assert "5 of 8 ranks missing" in unknown["evidence"]
    assert "communication is exposed" not in advice
    assert not any("faster links" in r["advice"] for r in advice.values())


def test_what_each_part_adds_up_to(shared: Path, tmp_path: Path) -> None:
    part = some_of(shared / "traces/dlrm_8rank", "worker{}_*", [2, 7], tmp_path / "two")
    rows = ask_trace(part, "collective_times").to_pylist()
    for name, options in (("comm_wait", {}), ("comm_summary", {"by": "type"})):
        found = ask_trace(part, name, **options).to_pylist()
        for column in ("wait_ns", "transfer_ns", "undetermined_ns"):
            assert sum(r[column] for r in found) == sum(r[column] for r in rows)
    exposed = {
        r["rank"]: r["exposed_comm_ns"] for r in ask_trace(part, "time_breakdown").to_pylist()
    }
    for row in ask_trace(part, "comm_wait").to_pylist():
        parts = (row[f"exposed_{c}_ns"] for c in ("wait", "transfer", "undetermined"))
        assert sum(parts) == exposed[row["rank"]]
