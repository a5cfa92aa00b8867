"""Groups of ranks against those that were planted, and words against a reading by hand."""

import numpy as np
import pytest

from htk.answers.output.rank_groups import (
    NodePlaces,
    condense_ranks,
    describe_groups,
    find_nodes,
    group_ranks,
    name_ranks,
)
from tests.thinned import thinned


def eights(ranks: int) -> NodePlaces:
    return find_nodes(range(ranks), [rank % 8 for rank in range(ranks)])


def say(value: float) -> str:
    return f"{value:.3g} ms"


@pytest.mark.parametrize("seed", thinned(range(8), 3))
def test_planted_groups_are_found(seed: int) -> None:
    """Groups within 1 % whose middles are 30 % apart and more, in a shuffled order."""
    random = np.random.default_rng(seed)
    middles = 10 * 1.3 ** random.permutation(4)[:3]
    planted = random.integers(0, 3, 200)
    values = middles[planted] * (1 + random.uniform(-0.01, 0.01, 200))
    groups = group_ranks(np.arange(200), values)
    wanted = [np.flatnonzero(planted == k).tolist() for k in range(3)]
    assert sorted(group.ranks for group in groups) == sorted(wanted)
    assert [len(group.ranks) for group in groups] == sorted(map(len, wanted), reverse=True)


@pytest.mark.parametrize("seed", thinned(range(8), 3))
def test_ranks_of_one_kind_are_one_group(seed: int) -> None:
    values = np.random.default_rng(seed).normal(100, 1, 512)
    (group,) = group_ranks(np.arange(512), values)
    assert (group.least, group.most) == (values.min(), values.max())
    assert group.middle == pytest.approx(np.median(values))


def test_no_ranks_are_no_group_and_equal_ones_are_one() -> None:
    assert group_ranks(np.zeros(0, np.int64), np.zeros(0)) == []
    (group,) = group_ranks(np.arange(20), np.full(20, 5.0))
    assert group.ranks == list(range(20))


def test_words_name_a_rank_and_a_node() -> None:
    values = np.full(512, 3.0)
    values[::2] = 3.03
    values[16] = 27.0
    values[136:140] = 4.2
    said = describe_groups(group_ranks(np.arange(512), values), eights(512), say)
    assert said == "507 ranks within 1.0 % of 3 ms; rank 16 at 9.00×; 4 of node 17 at 1.40×"


def test_words_of_what_is_nothing_are_no_ratio() -> None:
    values = np.zeros(40)
    values[7] = 5.0
    said = describe_groups(group_ranks(np.arange(40), values), eights(40), say)
    assert said == "39 ranks at 0 ms; rank 7 at 5 ms"


def test_words_of_a_wide_group_are_its_ends() -> None:
    said = describe_groups(group_ranks(np.arange(21), np.linspace(1, 3, 21)), eights(21), say)
    assert said == "21 ranks from 1 ms to 3 ms"


def test_nodes_are_told_by_the_numbers_of_their_gpus() -> None:
    nodes = find_nodes([0, 1, 2, 3, 4, 5], [0, 1, 2, 3, 0, 1])
    assert nodes.are_told
    assert [nodes.node[rank] for rank in range(6)] == [0, 0, 0, 0, 1, 1]
    assert [nodes.place[rank] for rank in range(6)] == [0, 1, 2, 3, 0, 1]


@pytest.mark.parametrize("devices", [[0, 0, 0], [None, 1, 2]])
def test_nodes_that_are_not_told_are_rows_of_eight(devices: list[int | None]) -> None:
    nodes = find_nodes([0, 9, 17], devices)
    assert not nodes.are_told
    assert nodes.node == {0: 0, 9: 1, 17: 2} and nodes.place == {0: 0, 9: 1, 17: 1}


def test_many_ranks_are_called_by_their_number() -> None:
    nodes = eights(512)
    assert name_ranks([3, 9], nodes) == "ranks 3, 9"
    assert name_ranks(range(16, 24), nodes) == "8 of node 2"
    assert name_ranks(range(16, 32), nodes) == "ranks 16..31"
    assert name_ranks(range(0, 64, 4), nodes) == "16 ranks"


def test_rows_of_unlike_ranks_stand_above_the_median_of_the_others() -> None:
    cells = np.ones((100, 3))
    cells[40, 1] = 9
    cells[7, 2] = 5
    cells[:, 0] = np.nan
    names, few = condense_ranks(range(100), cells)
    assert names == ["rank 40", "rank 7", "median of 98"]
    assert few[:, 1:].tolist() == [[9, 1], [1, 5], [1, 1]] and np.isnan(few[:, 0]).all()
