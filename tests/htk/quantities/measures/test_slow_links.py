"""Tomography on groups whose paces are given: what is slow is told by who uses it."""

from itertools import combinations

import numpy as np
import pytest

from htk.quantities.measures.link_paces import LinkPaces
from htk.quantities.measures.slow_links import ADAPTERS, GPU, NETWORK, NODE, PAIR, find_slow_links

RANKS = 12
HOSTS = {rank: f"h{rank // 3}" for rank in range(RANKS)}  # 4 hosts of 3


def paces(members: list[tuple[int, ...]], slow: set[int], seed: int = 0) -> LinkPaces:
    """Equally fast groups, but for those that are three times slower; links of unknown rate."""
    dice = np.random.default_rng(seed)
    nodes = [tuple(sorted({HOSTS[r] for r in m})) for m in members]
    shapes = [(len(m), len(n)) for m, n in zip(members, nodes, strict=True)]
    kind = np.array([sorted(set(shapes)).index(s) for s in shapes])
    factor = np.array([np.log(3.0) * (k in slow) for k in range(len(members))])
    excess = 1.7 * kind + factor + dice.normal(0, 0.03, len(members))
    same = np.ones(len(members))
    return LinkPaces(
        members=members,
        ways=[[] for _ in members],
        nodes=nodes,
        kind=kind,
        excess=excess,
        scatter=0.05 * same,
        unsure=10 * same,
        busbw_gbps=same,
        usual_gbps=same,
        usual_from=[""] * len(members),
        collectives=same.astype(np.int64),
        time_ns=1e6 * same,
        matches=np.arange(len(members)),
        group=np.arange(len(members)),
    )


def likeliest(members: list[tuple[int, ...]], slow: set[int]) -> tuple[set[tuple[str, str]], float]:
    classes, _ = find_slow_links(paces(members, slow), HOSTS)
    parts = {(s.kind, " ".join(s.nodes) or str(s.ranks)) for s in classes[0].suspects}
    return parts, classes[0].slowdown


ACROSS = [(3 * a + k, 3 * b + k) for a, b in combinations(range(4), 2) for k in range(3)]
WITHIN = [tuple(range(3 * h, 3 * h + 3)) for h in range(4)]


def using(members: list[tuple[int, ...]], ranks: set[int]) -> set[int]:
    return {k for k, m in enumerate(members) if ranks & set(m)}


def test_adapters_of_a_node_are_told_by_the_pairs_of_nodes_that_are_slow() -> None:
    slow = {k for k in using(ACROSS, {6, 7, 8})}
    parts, slowdown = likeliest(ACROSS + WITHIN, slow)
    assert parts == {(ADAPTERS, "h2")}
    assert slowdown == pytest.approx(3, rel=0.05)


def test_a_link_between_two_nodes_is_told_from_their_adapters() -> None:
    slow = {k for k, m in enumerate(ACROSS) if {HOSTS[r] for r in m} == {"h1", "h3"}}
    parts, _ = likeliest(ACROSS + WITHIN, slow)
    assert parts == {(PAIR, "h1 h3")}


def test_a_gpu_is_slow_within_its_node_too() -> None:
    groups = ACROSS + WITHIN
    classes, _ = find_slow_links(paces(groups, using(groups, {7})), HOSTS)
    (only,) = classes[0].suspects
    assert (only.kind, only.ranks) == (GPU, (7,))
    assert classes[0].probability > 0.99


def test_links_of_a_node_are_told_by_its_own_groups() -> None:
    groups = ACROSS + WITHIN
    parts, _ = likeliest(groups, {len(ACROSS) + 2})
    assert parts == {(NODE, "h2")}


def test_what_all_use_is_no_contrast_without_a_rate() -> None:
    """Nothing is known of the links' rate: that all are alike says nothing."""
    everything = set(range(len(ACROSS)))
    for slow in (set(), everything):
        classes, nothing = find_slow_links(paces(ACROSS, slow), HOSTS)
        assert nothing > 0.5
        network = next(s for c in classes for s in c.suspects if s.kind == NETWORK)
        assert network.probability < 0.2


@pytest.mark.parametrize("seed", range(5))
def test_equal_links_raise_no_suspicion(seed: int) -> None:
    _, nothing = find_slow_links(paces(ACROSS + WITHIN, set(), seed), HOSTS)
    assert nothing > 0.9
