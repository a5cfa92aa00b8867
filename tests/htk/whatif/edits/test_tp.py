"""Tensor parallelism splits work and reduces activations."""

from dataclasses import replace

import pytest

from htk.whatif.edits import tp
from tests.htk.whatif.edits.attention_step import STEP, K, X
from tests.htk.whatif.small_step_model import comm, length, small_model


def test_tensor_parallelism_splits_and_reduces() -> None:
    found = tp.apply(small_model(STEP), "2")
    assert length(found, "a0") == 502_500
    assert length(found, "n0") == 200 * K
    assert length(found, "m") == 200 * K
    inserted = found.lengths()[len(STEP) :]
    assert len(inserted) == 8  # two of each layer, forward and backward
    assert set(inserted.tolist()) == {round(20_000 + X * 0.01)}
    assert found.samples == found.activation_scale == 0.5
    assert found.low_confidence
    # parameters halve, 3/4 of their bytes move in place of 7/8
    assert length(found, "r") == round(20_000 + 420_000 / 2 * (3 / 4) / (7 / 8))


@pytest.mark.parametrize("far", [2, 2000, 1 << 20])
def test_tensor_groups_reduce_each_for_themselves(far: int) -> None:
    """Ranks 0 and `far` are of two groups, however many groups there are: none waits for both."""
    model = small_model([replace(act, rank=rank) for rank in (0, far) for act in STEP])
    found = tp.apply(model, "2")
    of_a_group = 8 * (2 + 1)  # of each collective its start, its end and when all have come
    assert len(found.graph.time) - len(model.graph.time) == 2 * of_a_group


def test_tensor_parallelism_that_is_there_is_spread_further() -> None:
    """Of two ranks now: each sends 2 · 1/2 of a message, of four 2 · 3/4 of the same message."""
    reduces = [
        comm(f"t{k}", 120 * K, "all_reduce", lane="tp", waits=(after,), in_bytes=8_000_000, group=2,
             per_node=2, backward=back)
        for k, (after, back) in enumerate((("a0", False), ("a1", False), ("c1", True)))
    ]  # fmt: skip
    model = small_model([*STEP, *reduces])
    found = tp.apply(model, "4")
    assert len(found.graph.start) == len(model.graph.start), "nothing is inserted"
    assert length(found, "t0") == length(found, "t2") == 20 * K + 100 * K * (3 / 4) / (1 / 2)
    assert length(found, "a0") == 502_500 and length(found, "n0") == 200 * K
    assert found.samples == 0.5 and found.tensor == 4
    alone = tp.apply(model, "1")
    assert length(alone, "t0") == length(alone, "t1") == 0
    assert length(alone, "a0") == 2_002_500 and alone.samples == 2
    assert any("2 already" in words for words in tp.apply(model, "2").assumptions)


def test_rings_of_keys_and_values_shrink_with_the_heads_of_a_rank() -> None:
    ring = comm("ring", 120 * K, "send_recv", lane="cp", waits=("a0",), in_bytes=8_000_000, group=2,
                per_node=2, group_kind="mesh_cp")  # fmt: skip
    with_heads = "aten::_flash", "aten::_scaled_dot_product_flash"  # whose shapes name heads first
    step = [replace(act, op=act.op and act.op.replace(*with_heads)) for act in STEP]
    model = small_model([*step, ring])
    assert length(tp.apply(model, "2"), "ring") == 20 * K + 100 * K / 2
    assert length(tp.apply(model, "16"), "ring") == 20 * K + 100 * K / 8, "a head is not split"
