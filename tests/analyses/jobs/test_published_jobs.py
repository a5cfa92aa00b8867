"""Two production jobs with the answers that were published for them."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import htk
from htk.traces.trace.trace import Trace

NAMES = {
    "forward_pipeline": "forward-pp-comm",
    "backward_pipeline": "backward-pp-comm",
    "clip_grads": "optimizer-clip-main-grad",
    "garbage_collection": "gc",
}


@pytest.fixture(scope="module", params=["AR", "ST"])
def published(request: pytest.FixtureRequest, shared: Path) -> tuple[str, Trace, dict[str, Any]]:
    folder = shared / "traces" / "straggler"
    files = [folder / f"trace-{request.param}.parquet", folder / f"meta-{request.param}.yaml"]
    answer = json.loads((folder / f"result-{request.param}.json").read_text())
    for metric in ("ms", "mw"):
        answer |= json.loads((folder / f"{metric}-{request.param}.json").read_text())
    return request.param, htk.open(files), answer


def ask(published: tuple[str, Trace, dict[str, Any]], name: str) -> list[dict[str, Any]]:
    table: pa.Table = htk.run(published[1], name).table
    return table.to_pylist()


def test_the_job_and_each_step(published: tuple[str, Trace, dict[str, Any]]) -> None:
    expected = published[2]
    job, *steps = ask(published, "straggler_slowdown")
    assert job["slowdown"] == pytest.approx(expected["blocking_slowdown"], rel=1e-5)
    assert job["launch_slowdown"] == pytest.approx(expected["launch_slowdown"], rel=1e-5)
    assert len(steps) == len(expected["step_t_base"])
    for row in steps:
        step = str(row["step"])
        for column, key in (
            ("recorded_ms", "step_t_base"),
            ("replayed_ms", "step_t_nodelay"),
            ("ideal_ms", "step_t_noblk"),
        ):
            assert row[column] == pytest.approx(1e3 * expected[key][step], rel=1e-5)
        assert row["slowdown"] == pytest.approx(expected["blocking_step_slowdown"][step], rel=1e-5)


def test_by_type(published: tuple[str, Trace, dict[str, Any]]) -> None:
    expected = published[2]["blocking_decompose_by_optype"]
    rows = {row["type"]: row["slowdown"] for row in ask(published, "slowdown_by_type")}
    found = {NAMES.get(name, name.replace("_", "-")): value for name, value in rows.items()}
    assert found == pytest.approx(expected, rel=1e-5)


def test_by_stage(published: tuple[str, Trace, dict[str, Any]]) -> None:
    expected = published[2]["blocking_decompose_by_stage"]
    rows = {str(row["stage"]): row["slowdown"] for row in ask(published, "slowdown_by_stage")}
    assert rows == pytest.approx(expected, rel=1e-5)


def test_by_worker(published: tuple[str, Trace, dict[str, Any]]) -> None:
    replicas = published[2]["blocking_decompose_by_dp_rank"]
    stages = published[2]["blocking_decompose_by_stage"]
    rows = ask(published, "slowdown_by_worker")
    assert len(rows) == len(replicas) * len(stages)
    for row in rows:
        dp_rank, stage = str(row["dp_rank"]), str(row["stage"])
        assert row["dp_rank_slowdown"] == pytest.approx(replicas[dp_rank], rel=1e-5)
        bound = min(replicas[dp_rank], stages[stage])
        assert row["slowdown_bound"] == pytest.approx(bound, rel=1e-5)
    named, *_, last = rows
    assert named["slowdown"] > last["slowdown"]
    if published[0] == "AR":
        assert (named["dp_rank"], named["stage"], named["slowest_steps"]) == (0, 0, 44)
    else:
        assert named["stage"] == rows[1]["stage"] == 3


def test_the_cause_is_named(published: tuple[str, Trace, dict[str, Any]]) -> None:
    expected = published[2]
    rows = ask(published, "straggler_causes")
    by_metric = {row["metric"]: row["value"] for row in rows}
    assert by_metric["M_W"] == pytest.approx(expected["Mw"], abs=1e-5)
    assert by_metric["M_S"] == pytest.approx(expected["Ms"], abs=1e-5)
    assert [row["cause"] for row in rows if row["likely"]] == [
        {"AR": "worker", "ST": "stage_split"}[published[0]]
    ]
    assert {"AR": "dp rank 0, stage 0 (rank 0)", "ST": "stage 3"}[published[0]] in rows[0][
        "evidence"
    ]


def test_the_layout_counts_all_gpus(published: tuple[str, Trace, dict[str, Any]]) -> None:
    answer = htk.run(published[1], "straggler_slowdown")
    job = answer.table.slice(0, 1).to_pylist()[0]
    world = {"AR": 64, "ST": 8}[published[0]]
    assert answer.coverage["gpus"] == world
    steps = answer.table.num_rows - 1
    hours = job["excess_ms"] * steps * world / 3.6e6
    assert job["excess_gpu_hours"] == pytest.approx(hours, rel=1e-9)


def test_the_timeline_of_the_same_job_says_the_same(shared: Path) -> None:
    folder = shared / "traces" / "straggler"
    expected = json.loads((folder / "result-ST.json").read_text())
    drawn = htk.open(folder / "timeline-ST.json.gz")
    job = htk.run(drawn, "straggler_slowdown").table.slice(0, 1).to_pylist()[0]
    assert job["slowdown"] == pytest.approx(expected["blocking_slowdown"], rel=1e-5)
