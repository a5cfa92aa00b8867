"""Experts of two ranks, one with three times the tokens."""

import pytest

from htk.base.errors import UsageError
from htk.whatif.edits import balanced_experts
from tests.htk.whatif.small_step_model import Act, comm, period, small_model


def rank(number: int, work: int) -> list[Act]:
    return [
        Act("router", 50, rank=number),
        Act("experts", work, rank=number, waits=("dispatch",)),
        comm("dispatch", 10, "all_to_all", rank=number, waits=("router",), joined="d"),
        comm("combine", 10, "all_to_all", rank=number, waits=("experts",), joined="c"),
    ]


def test_the_mean_takes_the_place_of_the_slowest() -> None:
    model = small_model([*rank(0, 100), *rank(1, 300)])
    assert period(model) == 50 + 10 + 300 + 10
    assert period(balanced_experts.apply(model, "on")) == 50 + 10 + 200 + 10


def all_to_all(name: str, number: int, after: str) -> Act:
    return comm(name, 10, "all_to_all", rank=number, waits=(after,), joined=name)


def test_each_layer_has_a_mean_of_its_own() -> None:
    """Three ranks, two layers: 100, 300, 500 and 50, 20, 20; what lies outside stays."""
    acts = []
    for number, works in enumerate(((100, 50), (300, 20), (500, 20))):
        acts.append(Act("router", 50, rank=number))
        before = "router"
        for k, work in enumerate(works):
            acts += [
                Act(f"experts{k}", work, rank=number, waits=(f"dispatch{k}",)),
                all_to_all(f"dispatch{k}", number, before),
                all_to_all(f"combine{k}", number, f"experts{k}"),
            ]
            before = f"combine{k}"
    model = small_model(acts)
    assert period(model) == 50 + (10 + 500 + 10) + (10 + 50 + 10)
    assert period(balanced_experts.apply(model, "on")) == 50 + (10 + 300 + 10) + (10 + 30 + 10)


def test_ranks_with_other_numbers_of_layers_are_refused() -> None:
    other = [Act("router", 50, rank=1), Act("more", 10, rank=1)]
    with pytest.raises(UsageError, match="on every rank"):
        balanced_experts.apply(small_model([*rank(0, 100), *other]), "on")


def test_one_rank_shows_no_balance() -> None:
    with pytest.raises(UsageError, match="several ranks"):
        balanced_experts.apply(small_model(rank(0, 100)), "on")


def test_no_experts_at_all() -> None:
    with pytest.raises(UsageError, match="all-to-alls"):
        balanced_experts.apply(small_model([Act("a", 1), Act("a", 1, rank=1)]), "on")
