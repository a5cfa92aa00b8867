"""Logging of operations: rows that open, files that rotate, training that never stops for it."""

import json
import sys
from collections import Counter
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import htk
from htk.quantities.straggler.streamed import job_of
from htk.recording.clocks import DeviceClock
from htk.recording.operations import OperationLog, Worker, megatron_worker
from htk.verdicts.history.run_facts import run_facts
from tests.operation_job import JobPlan, simulate, step_times

torch = pytest.importorskip("torch")


class Ticks:
    """A clock of the test's own: each mark is a millisecond later."""

    def __init__(self) -> None:
        self.now = 1_700_000_000_000_000_000

    def mark(self) -> int:
        self.now += 1_000_000
        return self.now

    def when(self, mark: int) -> int | None:
        return mark

    def new_step(self) -> None: ...


def rows_of(folder: Path) -> list[dict[str, Any]]:
    trace = htk.open(folder)
    listed: list[dict[str, Any]] = trace.tables["job_operations"].to_pylist()
    return sorted(listed, key=lambda row: (row["start_ns"], row["end_ns"]))


def test_a_plain_loop_logs_its_passes_and_steps(tmp_path: Path) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with htk.capture(tmp_path, operations=True, first_step=40) as log:
        log.watch(model, optimizer)
        for _ in range(3):
            for _ in range(2):
                model(torch.ones(4, 8)).sum().backward()
            optimizer.step()
            with torch.no_grad():
                model(torch.ones(4, 8))  # an evaluation is not logged
            log.step()
    rows = rows_of(tmp_path)
    one = ["forward_compute", "backward_compute"] * 2 + ["optimizer"]
    assert [row["type"] for row in rows] == one * 3
    assert [row["step"] for row in rows] == [40] * 5 + [41] * 5 + [42] * 5
    assert [row["micro_batch"] for row in rows[:5]] == [0, 0, 1, 1, None]
    assert all(row["rank"] == row["dp_rank"] == row["stage"] == 0 for row in rows)
    ends = [row["end_ns"] for row in rows]
    assert all(row["start_ns"] >= end for row, end in zip(rows[1:], ends, strict=False))
    answer = htk.run(htk.open(tmp_path), "straggler_slowdown")
    assert answer.table["step"].to_pylist() == [None, 40, 41, 42]
    assert answer.coverage["dp_size"] == 1


def test_facts_of_the_job_are_written_once_and_get_into_the_history(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "4711")
    monkeypatch.setenv("GIT_COMMIT", "c" * 40)
    monkeypatch.setenv("SECRET_TOKEN", "hush")
    for rank in (0, 1):
        sizes = {"dp_size": 2, "pp_size": 1, "world_size": 2}
        log = OperationLog(tmp_path, Worker(rank, rank, sizes=sizes), Ticks())
        for _ in range(2):
            for name in ("forward_compute", "backward_compute", "optimizer"):
                with log.operation(name, micro_batch=0):
                    pass
            log.step()
        log.close()
    assert "hush" not in (tmp_path / "layout.yaml").read_text()
    row = run_facts(htk.open(tmp_path), "a run").row
    facts = json.loads(row["environment"])
    assert (facts["slurm_job_id"], facts["git_commit"]) == ("4711", "c" * 40)
    assert (row["world_size"], row["rank_count"], row["step_count"]) == (2, 2, 2)


def test_blocks_are_logged_as_they_are_named(tmp_path: Path) -> None:
    log = OperationLog(tmp_path, Worker(5, 2, 1), Ticks())
    for step in range(2):
        with log.operation("forward-compute", micro_batch=3, chunk=1):
            pass
        with log.operation("my own"):
            pass
        log.step()
        assert log.steps == step + 1
    log.close()
    (path,) = log.paths
    assert path.name == "operations-rank00005.0.jsonl"
    first, second, *_ = [json.loads(line) for line in path.read_text().splitlines()]
    assert first == {
        "rank": 5, "dp_rank": 2, "stage": 1, "type": "forward_compute", "chunk": 1,
        "micro_batch": 3, "step": 0, "start_ns": 1_700_000_000_001_000_000,
        "end_ns": 1_700_000_000_002_000_000,
    }  # fmt: skip
    assert (second["type"], second["micro_batch"]) == ("my own", None)


