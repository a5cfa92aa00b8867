"""More activities in a small step."""

import numpy as np
import pytest

from htk.errors import UsageError
from htk.graph.replay import replay
from htk.whatif.synthetic_ops import COMPUTE, Work, inserted
from tests.htk.whatif.small_step_model import Act, comm, period, small_model

# compute: a 100, b 50, c 30 in a row; a gather of 20 beside, which c waits for.
STEP = (
    Act("a", 100),
    Act("b", 50),
    Act("c", 30, waits=("g",)),
    comm("g", 20, "all_gather"),
)


def test_the_step_is_as_drawn() -> None:
    assert period(small_model(STEP)) == 180


def test_what_fits_beside_the_compute_costs_nothing() -> None:
    model = small_model(STEP)
    found = inserted(model, [Work(like=3, length=140.0, after=(3,), before=(2,))])
    assert period(found) == 190  # 20 + 140 on that side, then c

    alone = inserted(model, [Work(like=3, length=130.0, after=(3,), before=(2,))])
    assert period(alone) == 180


def test_what_stands_between_two_kernels_adds_its_length() -> None:
    model = small_model(STEP)
    found = inserted(model, [Work(0, 40.0, (0,), (1,), kind=COMPUTE)])
    assert period(found) == 220
    assert replay(found.graph).period_ns == 180  # its own weights are those of the untouched step


def test_ranks_wait_for_each_other_in_a_new_collective() -> None:
    slow = [Act("a", 100, rank=1), Act("b", 50, rank=1)]
    fast = [Act("a", 60), Act("b", 50)]
    model = small_model([*fast, *slow])
    works = [Work(k, 10.0, (k,), (k + 1,), joined=(0,)) for k in (0, 2)]
    assert period(model) == 150
    assert period(inserted(model, works)) == 160  # 100, 10, 50 on both


def test_new_ones_may_follow_each_other() -> None:
    model = small_model(STEP)
    n = len(STEP)
    works = [Work(3, 70.0, (0,), (n + 1,)), Work(3, 70.0, (0,), (2,))]
    assert period(inserted(model, works)) == 100 + 70 + 70 + 30


def test_a_circle_is_refused() -> None:
    with pytest.raises(UsageError, match="circle"):
        inserted(small_model(STEP), [Work(0, 1.0, after=(1,), before=(0,))])


def test_edges_lead_upwards() -> None:
    graph = inserted(small_model(STEP), [Work(0, 40.0, (0,), (1,))]).graph
    assert (graph.src < graph.dst).all()
    assert (np.diff(graph.dst) >= 0).all()
