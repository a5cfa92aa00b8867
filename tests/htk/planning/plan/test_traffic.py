"""What ranks of a described job send, against the sums of the papers."""

from typing import Any

import pytest

from htk.physics.hardware import gpu
from htk.physics.presets import decoder
from htk.planning.plan.job import PlannedJob
from htk.planning.plan.traffic import PlannedTransfer, list_transfers

SEVEN = decoder("llama2-7b")  # 32 layers, 4096 wide


def sent(nodes: int = 1, **options: Any) -> dict[tuple[str, str, str], PlannedTransfer]:
    job = PlannedJob(SEVEN, gpu("h100"), nodes, 8, 1, 2048, **options)
    return {(t.kind, t.phase, t.collective): t for t in list_transfers(job)}


def test_replicas_reduce_their_gradients_once() -> None:
    (row,) = sent(strategy="ddp", accumulation=4).values()
    assert (row.kind, row.collective, row.ranks) == ("data", "all_reduce", 8)
    assert row.input_bytes == pytest.approx(2 * SEVEN.parameters)
    assert row.wire_bytes == pytest.approx(2 * 7 / 8 * 2 * SEVEN.parameters)


def test_shards_gather_parameters_twice_and_scatter_gradients_once() -> None:
    rows = sent(strategy="full_shard")
    total = sum(t.wire_bytes for t in rows.values())
    # 3 · 7/8 · Ψ · 2 bytes, less the root's parameters, which are kept after the forward pass.
    most = 3 * 7 / 8 * 2 * SEVEN.parameters
    kept = 7 / 8 * 2 * SEVEN.root_parameters
    assert total == pytest.approx(most - kept, rel=0.01)


def test_tensor_parallelism_reduces_twice_a_layer_and_pass() -> None:
    rows = sent(tensor_parallel=8, strategy="ddp", sequence_parallel=False)
    forward = rows["tensor", "forward", "all_reduce"]
    activations = 2 * 2048 * 4096  # bytes of a micro-batch between layers
    assert forward.input_bytes == pytest.approx(2 * 32 * activations)
    assert forward.wire_bytes == pytest.approx(2 * 7 / 8 * 2 * 32 * activations)
    assert not [key for key in rows if key[0] == "data"], "no other replica"


def test_more_micro_batches_gather_shards_again() -> None:
    once, four = sent(strategy="full_shard"), sent(strategy="full_shard", accumulation=4)
    key = ("data", "forward", "all_gather")
    assert four[key].wire_bytes == pytest.approx(4 * once[key].wire_bytes)
    assert four[key].duration_ns > 3 * once[key].duration_ns
