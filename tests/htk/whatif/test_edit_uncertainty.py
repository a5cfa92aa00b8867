"""What each edit leaves uncertain of what it displaces, in ns, by hand."""

import math
from dataclasses import replace

import numpy as np
import pytest

from htk.whatif.edit_uncertainty import (
    DISTANCE,
    accumulate_uncertainty,
    sum_sigmas,
    touches_nothing_else,
)
from htk.whatif.step_model import StepModel
from tests.htk.whatif.small_step_model import Act, comm, small_model


def step() -> StepModel:
    return small_model(
        [
            Act("a", 1000),
            Act("b", 400),
            comm("c", 600, "all_reduce", waits=("b",)),
        ]
    )


def shrunk(model: StepModel, name: str, length: int) -> StepModel:
    acts = model.graph.activities
    chosen = np.array([acts.names[n] == name for n in acts.name.tolist()])
    return model.with_lengths(chosen, length)


def sigma(model: StepModel, name: str, key: tuple[str, str]) -> float:
    """Of the edge that holds an activity's length."""
    acts = model.graph.activities
    position = [acts.names[n] for n in acts.name.tolist()].index(name)
    return float(np.broadcast_to(model.edge_sigma[key], model.weight.shape)[
        model.run_edge[position]
    ])  # fmt: skip


def edited(before: StepModel, activity: str, length: int, edit: str, **spread: float) -> StepModel:
    after = shrunk(before.fresh(), activity, length)
    for cause, one in spread.items():
        after = after.with_uncertainty(cause, one)
    return accumulate_uncertainty(before, after, edit, 0.0)


def test_it_belongs_to_what_is_displaced() -> None:
    found = edited(step(), "a", 700, "replace", compute=0.1, communication=0.5)
    assert sigma(found, "a", ("compute", "replace")) == pytest.approx(0.1 * 300)
    assert sigma(found, "b", ("compute", "replace")) == 0
    assert sigma(found, "c", ("communication", "link")) == 0, "was not moved"


def test_a_later_edit_of_the_same_makes_it_larger_in_proportion() -> None:
    once = edited(step(), "a", 700, "replace", compute=0.1)
    twice = edited(once, "a", 1400, "hardware", compute=0.2)
    assert sigma(twice, "a", ("compute", "replace")) == pytest.approx(2 * 30)
    assert sigma(twice, "a", ("compute", "rates")) == pytest.approx(0.2 * 700)
    gone = edited(once, "a", 0, "replace", compute=0.1)
    assert sigma(gone, "a", ("compute", "replace")) == pytest.approx(0.1 * 700), "nothing is left"


def test_edits_of_one_model_are_wrong_together() -> None:
    once = edited(step(), "a", 700, "batch", compute=0.1)
    again = edited(once, "b", 500, "seq", compute=0.3)
    assert {key for key in again.edge_sigma if key[0] == "compute"} == {("compute", "shapes")}
    assert sigma(again, "a", ("compute", "shapes")) == pytest.approx(30)
    assert sigma(again, "b", ("compute", "shapes")) == pytest.approx(30)
    assert touches_nothing_else(again, "batch") and touches_nothing_else(again, "seq")
    over = edited(again, "a", 900, "tp", compute=0.1)
    assert sigma(over, "a", ("compute", "shapes")) == pytest.approx(30 * 900 / 700 + 0.1 * 200)
    assert (
        not touches_nothing_else(over, "batch")
        and not touches_nothing_else(over, "tp")
        and touches_nothing_else(over, "seq")
    )


def test_low_confidence_is_half_as_wide_again_and_stays() -> None:
    after = replace(shrunk(step().fresh(), "a", 700), low_confidence=True)
    after = after.with_uncertainty("compute", 0.1).with_uncertainty("structure", 0.04)
    found = accumulate_uncertainty(step(), after, "replace", 0.0)
    assert sigma(found, "a", ("compute", "replace")) == pytest.approx(1.5 * 30)
    assert found.step_sigma == {"structure": pytest.approx(0.06)}
    later = edited(found, "b", 300, "replace", structure=0.08)
    assert later.low_confidence
    assert later.step_sigma == {"structure": pytest.approx(math.hypot(0.06, 0.08))}


def test_distance_from_what_was_recorded() -> None:
    after = replace(shrunk(step().fresh(), "a", 700), devices=4.0)
    assert accumulate_uncertainty(step(), after, "world", 0.0).step_sigma == {
        "distance": pytest.approx(DISTANCE * math.log(4))
    }
    assert accumulate_uncertainty(step(), after, "world", 2.0).step_sigma == {
        "distance": pytest.approx(DISTANCE * 2)
    }
    once = accumulate_uncertainty(step(), after, "world", 0.0)
    again = accumulate_uncertainty(
        once, replace(shrunk(once.fresh(), "a", 600), devices=1.0), "world", 0.0
    )
    assert again.step_sigma["distance"] == pytest.approx(DISTANCE * math.log(4) * math.sqrt(2))


def test_an_edit_that_changes_nothing_changes_nothing() -> None:
    once = edited(step(), "a", 700, "replace", compute=0.1)
    same = accumulate_uncertainty(once, once.fresh().with_uncertainty("compute", 9.0), "host", 5.0)
    assert same.edge_sigma is once.edge_sigma and same.step_sigma is once.step_sigma
    assert set(same.touched) == {"replace"} and not same.low_confidence


def test_what_nothing_explains_may_change_as_compute_does() -> None:
    before = replace(step(), unexplained=np.full(len(step().weight), 50))
    after = shrunk(before.fresh(), "a", 300)  # 1400 of compute becomes 700
    found = accumulate_uncertainty(before, after, "replace", 0.0)
    assert sigma(found, "c", ("structure", "unexplained")) == pytest.approx(50 * 0.5)
    again = accumulate_uncertainty(found, shrunk(found.fresh(), "b", 50), "replace", 0.0)
    unexplained = again.edge_sigma["structure", "unexplained"]
    assert unexplained[found.run_edge[2]] == pytest.approx(25 + 50 * 0.5)


def test_standard_deviations_add_as_variances() -> None:
    assert sum_sigmas({"a": 3.0, "b": 4.0}) == 5.0
