"""Sequence parallelism splits what tensor parallelism leaves whole."""

import pytest

from htk.base.errors import UsageError
from htk.whatif.edits import sp, tp
from tests.htk.whatif.edits.attention_step import STEP, K, X
from tests.htk.whatif.small_step_model import length, small_model


def test_sequence_parallelism_splits_the_rest() -> None:
    both = sp.apply(tp.apply(small_model(STEP), "2"), "on")
    assert length(both, "n0") == 2500 + (200 * K - 2500) // 2
    again = both.lengths()[len(STEP) + 8 :]
    assert set(again.tolist()) == {round(20_000 + X * 0.01)}  # 2 · 1/2 · x
    with pytest.raises(UsageError, match="tensor parallelism"):
        sp.apply(small_model(STEP), "on")
