"""Context parallelism sends keys and values round."""

from dataclasses import replace

from htk.whatif.edits import cp
from tests.htk.whatif.edits.attention_step import STEP, K
from tests.htk.whatif.small_step_model import Act, length, small_model


def test_context_parallelism_sends_keys_and_values_round() -> None:
    """Half of attention's 1 ms, and one pass over four tensors where `m` goes over three."""
    found = cp.apply(small_model(STEP), "2")
    m = 2500 + 197_500 / 2
    assert length(found, "m") == m
    assert length(found, "a0") == 502_500 + round(4 / 3 * m)
    assert found.samples == 0.5
    assert set(found.lengths()[len(STEP) :].tolist()) == {0}  # 25 us behind 502
    assert found.low_confidence and not small_model(STEP).low_confidence
    assert cp.apply(small_model(STEP), "1").samples == 1


def test_a_merge_takes_what_residuals_take_and_no_other_kernel() -> None:
    """A norm is as large and slower, an elementwise kernel on half of the width as slow."""
    half = Act("half", 900 * K, family="elementwise", op="aten::mul", dims="[[1024, 256], []]")
    slow = [replace(act, length=900 * K) if act.name == "n0" else act for act in STEP]
    found = cp.apply(small_model([*slow, half]), "4")
    m = 2500 + 197_500 / 4
    assert length(found, "m") == m
    assert length(found, "a0") == 252_500 + round(3 * 4 / 3 * m)
    bare = [act for act in slow if act.name != "m"]
    assert length(cp.apply(small_model(bare), "4"), "a0") == 252_500, "no residual, no merge"
