"""Rows of a job cut from its profiles: by hand, and on a simulated job whose straggler is known."""

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import htk
from htk.answers.export.operation_rows import cut_operations, write_operations
from htk.base.errors import MissingTable
from htk.faces.cli.commands.convert import command
from htk.recording.simulate.config import Config
from htk.recording.simulate.job import simulate_job
from tests.kineto_file import Event, kernel, launch, of_rank, span, step, write
from tests.thinned import thinned

COMM = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"
# What a step launches: the range it stands in, the kernel, its start and length in us.
STEP = (
    ("forward", "gemm", 10, 20),
    ("forward", "relu", 32, 5),
    ("backward", "gemm", 40, 30),
    ("backward", COMM, 75, 9),
    ("forward", "gemm", 86, 21),
    ("backward", "gemm", 110, 31),
    ("backward", "gemm", 142, 8),
    ("backward", COMM, 155, 12),
    ("optimizer", "adam", 170, 6),
)


@pytest.fixture
def by_hand(tmp_path: Path) -> htk.Trace:
    """Two ranks, the clock of the second 3 ms ahead; two steps with two micro-batches each."""
    return _written(tmp_path, 4, 5)


def _written(folder: Path, *steps: int) -> htk.Trace:
    for rank in (0, 1):
        events: list[Event] = []
        for position, number in enumerate(steps):
            base = 200 * position + 3000 * rank
            events.append(step(number, base + 1, 99))
            for k, (phase, name, start, length) in enumerate(STEP):
                call = base + 2 + 10 * k
                events.append(span(phase, call, 8))
                events.append(launch(base + k + 1, call + 1))
                events.append(kernel(name, base + start, length, base + k + 1))
        write(folder / f"rank{rank}.json", *events, **of_rank(rank, 2))
    return htk.open(folder)


def test_steps_of_equal_number_are_not_one(tmp_path: Path) -> None:
    """Rows have no cycle, so one must be chosen."""
    trace = _written(tmp_path, 4, 5, 4, 5)
    with pytest.raises(MissingTable, match=r"choose one with --cycles: 0\.\.1"):
        cut_operations(trace)
    for cycle in (0, 1):
        rows = cut_operations(trace.sel(cycles=cycle))
        assert rows.num_rows == 2 * 2 * 7


def test_each_pass_from_its_first_kernel_to_its_last(by_hand: htk.Trace) -> None:
    rows = cut_operations(by_hand).to_pylist()
    assert len(rows) == 2 * 2 * 7
    mine = sorted(
        (r for r in rows if r["rank"] == 1 and r["step"] == 5), key=lambda r: r["start_ns"]
    )
    found = [
        (r["type"], r["micro_batch"], r["start_ns"] / 1e3 - 200, r["end_ns"] / 1e3 - 200)
        for r in mine
    ]
    assert found == [
        ("forward_compute", 0, 10, 37),
        ("backward_compute", 0, 40, 70),
        ("grads_all_reduce", None, 75, 84),
        ("forward_compute", 1, 86, 107),
        ("backward_compute", 1, 110, 150),
        ("grads_all_reduce", None, 155, 167),
        ("optimizer", None, 170, 176),
    ]
    assert {(r["dp_rank"], r["stage"]) for r in rows} == {(0, 0), (1, 0)}


def test_a_simulated_job_names_its_straggler_from_profiles_too(tmp_path: Path) -> None:
    size = {"layers": 2, "seq": 256, "micro_batch": 2, "gpus_per_node": 4, "steps": 4}
    config = Config(model="gpt3-126m", strategy="ddp", plants=("straggler",), seed=2, **size)  # type: ignore[arg-type]
    simulate_job(config, tmp_path / "job")
    (plant,) = json.loads((tmp_path / "job/truth.json").read_text())["planted"]
    outcome = CliRunner().invoke(
        command, [str(tmp_path / "job"), "--format", "operations", "-o", str(tmp_path / "rows")]
    )
    assert outcome.exit_code == 0, outcome.output
    cut = htk.open(tmp_path / "rows")
    answer = htk.run(cut, "straggler_causes")
    first = answer.to_pylist()[0]
    assert first["likely"] and first["cause"] == "worker"
    assert f"dp rank {plant['rank']}, stage 0" in first["evidence"]
    assert answer.coverage["replay"]["step_error_pct"] < 1


STRATEGIES: dict[str, dict[str, Any]] = {
    "FSDP2": {"strategy": "full_shard"},
    "FSDP1": {"strategy": "full_shard", "fsdp": 1},
    "gradients sharded, two micro-batches": {"strategy": "shard_grad_op", "accumulation": 2},
    "tensor parallel": {"strategy": "ddp", "tensor_parallel": 2, "gpus_per_node": 8},
    "FSDP2, tensor parallel": {
        "strategy": "full_shard", "tensor_parallel": 2, "gpus_per_node": 8,
    },
}  # fmt: skip


