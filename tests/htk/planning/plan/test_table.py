"""A plan against what can be worked out from published sizes."""

import json

import pytest
from click.testing import CliRunner, Result

from htk.base.errors import UsageError
from htk.faces.cli.commands.plan import command
from htk.physics.hardware import gpu
from htk.physics.presets import decoder
from htk.planning.plan.job import PlannedJob
from htk.planning.plan.step import plan
from htk.planning.plan.table import list_strategies, plan_table


def rows(**given: float | str) -> dict[str, dict[str, float]]:
    sizes = {"nodes": 2, "gpus_per_node": 4, "micro_batch": 1, "seq": 512, "price": 2.0} | given
    job = PlannedJob(decoder("llama2-7b"), gpu("a100-80gb"), **sizes)  # type: ignore[arg-type]
    return {
        r["strategy"]: r for r in plan_table([plan(j) for j in list_strategies(job)]).to_pylist()
    }


def asked(*words: str) -> Result:
    return CliRunner().invoke(command, words)


def test_bytes_on_the_wire_follow_the_ledger() -> None:
    psi = 6_738_415_616  # LLaMA-2 7B
    found = rows()
    assert found["ddp"]["wire_bytes"] == 2 * (2 * psi) * 7 // 8
    assert found["shard_grad_op"]["wire_bytes"] == pytest.approx(4 * psi * 7 / 8, rel=1e-9)
    assert found["full_shard"]["wire_bytes"] == pytest.approx(6 * psi * 7 / 8, rel=0.03)


def test_seven_billion_parameters_do_not_fit_one_gpu_unsharded() -> None:
    found = rows()  # 16 bytes a parameter: 108 GB
    assert found["ddp"]["p_oom"] > 0.95
    assert found["ddp"]["least_gpus"] is None
    assert found["full_shard"]["p_oom"] < 0.05


def test_more_tokens_hide_more_communication() -> None:
    few, many = rows()["full_shard"], rows(micro_batch=8)["full_shard"]
    assert many["mfu_pct"] > few["mfu_pct"]
    assert many["step_time_ns"] < 8 * few["step_time_ns"]


def test_selective_checkpointing_lies_between_none_and_full() -> None:
    none, selective, full = (
        rows(micro_batch=8, checkpointing=how)["full_shard"]
        for how in ("none", "selective", "full")
    )
    assert none["compute_ns"] < selective["compute_ns"] < full["compute_ns"]
    assert full["peak_memory_bytes"] < selective["peak_memory_bytes"] < none["peak_memory_bytes"]


def test_checkpointing_is_full_unless_said_otherwise() -> None:
    words = ("--model", "llama3-8b", "--gpu", "h100", "--seq", "8192", "--format", "json")
    full, same, selective = (
        json.loads(asked(*words, *more).stdout)["rows"]
        for more in (
            ("--checkpointing",),
            ("--checkpointing", "full"),
            ("--checkpointing", "selective"),
        )
    )
    assert full == same != selective


def test_llama_3_1_8b_takes_what_torchtitan_measured() -> None:
    """82.4 GiB by PyTorch's allocator on eight H100, to which context and NCCL come."""
    job = PlannedJob(decoder("llama3-8b"), gpu("h200"), 1, 8, 2, 8192, "selective")
    answer = plan(job)
    assert answer.memory.total / 2**30 == pytest.approx(82.4 + 3, rel=0.04)
    assert answer.p_oom < 0.01


def test_tensor_parallelism_splits_work_and_is_not_hidden() -> None:
    one, two = rows(micro_batch=8)["full_shard"], rows(micro_batch=8, tensor_parallel=2)
    half = one["compute_ns"] / 2  # of narrower products each reads what all of them read
    assert half < two["full_shard"]["compute_ns"] < 1.05 * half
    assert two["full_shard"]["tokens_per_s"] < one["tokens_per_s"]
    assert two["ddp"]["parameter_bytes"] == pytest.approx(6_738_415_616, rel=1e-6)  # 2 bytes / 2


def test_bands_and_costs() -> None:
    row = rows(run_tokens=1e12)["full_shard"]
    ends = [row[f"step_time_ns_{end}"] for end in ("lo90", "lo50")]
    ends += [row["step_time_ns"]] + [row[f"step_time_ns_{end}"] for end in ("hi50", "hi90")]
    assert ends == sorted(set(ends))
    assert row["cost_per_million_tokens"] == pytest.approx(8 * 2.0 / (3.6e-3 * row["tokens_per_s"]))
    assert row["run_cost"] == pytest.approx(1e6 * row["cost_per_million_tokens"])
    assert row["run_days"] == pytest.approx(1e12 / row["tokens_per_s"] / 86400)


