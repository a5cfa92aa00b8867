"""Context parallelism sends keys and values round."""

from htk.whatif.edits import cp
from tests.htk.whatif.edits.test_pp import STEP
from tests.htk.whatif.small_step_model import length, small_model


def test_context_parallelism_sends_keys_and_values_round() -> None:
    found = cp.apply(small_model(STEP), "2")
    assert length(found, "a0") == 502_500
    assert found.samples == 0.5
    assert set(found.lengths()[len(STEP) :].tolist()) == {0}  # 25 us behind 502
    assert cp.apply(small_model(STEP), "1").samples == 1
