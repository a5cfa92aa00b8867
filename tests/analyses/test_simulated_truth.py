"""Simulated jobs, whose truth is computed from their schedule and never from the written files."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from htk.answers.ask import ask_trace
from htk.recording.simulate import truth
from htk.recording.simulate.config import Config, check_config
from htk.recording.simulate.job import simulate_job
from htk.traces.trace.opening import open_trace

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
    "graphs, programmatic launches, contention, a short queue, two nodes": {
        "strategy": "hybrid_shard", "fsdp": 1, "nodes": 2, "gpus_per_node": 2, "graphs": True,
        "programmatic": True, "contention": True, "queue": 60, "accumulation": 2,
        "checkpointing": True, "metadata": False, "stagger_us": 300.0,
    },
}  # fmt: skip
FIGURES = ("total_ns", "busy_ns", "idle_ns", "compute_ns", "comm_ns", "memory_ns",
           "exposed_comm_ns", "exposed_memory_ns")  # fmt: skip
# The schedule knows a kernel that follows another on its stream (stream), one that waits for an
# event (dependency), and one that the host launched late.
CLASSES = {
    "launch_latency": "queued", "back_to_back": "queued", "stream": "queued",
    "between_queued_kernels": "queued", "inside_cuda_graph": "queued",
    "dependency": "event", "stream_event_wait": "event", "network": "network",
    "host_data_loading": "data", "host_sync": "sync", "host_gc": "gc",
}  # fmt: skip


@pytest.fixture(scope="module", params=JOBS.values(), ids=JOBS)
def job(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("job")
    given = {"model": "gpt3-126m", "gpu": "a100-80gb", "nodes": 1, "gpus_per_node": 4,
             "micro_batch": 1, "seq": 256, "steps": 4, "seed": 3}  # fmt: skip
    simulate_job(check_config(Config(**(given | request.param))), folder)
    return folder


def told(job: Path) -> dict[tuple[int, int], dict[str, Any]]:
    planned = json.loads((job / "truth.json").read_text())
    return {(r["rank"], s["step"]): s for r in planned["ranks"] for s in r["steps"]}


def cut_off(job: Path) -> set[int]:
    """Steps that the end of the recording cut."""
    rows = ask_trace(open_trace(job), "step_times").to_pylist()
    return {r["step"] for r in rows if not r["complete"]}


def test_only_the_last_step_may_be_cut(job: Path) -> None:
    planned = json.loads((job / "truth.json").read_text())["config"]["cut_last_step"]
    assert cut_off(job) == ({max(k for _, k in told(job))} if planned else set())


def test_times_of_every_step_are_exact(job: Path) -> None:
    rows = ask_trace(open_trace(job), "time_breakdown", per="step").to_pylist()
    found = {(r["rank"], r["step"]): r for r in rows if r["step"] is not None}
    known = told(job)
    assert found.keys() == known.keys()
    for key, step in known.items():
        assert {f: found[key][f] for f in FIGURES} == {f: step[f] for f in FIGURES}, key


def test_overlap_and_step_times_are_exact(job: Path) -> None:
    trace, known = open_trace(job), told(job)
    for row in ask_trace(trace, "comm_compute_overlap", per="step").to_pylist():
        if row["step"] is not None:
            assert row["overlap_ns"] == known[row["rank"], row["step"]]["overlap_ns"]
    for row in ask_trace(trace, "step_times").to_pylist():
        assert row["gpu_period_ns"] == known[row["rank"], row["step"]]["total_ns"]


def test_idle_time_is_laid_at_the_right_door(job: Path) -> None:
    """By step and class; over 95 % must agree."""
    mine: dict[tuple[int, int], Counter[str]] = {}
    for row in ask_trace(open_trace(job), "idle_breakdown", per="step").to_pylist():
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


def test_each_gap_has_the_cause_that_the_schedule_gave_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table of confusion: what the next activity waited for, against the cause of each piece."""
    confusion: Counter[tuple[str, str]] = Counter()
    for number, (strategy, switches) in enumerate(CONFUSED):
        given = {"model": "gpt3-126m", "gpu": "a100-80gb", "micro_batch": 1, "seq": 256,
                 "steps": 3, "seed": 5, "strategy": strategy} | switches  # fmt: skip
        known = scheduled(check_config(Config(**given)), tmp_path / str(number), monkeypatch)
        for row in open_trace(tmp_path / str(number)).tables["idle_causes"].to_pylist():
            if row["stream"] is None:
                waited = known[row["rank"]][row["gap_end_ns"]]
                confusion[waited, row["cause"]] += row["end_ns"] - row["start_ns"]
    right = sum(n for (true, mine), n in confusion.items() if RIGHT[true](mine))
    assert right / sum(confusion.values()) > 0.95, confusion.most_common()
    for true in RIGHT:  # and of each cause by itself, where it matters
        of = {mine: n for (t, mine), n in confusion.items() if t == true}
        if sum(of.values()) > 0.02 * sum(confusion.values()):
            assert sum(n for m, n in of.items() if RIGHT[true](m)) > 0.9 * sum(of.values()), of