@pytest.mark.parametrize("name", thinned(STRATEGIES, 4))
def test_rows_of_sharded_and_tensor_parallel_jobs_say_what_the_straggler_costs(
    name: str, tmp_path: Path
) -> None:
    """The truth is the same job without the plant; the worker is named, and nobody in that."""
    size = {"layers": 4, "seq": 512, "micro_batch": 2, "gpus_per_node": 4, "steps": 3, "seed": 2}
    size |= STRATEGIES[name]
    rows, recorded = {}, {}
    for kind, plants in (("sick", ("straggler:rank=2,factor=1.4",)), ("well", ())):
        simulate_job(Config(model="gpt3-126m", plants=plants, **size), tmp_path / kind)  # type: ignore[arg-type]
        write_operations(htk.open(tmp_path / kind), tmp_path / f"{kind}-rows")
        rows[kind] = htk.open(tmp_path / f"{kind}-rows")
        answer = htk.run(rows[kind], "straggler_slowdown")
        recorded[kind] = answer.to_pylist()[0]["recorded_ms"]
        assert answer.coverage["replay"]["step_error_pct"] < 3
        assert answer.coverage["dp_size"] == 4 and answer.coverage["steps_left_out"] == 0
    worker = 1 if "tensor_parallel" in STRATEGIES[name] else 2  # ranks 2 and 3 share layers
    first = htk.run(rows["sick"], "straggler_causes").to_pylist()[0]
    assert first["likely"] and first["cause"] == "worker"
    assert f"dp rank {worker}, stage 0 (rank 2)" in first["evidence"]
    assert htk.run(rows["sick"], "slowdown_by_worker").to_pylist()[0]["rank"] == 2
    cured = htk.run(rows["sick"], "straggler_whatif").to_pylist()[1]
    assert cured["change"] == f"dp rank {worker}, stage 0 like its peers"
    assert cured["saved_ms"] == pytest.approx(recorded["sick"] - recorded["well"], rel=0.2)
    causes = htk.run(rows["well"], "straggler_causes").to_pylist()
    idle = [
        r["idle_pct"] for r in htk.run(htk.open(tmp_path / "well"), "time_breakdown").to_pylist()
    ]
    late = htk.run(rows["well"], "straggler_slowdown").coverage["replay"]["launch_delay_pct"]
    assert late < sum(idle) / len(idle) + 4, "launch delays are time in which GPUs have no work"
    assert {row["cause"] for row in causes if row["likely"]} <= (
        {"late_host"} if late > 8 else set()
    )


def test_pieces_of_a_pass_begin_with_what_they_wait_for(tmp_path: Path) -> None:
    """Four layers and what is beside them: gathered forward, and backward but for the root."""
    config = Config(
        model="gpt3-126m", layers=4, seq=512, gpus_per_node=2, steps=2, strategy="full_shard"
    )
    simulate_job(config, tmp_path)
    listed = cut_operations(htk.open(tmp_path)).to_pylist()
    for rank in (0, 1):
        own = [row for row in listed if row["rank"] == rank and row["step"] == 10]
        counts = Counter(row["type"] for row in own)
        assert counts["params_all_gather"] == 9 and counts["grads_reduce_scatter"] == 5
        forward = sorted(
            (row for row in own if row["type"] == "forward_compute"), key=lambda r: r["chunk"]
        )
        gathers = sorted(
            (row for row in own if row["type"] == "params_all_gather"), key=lambda r: r["start_ns"]
        )
        assert [row["chunk"] for row in forward] == list(range(len(forward)))
        for gather, copy in zip(gathers[:5], forward[::2], strict=True):
            assert gather["end_ns"] <= copy["start_ns"], "a copy out, once the gather is done"
        ends = [row["end_ns"] for row in forward]
        assert all(row["start_ns"] >= e for row, e in zip(forward[1:], ends, strict=False))


def test_jobs_of_other_kinds_are_refused(shared: Path, tmp_path: Path) -> None:
    with pytest.raises(MissingTable, match="this job has all_to_all; rows can be cut"):
        cut_operations(htk.open(shared / "traces/dlrm_8rank"))
    config = Config(
        model="gpt3-126m", layers=2, seq=256, nodes=2, gpus_per_node=2, steps=1,
        strategy="hybrid_shard",
    )  # fmt: skip
    simulate_job(config, tmp_path / "hybrid")
    with pytest.raises(MissingTable, match="among 2 of 4 workers"):
        cut_operations(htk.open(tmp_path / "hybrid"))
    simulate_job(replace(config, ranks_only=(0, 1), strategy="ddp"), tmp_path / "half")
    with pytest.raises(MissingTable, match="have 4 ranks and 2 recorded"):
        cut_operations(htk.open(tmp_path / "half"))


def test_without_a_backward_there_is_no_row(tmp_path: Path) -> None:
    events = [step(0, 0, 50), span("forward", 1, 9), launch(1, 2), kernel("gemm", 5, 9, 1)]
    path = write(tmp_path / "rank0.json", *events, **of_rank(0, 1))
    with pytest.raises(MissingTable, match="forward and backward kernels"):
        cut_operations(htk.open(path))
