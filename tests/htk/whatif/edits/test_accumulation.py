"""More micro-batches: T = m · t + once."""

import pytest

from htk.base.errors import UsageError
from htk.whatif.edits import accumulation
from tests.htk.whatif.named_jobs import hold_to_twin, started
from tests.htk.whatif.small_step_model import Act, comm, period, small_model

STEP = (
    Act("f", 1000, op="aten::embedding", dims="[[50, 8], [4, 16]]"),
    Act("b", 2000, backward=True),
    Act("opt", 500, family="optimizer"),
)
REDUCED = (
    *STEP[:2],
    Act("opt", 500, family="optimizer", waits=("r",)),
    comm("r", 300, "all_reduce", waits=("b",), in_bytes=1 << 20, group=8, backward=True),
)


def test_the_optimizer_works_once() -> None:
    model = small_model(STEP)
    assert period(model) == 3500
    found = accumulation.apply(model, "4")
    assert period(found) == 4 * 3000 + 500
    assert found.samples == 4 and found.activation_scale == 1
    assert found.added == {"micro-batches": 9000}


def test_gradients_of_replicas_are_reduced_once() -> None:
    assert period(accumulation.apply(small_model(REDUCED), "2x")) == 2 * 3000 + 300 + 500


def test_as_many_as_now_changes_nothing() -> None:
    assert period(accumulation.apply(small_model(STEP), "1")) == 3500


@pytest.mark.parametrize("value", ["0.5x", "none"])
def test_what_is_no_whole_number(value: str) -> None:
    with pytest.raises(UsageError):
        accumulation.apply(small_model(REDUCED), value)


def test_micro_batches_added_are_work_and_exposed_communication() -> None:
    """Gathered for each: 200 before its forward pass, in which nothing else runs."""
    size = {"group": 8, "per_node": 8, "in_bytes": 1 << 20, "out_bytes": 8 << 20}
    acts = (
        comm("g", 200, "all_gather", **size),
        Act("f", 1000, waits=("g",)),
        Act("b", 2000, backward=True),
        comm("s", 100, "reduce_scatter", waits=("b",), backward=True, **size),
        Act("opt", 500, family="optimizer", waits=("s",)),
    )
    found = accumulation.apply(small_model(acts), "3")
    assert found.added == {"micro-batches": 2 * 3300}
    assert (found.added_exposed, found.added_idle) == (2 * 300, 0)


def test_stages_whose_groups_have_no_description_are_filled_once() -> None:
    several = started("two stages, four micro-batches")
    hold_to_twin(started("two stages"), ("accumulation", "4"), several, step_rel=0.03)
