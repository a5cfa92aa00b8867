"""An inference server's iterations: what is said of them, and what bounds them."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from htk.answers.ask import ask_trace
from htk.base.errors import UsageError
from htk.recording.simulate.config import Config, check_config
from htk.recording.simulate.job import simulate_job
from htk.traces.trace.opening import OpenOptions, open_trace
from htk.whatif.api import WhatIf

SERVER = Config(
    model="llama2-7b", layers=2, gpus_per_node=1, strategy="ddp", decode_requests=16, context=2048,
    steps=3, noise=0.0, contention=False,
)  # fmt: skip


def kernels_ns(config: Config, folder: Path) -> dict[str, int]:
    """Time of an iteration's kernels, by their family."""
    simulate_job(check_config(config), folder)
    rows = open_trace(folder, OpenOptions(cache=False)).tables["kernels"].to_pylist()
    total: dict[str, int] = {}
    for row in rows:
        family = row["family"] or ""
        total[family] = total.get(family, 0) + (row["end_ns"] - row["start_ns"]) // config.steps
    return total


def test_ranges_tell_requests_and_what_they_look_back_on(tmp_path: Path) -> None:
    simulate_job(check_config(SERVER), tmp_path)
    rows = ask_trace(
        open_trace(tmp_path, OpenOptions(cache=False)), "serving_iterations"
    ).to_pylist()
    assert len(rows) == SERVER.steps
    assert {(r["phase"], r["decode_requests"], r["context_tokens"]) for r in rows} == {
        ("decode", 16, 16 * 2048)
    }


def test_few_tokens_cost_what_reading_the_weights_takes(tmp_path: Path) -> None:
    """Products of 16 tokens take no less than their weights at the peak rate of memory, and twice
    as many tokens cost hardly more; attention reads the keys and values of each."""
    one = kernels_ns(SERVER, tmp_path / "one")
    two = kernels_ns(replace(SERVER, decode_requests=32), tmp_path / "two")
    model = SERVER.decoder
    read = 2 * (model.matrices + model.vocab * model.hidden)
    assert read / SERVER.device.memory_gbps < one["gemm"] < 1.5 * read / SERVER.device.memory_gbps
    assert two["gemm"] / one["gemm"] < 1.1
    kept = 2 * 2 * 16 * 2048 * model.kv_width * model.layers
    assert kept / SERVER.device.memory_gbps < one["attention"]
    assert two["attention"] / one["attention"] == pytest.approx(2, rel=0.1)


def test_a_server_is_no_pipeline() -> None:
    """Ranks beyond a tensor-parallel group are further servers, never stages."""
    with pytest.raises(UsageError, match="without pipeline_parallel"):
        check_config(replace(SERVER, gpus_per_node=2, pipeline_parallel=2))


EXPERTS = replace(
    SERVER, experts=8, active_experts=2, gpus_per_node=4, expert_parallel=4, expert_skew=0.6, seed=3
)


def test_ranks_of_experts_answer_requests_of_their_own(tmp_path: Path) -> None:
    """Exposed communication, waits and the imbalance of experts of each iteration, and tokens a
    second, by the truth that is written with the recording."""
    config = EXPERTS
    simulate_job(check_config(config), tmp_path)
    truth = json.loads((tmp_path / "truth.json").read_text())
    trace = open_trace(tmp_path, OpenOptions(cache=False))
    rows = ask_trace(trace, "serving_iterations").to_pylist()
    assert len(rows) == 4 * config.steps
    experts: dict[int, list[int]] = {}
    for row in rows:
        true = truth["ranks"][row["rank"]]["steps"][row["iteration"]]
        assert row["exposed_comm_ns"] == true["exposed_comm_ns"]
        assert row["comm_wait_ns"] == pytest.approx(true["exposed_wait_ns"], abs=200)
        grouped = [each for name, each in true["kernels"].items() if "GroupProblem" in name]
        assert row["expert_ns"] == sum(each["total_ns"] for each in grouped)
        experts.setdefault(row["iteration"], []).append(row["expert_ns"])
    most, mean = (sum(map(of, experts.values())) for of in (max, lambda ns: sum(ns) / 4))
    (told,) = ask_trace(trace, "iteration_times").to_pylist()
    assert told["expert_imbalance_pct"] == pytest.approx(100 * (most / mean - 1))
    assert told["expert_imbalance_pct"] > 10
    waited = sum(s["exposed_wait_ns"] for rank in truth["ranks"] for s in rank["steps"])
    elapsed = sum(row["elapsed_ns"] for row in rows)
    assert told["comm_wait_pct"] == pytest.approx(100 * waited / elapsed, rel=0.01)
    given = config.steps * 4 * config.decode_requests
    (answer,) = WhatIf(trace).change("graphs").run().to_pylist()
    # Of one of the steps, each rank answers its requests.
    assert answer["tokens_per_s"] == pytest.approx(
        given / config.steps / answer["step_time_ns"] * 1e9, rel=1e-3
    )


def test_a_server_with_balanced_experts_is_predicted(tmp_path: Path) -> None:
    """Two ranks share each layer, two hold half of the experts each: what an iteration takes
    without skew is the truth, of another simulated recording."""
    skewed = replace(EXPERTS, tensor_parallel=2, expert_parallel=2)
    simulate_job(check_config(skewed), tmp_path / "skewed")
    simulate_job(check_config(replace(skewed, expert_skew=0.0)), tmp_path / "even")
    even = ask_trace(open_trace(tmp_path / "even", OpenOptions(cache=False)), "iteration_times")
    start = WhatIf(open_trace(tmp_path / "skewed", OpenOptions(cache=False)))
    (answer,) = start.change("balanced_experts").run().to_pylist()
    assert answer["step_time_ns"] < 0.97 * answer["measured_step_time_ns"]
    true = even["elapsed_ns_p50"][0].as_py()
    assert answer["step_time_ns"] == pytest.approx(true, rel=0.02)
    assert answer["tokens_per_s"] == pytest.approx(
        2 * skewed.decode_requests / answer["step_time_ns"] * 1e9
    ), "ranks of a layer answer the same requests"
    with pytest.raises(UsageError, match="share their model already"):
        start.serving(model="mixtral-8x7b", ep=2).run()
