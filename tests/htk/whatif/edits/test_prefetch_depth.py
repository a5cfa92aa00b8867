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


def backward_step(gathers: list[tuple[str, ...]], reduces: list[tuple[str, ...]]) -> list[Act]:
    """Units of 1000 whose gathers and reductions of 600 go through one communicator."""
    return [
        *(Act(f"b{k}", 1000, waits=(f"g{k}",), backward=True) for k in range(3)),
        *(
            comm(f"g{k}", 600, "all_gather", waits=waits, backward=True)
            for k, waits in enumerate(gathers)
        ),
        *(
            comm(f"r{k}", 600, "reduce_scatter", lane="reduce", waits=waits, backward=True)
            for k, waits in enumerate(reduces)
        ),
    ]


def test_gathers_go_before_reductions_of_the_unit_before_or_after_them() -> None:
    """In turn 600 + 3 · 1000 + 5 · 600. Ahead the second unit ends at 2600; the third is gathered
    behind the first reduction, until 2800, and is reduced from 3800 on."""
    in_turn = backward_step(
        [(), ("b0", "r0"), ("b1", "r1")], [("b0", "g0"), ("b1", "g1"), ("b2", "g2")]
    )
    ahead = backward_step([(), (), ("b0", "r0")], [("b0", "g1"), ("b1", "g2"), ("b2",)])
    assert [period(small_model(step)) for step in (in_turn, ahead)] == [6600, 4400]
    assert period(prefetch_depth.apply(small_model(in_turn), "1")) == 4400
    assert period(prefetch_depth.apply(small_model(ahead), "0")) == 6600


def test_no_gathers_no_depth() -> None:
    with pytest.raises(UsageError, match="all-gathers"):
        prefetch_depth.apply(small_model([Act("a", 1)]), "1")


def test_a_rank_that_only_communicates_has_no_gather_to_move() -> None:
    """Beside it the others' steps change as ever."""
    idle = comm("g0", 600, "all_gather", rank=1)
    with pytest.raises(UsageError, match="no all-gathers that compute waits for"):
        prefetch_depth.apply(small_model([idle]), "2")
    assert period(prefetch_depth.apply(small_model([*STEP, idle]), "0")) == 3 * 1600
