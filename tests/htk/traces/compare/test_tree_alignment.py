"""Trees matched node by node, against a plain search on random trees."""

import random
from functools import lru_cache

import numpy as np
import pytest

from htk.base.columns.types import NONE
from htk.traces.compare import tree_alignment
from htk.traces.compare.tree_alignment import Forest, Matches, find_difference_sites, match_forests
from tests.thinned import thinned

Tree = tuple[int, tuple["Tree", ...]]  # name, callees


def _forest(roots: tuple[Tree, ...]) -> Forest:
    name: list[int] = []
    parent: list[int] = []
    depth: list[int] = []

    def add(tree: Tree, above: int, deep: int) -> None:
        row = len(name)
        name.append(tree[0])
        parent.append(above)
        depth.append(deep)
        for callee in tree[1]:
            add(callee, row, deep + 1)

    for root in roots:
        add(root, NONE, 0)
    return Forest(*(np.array(column, np.int64) for column in (name, parent, depth)))


def _random(rng: random.Random, depth: int, names: int) -> Tree:
    callees = rng.randint(0, 4) if depth else 0
    return rng.randrange(names), tuple(_random(rng, depth - 1, names) for _ in range(callees))


def _changed(rng: random.Random, trees: tuple[Tree, ...], names: int) -> tuple[Tree, ...]:
    out = []
    for name, callees in trees:
        fate = rng.random()
        if fate < 0.1:
            continue  # lost
        if fate < 0.2:
            out.append(_random(rng, 1, names))  # new, before it
        out.append((rng.randrange(names) if fate > 0.93 else name, _changed(rng, callees, names)))
    return tuple(out)


def _best(a: tuple[Tree, ...], b: tuple[Tree, ...]) -> tuple[int, int]:
    """Most names that can be matched in order, and of those most alike in full: by trying all."""

    @lru_cache(None)
    def best(i: int, j: int) -> tuple[int, int]:
        if i == len(a) or j == len(b):
            return (0, 0)
        options = [best(i + 1, j), best(i, j + 1)]
        if a[i][0] == b[j][0]:
            names, alike = best(i + 1, j + 1)
            options.append((names + 1, alike + (a[i] == b[j])))
        return max(options)

    return best(0, 0)


def _tree(forest: Forest, row: int) -> Tree:
    return int(forest.name[row]), _trees(forest, row)


def _trees(forest: Forest, above: int) -> tuple[Tree, ...]:
    return tuple(_tree(forest, row) for row in forest.below(above).tolist())


def _check(base: Forest, new: Forest, matches: Matches) -> None:
    """Each pair's callees are matched as well as any search could, in order and by name."""
    paired = np.flatnonzero(matches.of_base != NONE)
    partner = matches.of_base[paired]
    assert (matches.of_new[partner] == paired).all()
    assert (np.sort(matches.of_new[matches.of_new != NONE]) == paired).all()
    assert (base.name[paired] == new.name[partner]).all()
    above = np.append(matches.of_base, NONE)[base.parent[paired]]
    assert (above == new.parent[partner]).all()
    for a, b in [(NONE, NONE), *zip(paired.tolist(), partner.tolist(), strict=True)]:
        ours = base.below(a)
        other = matches.of_base[ours]
        assert (np.diff(other[other != NONE]) > 0).all()
        alike = sum(
            _tree(base, x) == _tree(new, y)
            for x, y in zip(ours.tolist(), other.tolist(), strict=True)
            if y != NONE
        )
        assert (int((other != NONE).sum()), alike) == _best(_trees(base, a), _trees(new, b))


@pytest.mark.parametrize("seed", thinned(range(60), 5))
def test_random_trees_are_matched_as_well_as_can_be(seed: int) -> None:
    rng = random.Random(seed)
    names = rng.choice([2, 4, 12])
    roots = tuple(_random(rng, 3, names) for _ in range(rng.randint(0, 5)))
    other = _changed(rng, roots, names)
    base, new = _forest(roots), _forest(other)
    _check(base, new, match_forests(base, new))


@pytest.mark.parametrize("seed", thinned(range(20), 5))
def test_long_lists_are_cut_in_two_and_still_matched_best(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tree_alignment, "_CELLS", 8)
    rng = random.Random(seed)
    roots = tuple(_random(rng, 1, 3) for _ in range(rng.randint(10, 25)))
    base, new = _forest(roots), _forest(_changed(rng, roots, 3))
    _check(base, new, match_forests(base, new))


def test_lists_beyond_the_limit_are_aligned_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree_alignment, "_MOST_CELLS", 64)
    monkeypatch.setattr(tree_alignment, "_LEAST_CELLS", 1)
    rng = random.Random(5)
    roots = tuple(_random(rng, 1, 3) for _ in range(60))
    base, new = _forest(roots), _forest(_changed(rng, roots, 3))
    matches = match_forests(base, new)
    assert matches.blocks > 1
    paired = matches.of_base[base.below(NONE)]
    assert (np.diff(paired[paired != NONE]) > 0).all()  # still in order
    assert (
        base.name[matches.of_base != NONE] == new.name[matches.of_base[matches.of_base != NONE]]
    ).all()


def test_what_is_alike_is_matched_whole_and_sites_hold_the_rest() -> None:
    mm, add, relu, silu, step = range(5)
    layer: Tree = (step, ((mm, ()), (add, ((mm, ()),)), (relu, ())))
    other: Tree = (step, ((mm, ()), (add, ((mm, ()),)), (silu, ()), (silu, ())))
    base = _forest((layer, layer, layer, (add, ())))
    new = _forest((layer, other, layer))
    matches = match_forests(base, new)
    different = find_difference_sites(base, new, matches)
    # below the second layer relu became two silu; at the end add is lost
    assert matches.of_base.tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 8, NONE, 11, 12, 13, 14, 15, NONE]
    by_site = {
        int(different.caller[site]): (
            different.base_row[different.base_site == site].tolist(),
            different.new_row[different.new_site == site].tolist(),
        )
        for site in range(len(different.caller))
    }
    assert by_site == {5: ([9], [9, 10]), NONE: ([15], [])}


def test_every_node_without_a_partner_is_in_one_site() -> None:
    for seed in range(30):
        rng = random.Random(seed)
        roots = tuple(_random(rng, 3, 4) for _ in range(4))
        base, new = _forest(roots), _forest(_changed(rng, roots, 4))
        matches = match_forests(base, new)
        different = find_difference_sites(base, new, matches)
        for forest, partner, rows in (
            (base, matches.of_base, different.base_row),
            (new, matches.of_new, different.new_row),
        ):
            inside = np.zeros(len(partner), int)
            for row in rows.tolist():
                inside[row : row + int(forest.size[row])] += 1
            assert (inside == (partner == NONE)).all()
