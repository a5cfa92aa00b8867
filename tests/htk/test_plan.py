"""A plan against what can be worked out from published sizes."""

import pytest

from htk.errors import UsageError
from htk.models.decoder import decoder
from htk.models.hardware import gpu
from htk.plan import Job, plan


def rows(**given: int) -> dict[str, dict[str, float]]:
    sizes = {"nodes": 2, "gpus_per_node": 4, "micro_batch": 1, "seq": 512} | given
    job = Job(decoder("llama2-7b"), gpu("a100-80gb"), **sizes, price=2.0)  # type: ignore[arg-type]
    return {r["strategy"]: r for r in plan(job).to_pylist()}


def test_bytes_on_the_wire_follow_the_ledger() -> None:
    psi = 6_738_415_616  # LLaMA-2 7B
    found = rows()
    assert found["ddp"]["wire_bytes"] == 2 * (2 * psi) * 7 // 8
    assert found["shard_grad_op"]["wire_bytes"] == pytest.approx(4 * psi * 7 / 8, rel=1e-9)
    assert found["full_shard"]["wire_bytes"] == pytest.approx(6 * psi * 7 / 8, rel=0.03)


def test_seven_billion_parameters_do_not_fit_one_gpu_unsharded() -> None:
    found = rows()  # 16 bytes a parameter: 108 GB
    assert found["ddp"]["p_oom"] > 0.95
    assert found["full_shard"]["p_oom"] < 0.05


def test_more_tokens_hide_more_communication() -> None:
    few, many = rows()["full_shard"], rows(micro_batch=8)["full_shard"]
    assert many["mfu_pct"] > few["mfu_pct"]
    assert many["step_time_ns"] < 8 * few["step_time_ns"]


def test_bands_and_cost() -> None:
    row = rows()["full_shard"]
    assert row["step_time_ns_lo90"] < row["step_time_ns"] < row["step_time_ns_hi90"]
    assert row["cost_per_million_tokens"] == pytest.approx(8 * 2.0 / (3.6e-3 * row["tokens_per_s"]))


def test_nothing_is_no_cluster() -> None:
    with pytest.raises(UsageError):
        rows(nodes=0)
