"""One rank, or all, as fast as the median rank: each call against the same call of the others."""

import pytest

from htk.base.errors import UsageError
from htk.whatif.edits import fix_rank
from htk.whatif.step_model import StepModel
from tests.htk.whatif.small_step_model import Act, comm, small_model

RANKS = (2, 5, 9)
# Two calls of one name and one of another, by rank; then a collective, which stays.
LENGTHS = {"first": (100, 300, 140), "second": (80, 60, 50), "other": (10, 10, 40)}


def step() -> StepModel:
    acts = []
    for k, rank in enumerate(RANKS):
        acts += [
            Act("a", LENGTHS["first"][k], rank=rank),
            Act("a", LENGTHS["second"][k], rank=rank),
            Act("b", LENGTHS["other"][k], rank=rank),
            comm("c", 20, "all_reduce", rank=rank, waits=("b",), joined="c"),
        ]
    return small_model(acts)


def lengths(model: StepModel, rank: int) -> list[int]:
    acts = model.graph.activities
    return [int(model.lengths()[k]) for k in range(len(acts.rank)) if acts.rank[k] == rank]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("5", {2: [100, 80, 10, 20], 5: [140, 60, 10, 20], 9: [140, 50, 40, 20]}),
        ("2", {2: [100, 60, 10, 20], 5: [300, 60, 10, 20], 9: [140, 50, 40, 20]}),
        ("all", {2: [100, 60, 10, 20], 5: [140, 60, 10, 20], 9: [140, 50, 10, 20]}),
    ],
)
def test_no_call_takes_longer_than_the_median(value: str, expected: dict[int, list[int]]) -> None:
    """A call that is faster stays as it is."""
    found = fix_rank.apply(step(), value)
    assert {rank: lengths(found, rank) for rank in RANKS} == expected


def test_who_is_meant_must_be_there() -> None:
    for value in ("3", "rank 5", ""):
        with pytest.raises(UsageError, match=r"one of \[2, 5, 9\] or all"):
            fix_rank.apply(step(), value)
    with pytest.raises(UsageError, match="needs several ranks; the trace holds 1"):
        fix_rank.apply(small_model([Act("a", 10)]), "all")