CONFUSED: tuple[tuple[str, dict[str, Any]], ...] = (
    ("full_shard", {"gpus_per_node": 4, "accumulation": 2, "cut_last_step": True}),
    ("ddp", {"gpus_per_node": 2, "plants": ("cpu_bound",), "clock_offset_us": 200.0}),
    ("hybrid_shard", {"nodes": 2, "gpus_per_node": 2, "programmatic": True, "fsdp": 1}),
    ("ddp", {"gpus_per_node": 2, "graphs": True, "sync_records": False}),
)
RIGHT = {
    "host": lambda mine: mine.startswith("host_") or mine == "launch_latency",
    "stream": lambda mine: CLASSES.get(mine) == "queued",
    "dependency": lambda mine: mine == "stream_event_wait",
    "network": lambda mine: mine == "stream_event_wait",
}


def scheduled(
    config: Config, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> dict[int, dict[int, str]]:
    """Simulate; of each rank what each start of an activity waited for, as it was scheduled."""
    heard: dict[int, dict[int, str]] = {}
    add, begin = truth._Rank.add, truth.Truth.__init__

    def listening(self: Any, timed: Any, what: Any, start: Any, end: Any, cause: Any) -> None:
        told = [truth._CAUSES[k] for k in cause.tolist()]
        heard.setdefault(id(self), {}).update(zip(start.tolist(), told, strict=True))
        add(self, timed, what, start, end, cause)

    ranks: dict[int, Any] = {}

    def beginning(self: Any, *given: Any) -> None:
        begin(self, *given)
        ranks.update(self._ranks)

    with monkeypatch.context() as patch:
        patch.setattr(truth._Rank, "add", listening)
        patch.setattr(truth.Truth, "__init__", beginning)
        simulate_job(config, folder)
    return {rank: heard[id(its)] for rank, its in ranks.items()}


def test_a_planted_stall_of_the_data_is_found(job: Path) -> None:
    """And the pause of a host that a heavy tail holds too; transfers alone are left unexplained."""
    planned = json.loads((job / "truth.json").read_text())
    rows = ask_trace(open_trace(job), "recommendations", min_pct=0.0).to_pylist()  # every cause
    assert rows, "something can always be won"
    stalls = [fault["ns"] for fault in planned["planted"] if fault["plant"] == "data_stall"]
    if stalls:
        first, second, *_ = rows
        steps = planned["config"]["steps"]
        assert first["finding"] == "the GPU waits for data"
        assert first["step_gain_ns"] == pytest.approx(sum(stalls) / steps, rel=0.05)
        assert first["advice"].endswith("see train.py(88): train_step")
        assert second["finding"] == "Python collects garbage in the step"
        for row in rows:
            if row["finding"] == "unexplained":  # transfers that nothing could run beside
                lost = row["evidence"].partition("for ")[2].partition(",")[0]
                assert row["advice"].startswith(f"{lost} of it are transfers")


def test_the_verdict_adds_up(job: Path) -> None:
    from htk.verdicts.overview.summary import reach_verdict

    found = reach_verdict(open_trace(job))
    assert sum(s.pct for s in found.shares) == pytest.approx(100)
    assert len(found.ranks) == 4
    assert found.steps == len({k for _, k in told(job)} - cut_off(job))
