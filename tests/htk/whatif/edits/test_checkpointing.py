"""Recomputation comes, or goes."""

import pytest

from htk.base.errors import UsageError
from htk.whatif.edits import checkpointing
from tests.htk.whatif.small_step_model import Act, period, small_model

# two layers of attention 100 and more 50; head 40; backward 80 + 300 + 300
STEP = (
    Act("a0", 100, family="attention"),
    Act("m0", 50),
    Act("a1", 100, family="attention"),
    Act("m1", 50),
    Act("head", 40),
    Act("h", 80, backward=True),
    Act("b1", 300, backward=True),
    Act("b0", 300, backward=True),
)


def test_layers_run_once_more() -> None:
    model = small_model(STEP)
    assert period(model) == 1020
    found = period(checkpointing.apply(model, "on"))
    assert found == pytest.approx(1020 + 2 * 150, abs=2)  # of 680, so rounded


def test_in_every_micro_batch() -> None:
    model = small_model(STEP + STEP)
    found = period(checkpointing.apply(model, "on"))
    assert found == pytest.approx(2 * (1020 + 2 * 150), abs=4)


def test_without_recomputation() -> None:
    again = Act("r0", 150, backward=True, recomputed=True)
    model = small_model([*STEP[:7], again, STEP[7]])
    assert period(model) == 1170
    assert period(checkpointing.apply(model, "off")) == 1020
    assert period(checkpointing.apply(model, "on")) == 1170


def test_nothing_to_leave_out() -> None:
    model = small_model(STEP)
    assert checkpointing.apply(model, "off").weight is model.weight


def test_selective_keeps_attention_and_every_second_product() -> None:
    act = Act("n", 30, family="norm")
    step = (*STEP[:2], act, *STEP[2:4], act, *STEP[4:])
    found = period(checkpointing.apply(small_model(step), "selective"))
    assert found == pytest.approx(1080 + 2 * (50 / 2 + 30), abs=3)


def test_from_full_to_selective() -> None:
    again = Act("r0", 150, backward=True, recomputed=True)
    found = checkpointing.apply(small_model([*STEP[:7], again, STEP[7]]), "selective")
    assert period(found) == pytest.approx(1020 + 2 * 50 / 2, abs=3)


def test_other_kinds_are_not_known() -> None:
    with pytest.raises(UsageError, match="on, off or selective"):
        checkpointing.apply(small_model(STEP), "some")
