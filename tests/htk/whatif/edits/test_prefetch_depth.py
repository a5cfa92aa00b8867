"""Units of 1000, each gathered in 600; the third gather waits for the first unit."""

import pytest

from htk.base.errors import UsageError
from htk.whatif.edits import prefetch_depth
from tests.htk.whatif.small_step_model import Act, comm, period, small_model

STEP = [
    *(Act(f"f{k}", 1000, waits=(f"g{k}",)) for k in range(3)),
    comm("g0", 600, "all_gather"),
    comm("g1", 600, "all_gather"),
    comm("g2", 600, "all_gather", waits=("f0",)),
]


@pytest.mark.parametrize(
    ("depth", "whole"),
    [
        (0, 3 * 1600),  # each gather once the unit before is done
        (1, 3600),
        (2, 3600),
    ],
)
def test_how_far_ahead(depth: int, whole: int) -> None:
    assert period(small_model(STEP)) == 3600
    assert period(prefetch_depth.apply(small_model(STEP), str(depth))) == whole


def test_slow_gathers_gain_from_depth() -> None:
    slow = [*STEP[:3], *(comm(f"g{k}", 1500, "all_gather") for k in range(3))]
    steps = [period(prefetch_depth.apply(small_model(slow), str(d))) for d in range(4)]
    assert steps == sorted(steps, reverse=True)
    assert steps[0] == 3 * 2500
    assert steps[-1] == 3 * 1500 + 1000


def test_no_gathers_no_depth() -> None:
    with pytest.raises(UsageError, match="all-gathers"):
        prefetch_depth.apply(small_model([Act("a", 1)]), "1")
