"""Context parallelism sends keys and values round."""

from htk.whatif.edits import cp
from tests.htk.whatif.edits.attention_step import STEP
from tests.htk.whatif.small_step_model import length, small_model


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
