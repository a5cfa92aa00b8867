"""Simulated jobs, whose truth is computed from their schedule and never from the written files."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from htk import api
from htk.simulate.config import Config, checked
from htk.simulate.job import simulate

JOBS: dict[str, dict[str, Any]] = {
    "fully sharded, the last step cut, clocks apart": {
        "strategy": "full_shard", "cut_last_step": True, "carry_in": 6,
        "clock_offset_us": 300.0, "clock_drift_ppm": 5.0, "plants": ("straggler",),
    },
    "replicated, a step bound by the host": {"strategy": "ddp", "plants": ("cpu_bound",)},
    "a stall of the data, nothing recorded of synchronisation": {
        "strategy": "shard_grad_op", "heavy_tails": True, "sync_records": False,
        "carry_in": 6, "plants": ("data_stall",),
    },
}  # fmt: skip
FIGURES = ("total_ns", "busy_ns", "idle_ns", "compute_ns", "comm_ns", "memory_ns",
           "exposed_comm_ns", "exposed_memory_ns")  # fmt: skip
# The schedule knows a kernel that follows another on its stream (stream), one that waits for an
# event (dependency), and one that the host launched late.
CLASSES = {
    "launch_latency": "queued", "back_to_back": "queued", "stream": "queued",
    "dependency": "event", "stream_event_wait": "event", "network": "network",
}  # fmt: skip


@pytest.fixture(scope="module", params=JOBS.values(), ids=JOBS)
def job(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("job")
    given = {"model": "gpt3-126m", "gpu": "a100-80gb", "nodes": 1, "gpus_per_node": 4,
             "micro_batch": 1, "seq": 256, "steps": 4, "seed": 3}  # fmt: skip
    simulate(checked(Config(**given, **request.param)), folder)
    return folder


def told(job: Path) -> dict[tuple[int, int], dict[str, Any]]:
    truth = json.loads((job / "truth.json").read_text())
    return {(r["rank"], s["step"]): s for r in truth["ranks"] for s in r["steps"]}


def cut_off(job: Path) -> set[int]:
    """Steps that the end of the recording cut."""
    rows = api.run(api.open(job), "step_times").to_pylist()
    return {r["step"] for r in rows if not r["complete"]}


def test_only_the_last_step_may_be_cut(job: Path) -> None:
    planned = json.loads((job / "truth.json").read_text())["config"]["cut_last_step"]
    assert cut_off(job) == ({max(k for _, k in told(job))} if planned else set())


def test_times_of_every_step_are_exact(job: Path) -> None:
    rows = api.run(api.open(job), "time_breakdown", per="step").to_pylist()
    found = {(r["rank"], r["step"]): r for r in rows if r["step"] is not None}
    truth = told(job)
    assert found.keys() == truth.keys()
    for key, step in truth.items():
        assert {f: found[key][f] for f in FIGURES} == {f: step[f] for f in FIGURES}, key


def test_overlap_and_step_times_are_exact(job: Path) -> None:
    trace, truth = api.open(job), told(job)
    for row in api.run(trace, "comm_compute_overlap", per="step").to_pylist():
        if row["step"] is not None:
            assert row["overlap_ns"] == truth[row["rank"], row["step"]]["overlap_ns"]
    for row in api.run(trace, "step_times").to_pylist():
        assert row["gpu_period_ns"] == truth[row["rank"], row["step"]]["total_ns"]


def test_idle_time_is_laid_at_the_right_door(job: Path) -> None:
    """By step and class; over 95 % must agree."""
    mine: dict[tuple[int, int], Counter[str]] = {}
    for row in api.run(api.open(job), "idle_breakdown", per="step").to_pylist():
        kind = CLASSES.get(row["cause"], "host" if row["cause"].startswith("host") else "?")
        mine.setdefault((row["rank"], row["step"]), Counter())[kind] += row["idle_ns"]
    right = total = 0
    for key, step in told(job).items():
        known: Counter[str] = Counter()
        for cause, ns in step["idle_by_cause_ns"].items():
            known[CLASSES.get(cause, "host")] += ns
        right += sum((mine.get(key, Counter()) & known).values())
        total += sum(known.values())
    assert right / total > 0.95


def test_a_planted_stall_of_the_data_is_found(job: Path) -> None:
    planted = json.loads((job / "truth.json").read_text())["planted"]
    rows = api.run(api.open(job), "recommendations").to_pylist()
    if any("data_stall" in str(p) for p in planted):
        assert "data" in rows[0]["finding"] or "late ranks" in rows[0]["finding"]
    assert rows, "something can always be won"


def test_the_verdict_adds_up(job: Path) -> None:
    from htk.summary import verdict

    found = verdict(api.open(job))
    assert sum(s.pct for s in found.shares) == pytest.approx(100)
    assert len(found.ranks) == 4
    assert found.steps == len({k for _, k in told(job)} - cut_off(job))
