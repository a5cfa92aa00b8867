"""The study's figures that a plan gives are those of its commands."""

from pathlib import Path

import pytest

from htk.physics.hardware import gpu
from htk.physics.network import Fabric
from htk.physics.presets import decoder
from htk.planning.plan.job import PlannedJob
from htk.planning.plan.step import Plan, plan

ROOT = Path(__file__).parents[4]
PAGE = " ".join((ROOT / "docs/fsdp_study.md").read_text(encoding="utf-8").split())
GIB = 2**30


def planned(strategy: str, micro_batch: int, nodes: int = 2) -> Plan:
    return plan(
        PlannedJob(
            decoder("llama2-7b"), gpu("a100-80gb"), nodes, 8 // nodes, micro_batch, 128,
            strategy=strategy, kernels="eager", link_gbps=320,
            fabric=Fabric(8) if nodes > 1 else None,
        )
    )  # fmt: skip


def _between(p: Plan) -> str:
    return " to ".join(f"{end / 1e9:.2f}" for end in p.interval(90))


def test_steps_and_their_communication() -> None:
    for micro_batch, share in ((8, 84), (64, 15)):
        p = planned("full_shard", micro_batch)
        assert f"| {p.step_ns / 1e9:.2f} s ({_between(p)}) |" in PAGE
        assert 100 * p.parts.exposed_data / p.step_ns == pytest.approx(share, abs=0.5)
    p = planned("full_shard", 8)
    sent = sum(t.duration_ns for t in p.transfers)
    parts = p.parts
    computed = parts.products + parts.attention + parts.memory + parts.optimizer
    assert f"| about 80 % | {100 * sent / (sent + computed):.0f} % |" in PAGE


def test_strategies_and_nodes() -> None:
    ddp, grads, hybrid = (planned(s, 8) for s in ("ddp", "shard_grad_op", "hybrid_shard"))
    assert f"{ddp.step_ns / 1e9:.2f} s, out of memory" in PAGE and ddp.p_oom > 0.99
    assert f"| SHARD_GRAD_OP | | {grads.step_ns / 1e9:.2f} s" in PAGE
    assert f"| HYBRID_SHARD | recommended | {hybrid.step_ns / 1e6:.0f} ms" in PAGE
    one = planned("full_shard", 8, nodes=1)
    low, high = one.interval(90)
    assert f"{one.step_ns / 1e6:.0f} ms ({low / 1e6:.0f} to {high / 1e6:.0f})" in PAGE
    large = [
        planned(s, 64).step_ns / 1e9 for s in ("ddp", "shard_grad_op", "full_shard", "hybrid_shard")
    ]
    assert f"{min(large):.2f} to {max(large):.2f} s" in PAGE


def test_bytes_norms_and_the_whole_job() -> None:
    p = planned("full_shard", 8)
    shards = {
        phase: sum(
            t.input_bytes / (8 if t.collective == "reduce_scatter" else 1)
            for t in p.transfers
            if t.phase == phase
        )
        for phase in ("forward", "backward")
    }
    assert f"it is {shards['forward'] / GIB:.2f} GiB and {shards['backward'] / GIB:.2f}" in PAGE
    assert f"{sum(t.wire_bytes for t in p.transfers) / GIB:.1f} GiB" in PAGE
    norms = planned("full_shard", 32)
    share = norms.parts.memory / norms.step_ns
    assert f"are {100 * share:.1f} % of a step" in PAGE and 1 / (1 - share) < 1.05
    fixed = 41.4 - 16 * round(p.step_ns / 1e9, 2)
    job = fixed + 2 * round(planned("full_shard", 64).step_ns / 1e9, 2)
    assert f"it is {41.4 / job:.2f}x" in PAGE