def test_files_rotate_and_old_ones_go(tmp_path: Path) -> None:
    for start in (0, 1):  # the job is started twice in one folder
        log = OperationLog(tmp_path, Worker(), Ticks(), rotate_mib=0, keep=3)
        for _ in range(5):
            with log.operation("optimizer"):
                pass
            log.step()
            log.flush()
        log.close()
        numbers = sorted(int(p.name.split(".")[1]) for p in log.paths)
        assert numbers == ([2, 3, 4] if start == 0 else [7, 8, 9])
    kept = {int(p.name.split(".")[1]) for p in tmp_path.glob("*.jsonl")}
    assert kept == {2, 3, 4, 7, 8, 9}, "files of an earlier start are not this one's to remove"


def test_a_full_disk_ends_the_log_and_not_the_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = OperationLog(tmp_path, Worker(), Ticks())

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(log, "_write", full)
    with log.operation("optimizer"):
        pass
    with pytest.warns(UserWarning, match="no longer logged.*No space left"):
        log.flush()
    for _ in range(3):
        with log.operation("optimizer"):
            pass
        log.step()
    log.close()
    assert not list(tmp_path.glob("*.jsonl"))


def test_ranks_that_share_each_layer_log_once(tmp_path: Path) -> None:
    log = OperationLog(tmp_path / "none", Worker(1, 0, 0, tp_rank=1), Ticks())
    with log.operation("optimizer"):
        pass
    log.step()
    log.close()
    assert not log.recorded and not (tmp_path / "none").exists()


class Timers:
    """As Megatron's: called by name, started and stopped."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def __call__(self, name: str, log_level: int | None = None) -> Any:
        def note(what: str, **options: Any) -> None:
            self.calls.append(f"{name} {what} {log_level} {options}")

        return SimpleNamespace(
            start=lambda **o: note("start", **o), stop=lambda **o: note("stop", **o), elapsed=3
        )

    def log(self) -> str:
        return "logged"


def test_timers_of_megatron_log_with_chunk_and_micro_batch(tmp_path: Path) -> None:
    worker = Worker(2, 0, 1, sizes={"pp_size": 2, "vpp_size": 2, "dp_size": 1, "world_size": 2})
    log, plain = OperationLog(tmp_path, worker, Ticks()), Timers()
    timers = log.timers(plain)
    for _ in range(2):
        for _ in range(8):
            for name in ("forward-compute", "backward-compute"):
                timers(name, log_level=2).start(barrier=False)
                timers(name).stop()
        timers("optimizer").start()
        timers("optimizer").stop()
        timers("interval-time").start()
        log.step()
    log.close()
    assert timers.log() == "logged" and timers("optimizer").elapsed == 3
    assert len(plain.calls) == 2 * (8 * 4 + 2 + 1)
    rows = [json.loads(line) for line in log.paths[0].read_text().splitlines()]
    forward = [(r["chunk"], r["micro_batch"]) for r in rows if r["type"] == "forward_compute"]
    backward = [(r["chunk"], r["micro_batch"]) for r in rows if r["type"] == "backward_compute"]
    order = [(0, 0), (0, 1), (1, 0), (1, 1), (0, 2), (0, 3), (1, 2), (1, 3)]
    assert forward == order * 2
    assert backward == [(1 - chunk, batch) for chunk, batch in order] * 2
    assert {r["type"] for r in rows} == {"forward_compute", "backward_compute", "optimizer"}


class Set(Ticks):
    """A clock that the test sets."""

    def mark(self) -> int:
        return self.now


def test_timers_of_batched_messages_log_a_job_that_replays(tmp_path: Path) -> None:
    """Megatron's default: forward-send-backward-recv times one call of two messages."""
    plan = JobPlan(replicas=2, stages=3, micro_batches=4, steps=2, batched=True, send=5.0, seed=4)
    plan.worker = {(1, 1): 1.5}
    rows = simulate(plan).to_pylist()
    for replica, stage in ((d, s) for d in range(2) for s in range(3)):
        own = [row for row in rows if (row["dp_rank"], row["stage"]) == (replica, stage)]
        sizes = {"pp_size": 3, "vpp_size": 1, "dp_size": 2, "world_size": 6}
        log = OperationLog(
            tmp_path, Worker(own[0]["rank"], replica, stage, sizes=sizes), clock := Set()
        )
        timers = log.timers(Timers())
        for step in (10, 11):
            for row in sorted((r for r in own if r["step"] == step), key=lambda r: r["start_ns"]):
                timer = timers(row["type"].replace("_", "-"), log_level=2)
                clock.now = row["start_ns"]
                timer.start()
                clock.now = row["end_ns"]
                timer.stop()
            log.step()
        log.close()
    trace = htk.open(tmp_path)
    logged = trace.tables["job_operations"]
    assert Counter(logged["type"].to_pylist()) == Counter(row["type"] for row in rows)
    assert "forward_send_backward_recv" in logged["type"].to_pylist()
    job = job_of(logged)
    assert job.replayed.tolist() == job.recorded.tolist() == step_times(simulate(plan)).tolist()
    first = htk.run(trace, "straggler_causes").to_pylist()[0]
    assert first["likely"] and "dp rank 1, stage 1" in first["evidence"]