@pytest.mark.parametrize(
    "given", [{"nodes": 0}, {"tensor_parallel": 3}, {"price": -1}, {"run_tokens": float("nan")}]
)
def test_what_makes_no_sense_is_said(given: dict[str, float]) -> None:
    with pytest.raises(UsageError):
        rows(**given)


def test_the_command_answers_as_json() -> None:
    done = asked("--model", "llama2-7b", "--gpu", "a100-80gb", "--format", "json")
    assert done.exit_code == 0
    told = json.loads(done.stdout)
    assert {r["strategy"] for r in told["rows"]} == {
        "ddp",
        "zero1",
        "shard_grad_op",
        "full_shard",
        "hybrid_shard",
    }


def test_the_command_prints_for_people() -> None:
    words = ("--model", "llama2-7b", "--gpu", "a100-80gb", "--nodes", "2", "--gpus-per-node", "4")
    said = asked(*words).stdout
    assert said.startswith("llama2-7b, 6.74 billion parameters, on 2 × 4 NVIDIA A100-SXM4-80GB")
    assert "90 % interval" in said and "P(OOM) %" in said and "MFU: model FLOPs" in said
    assert "per M tokens" not in said  # no price
    assert "lo90" not in said and "p oom" not in said


def test_a_model_of_ones_own() -> None:
    sizes = ["--layers", "2", "--hidden", "64", "--heads", "4", "--ffn", "128", "--vocab", "100"]
    done = asked("--model", "mine", "--gpu", "h100", "--format", "csv", *sizes)
    assert done.exit_code == 0


def test_unknown_names_say_what_there_is() -> None:
    for words in (("--model", "nothing", "--gpu", "h100"), ("--model", "llama2-7b", "--gpu", "x")):
        error = asked(*words).exception
        assert isinstance(error, UsageError)
        assert "\n" not in str(error)


def test_other_views_and_other_tools_options() -> None:
    words = ("--model", "deepseek-v3", "--gpu", "gb200", "--nodes", "64", "--gpus-per-node", "4",
             "--pipeline-parallel", "4", "--virtual-stages", "4", "--expert-parallel", "64",
             "--global-batch", "4096", "--seq", "4096", "--precision", "mxfp8")  # fmt: skip
    parts, sent, stages = (
        json.loads(asked(*words, "--show", show, "--format", "json").stdout)["rows"]
        for show in ("parts", "ledger", "stages")
    )
    assert sum(r["step_pct"] for r in parts) == pytest.approx(100)
    assert {r["kind"] for r in sent} == {"data", "expert", "pipeline"}
    assert [r["stage"] for r in stages] == [0, 1, 2, 3]
    (row,) = json.loads(asked(*words, "--format", "json").stdout)["rows"]
    assert row["strategy"] == "zero1"
    wrong = asked("--model", "llama3-8b", "--gpu", "h100", "--tp", "2").exception
    assert isinstance(wrong, UsageError) and "--tensor-parallel" in str(wrong)


def test_a_batch_is_dealt_to_replicas() -> None:
    words = ("--model", "llama3-8b", "--gpu", "h100", "--global-batch")
    assert asked(*words, "64").exit_code == 0
    for more in (("63",), ("64", "--accumulation", "8")):
        assert isinstance(asked(*words, *more).exception, UsageError)


def test_gpt_3_s_sizes_are_gpt_3_unless_it_is_said_to_be_gated() -> None:
    sizes = ("--layers", "96", "--hidden", "12288", "--heads", "96", "--ffn", "49152")
    words = ("--model", "own", "--vocab", "51200", *sizes, "--gpu", "h100", "--nodes", "64")
    assert asked(*words).stdout.startswith("own, 175.2")
    assert asked(*words, "--gated").stdout.startswith("own, 233")


def test_a_network_by_name_slows_what_crosses_nodes() -> None:
    words = ("--model", "llama2-7b", "--gpu", "h100", "--nodes", "2", "--strategy", "full_shard")

    def exposed(*more: str) -> float:
        (row,) = json.loads(asked(*words, *more, "--format", "json").stdout)["rows"]
        return float(row["exposed_comm_ns"])

    assert exposed("--network", "roce-100") > exposed("--network", "infiniband-ndr")
    assert exposed("--network", "infiniband-ndr") == exposed()
    assert exposed("--inter-gbps-per-gpu", "50") == pytest.approx(exposed())
    error = asked(*words, "--network", "token-ring").exception
    assert isinstance(error, UsageError) and "infiniband-ndr" in str(error)


@pytest.mark.parametrize("size", ["seq", "micro_batch"])
def test_sizes_that_no_table_holds_are_refused(size: str) -> None:
    with pytest.raises(UsageError, match=r"must be at most 2,147,483,647, not 1e\+18"):
        rows(**{size: 10**18})