def test_the_worker_is_the_one_that_megatrons_groups_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    assert megatron_worker(3, 8) == Worker(3, 3, sizes={"dp_size": 8, "pp_size": 1})
    state = SimpleNamespace(
        model_parallel_is_initialized=lambda: True,
        get_data_parallel_rank=lambda: 1,
        get_pipeline_model_parallel_rank=lambda: 2,
        get_tensor_model_parallel_rank=lambda: 0,
        get_data_parallel_world_size=lambda: 2,
        get_pipeline_model_parallel_world_size=lambda: 4,
        get_tensor_model_parallel_world_size=lambda: 8,
        get_virtual_pipeline_model_parallel_world_size=lambda: None,
    )
    monkeypatch.setitem(sys.modules, "megatron.core.parallel_state", state)
    worker = megatron_worker(40, 64)
    assert (worker.rank, worker.dp_rank, worker.stage, worker.tp_rank) == (40, 1, 2, 0)
    assert worker.sizes["vpp_size"] == 1 and worker.sizes["tp_size"] == 8


class Cuda:
    """Events of a device that runs behind the host: a time once the device has come there."""

    def __init__(self) -> None:
        self.enqueued, self.done = 0.0, 0.0

    def synchronize(self) -> None:
        self.done = self.enqueued

    def Event(self, enable_timing: bool) -> Any:
        cuda = self

        class Event:
            def record(self) -> None:
                self.at = cuda.enqueued

            def query(self) -> bool:
                return self.at <= cuda.done

            def synchronize(self) -> None:
                cuda.done = max(cuda.done, self.at)

            def elapsed_time(self, other: Any) -> float:
                assert self.query() and other.query(), "asked before it has come"
                return float(other.at - self.at)

        assert enable_timing
        return Event()


def test_moments_of_a_device_are_known_when_it_has_come_there(tmp_path: Path) -> None:
    cuda = Cuda()
    clock = DeviceClock(cuda)
    log = OperationLog(tmp_path, Worker(), clock)
    for _ in range(3):
        with log.operation("forward_compute"):
            cuda.enqueued += 7.5
        cuda.enqueued += 2.0
        log.step()
    log.flush()
    assert not log.paths, "the device has not come anywhere"
    cuda.done = 9.5
    log.flush()
    assert len(log.paths[0].read_text().splitlines()) == 1
    cuda.done = cuda.enqueued
    log.close()
    rows = [json.loads(line) for line in log.paths[0].read_text().splitlines()]
    assert [row["end_ns"] - row["start_ns"] for row in rows] == [7_500_000] * 3
    starts = [row["start_ns"] for row in rows]
    assert [after - before for before, after in pairwise(starts)] == [9_500_000] * 2


def test_rows_of_a_device_that_never_comes_back_are_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("htk.recording.operations._MOST_PENDING", 10)
    cuda = Cuda()
    log = OperationLog(tmp_path, Worker(), DeviceClock(cuda))
    for _ in range(25):
        with log.operation("optimizer"):
            cuda.enqueued += 1.0
    log.flush()
    assert log.dropped == 15 and not log.paths


def test_reductions_of_ddp_are_logged_as_far_as_they_are_exposed(tmp_path: Path) -> None:
    """Between the end of the backward and the end of DDP's own callback; none under no_sync."""
    distributed = torch.distributed
    if not distributed.is_available() or not distributed.is_gloo_available():
        pytest.skip("this torch has no gloo")
    place = f"file://{tmp_path / 'store'}"
    distributed.init_process_group("gloo", init_method=place, rank=0, world_size=1)
    try:
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with htk.capture(tmp_path / "rows", operations=True) as log:
            log.watch(model, optimizer)
            for _ in range(2):
                with model.no_sync():
                    model(torch.ones(4, 8)).sum().backward()
                model(torch.ones(4, 8)).sum().backward()
                optimizer.step()
                log.step()
    finally:
        distributed.destroy_process_group()
    rows = rows_of(tmp_path / "rows")
    passes = ["forward_compute", "backward_compute"]
    assert [row["type"] for row in rows] == [*passes, *passes, "grads_all_reduce", "optimizer"] * 2
    for backward, reduction, step in (rows[3:6], rows[9:12]):
        assert backward["end_ns"] == reduction["start_ns"] < reduction["end_ns"] <= step["start_ns"]
