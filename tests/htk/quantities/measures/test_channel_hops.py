"""Rings and trees of NCCL's log put on the groups of a trace, and what they tell of slow links."""

import io
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from htk.base.core.parser import ParseOptions, Source
from htk.parsers import nccl_debug
from htk.quantities.derived.match import collective_matches
from htk.quantities.measures.channel_hops import NodeHop, hops_between_nodes
from htk.quantities.measures.collective_calls import CollectiveCalls
from htk.quantities.measures.link_paces import LinkPaces
from htk.quantities.measures.slow_links import ADAPTER, ADAPTERS, NETWORK, PAIR, find_slow_links
from tests.tables import make
from tests.thinned import thinned

HOSTS = {rank: f"h{rank // 2}" for rank in range(8)}  # four hosts of two
EMPTY = {name: make(name, []) for name in ("comm_inits", "comm_transports")}
EVENS, ODDS = (0, 2, 4, 6), (1, 3, 5, 7)


def log(comms: dict[tuple[int, ...], list[tuple[int, ...]]], nic: str = "NET/IB/{rank}") -> str:
    """Lines of every rank of communicators, for each the order of its ranks on each channel."""
    lines = []
    for number, (members, rings) in enumerate(comms.items()):
        for own, rank in enumerate(members):
            head = f"{HOSTS[rank]}:{100 + rank}:9 [{rank % 2}] NCCL INFO "
            comm = f"comm 0x{number}{rank}a rank {own} nranks {len(members)} cudaDev {rank % 2} "
            comm += f"busId 1 commId 0xabc{number} - Init "
            lines += [head + comm + "START"]
            for channel, order in enumerate(rings):
                places = [members.index(r) for r in order]
                where = places.index(own)
                before, after = places[where - 1], places[(where + 1) % len(places)]
                lines += [head + f"Ring {channel:02} : {before} -> {own} -> {after}"]
                for sender, receiver, way in ((own, after, "send"), (before, own, "receive")):
                    if HOSTS[members[sender]] != HOSTS[members[receiver]]:
                        via = nic.format(rank=rank % 2)
                        text = f"Channel {channel:02}/0 : {sender}[0] -> {receiver}[0] [{way}]"
                        lines += [f"{head}{text} via {via}/GDRDMA"]
            lines += [head + comm + "COMPLETE"]
    return "\n".join(lines) + "\n"


def trace(groups: list[tuple[int, ...]], **more: Any) -> CollectiveCalls:
    rows = [
        {"rank": r, "device": r % 2, "source": "kineto", "timing": "gpu", "group": str(k),
         "group_ranks": str(list(g)).replace(" ", ""), "group_size": len(g), "in_bytes": 9,
         "type": "all_reduce", "start_ns": 10 * k, "end_ns": 10 * k + 9} | more
        for k, g in enumerate(groups) for r in g
    ]  # fmt: skip
    table = make("collectives", rows)
    ranks = make("ranks", [{"rank": r, "host": h} for r, h in HOSTS.items()])
    matches = collective_matches(table, make("rank_windows", []), ranks)
    return CollectiveCalls.from_tables(table, matches, ranks)


def parsed(text: str) -> Any:
    source = Source("a.log", lambda: io.BytesIO(text.encode()))
    return nccl_debug.parse(source, ParseOptions()).tables if text else EMPTY


def hops_of(text: str, groups: list[tuple[int, ...]], **more: Any) -> list[Any]:
    tables = parsed(text)
    inits, transports = tables["comm_inits"], tables["comm_transports"]
    assert isinstance(transports, pa.Table)
    return hops_between_nodes(trace(groups, **more), groups, {}, transports, inits)


def test_rings_are_put_on_the_groups_whose_hosts_and_devices_they_have() -> None:
    """Two rails over the same hosts: the device tells which is which."""
    backwards = (1, 7, 5, 3)
    text = log({ODDS: [backwards], EVENS: [EVENS, (0, 4, 2, 6)]})
    evens, odds = hops_of(text, [EVENS, ODDS])
    assert {(h.sender, h.receiver) for h in odds} == {(1, 7), (7, 5), (5, 3), (3, 1)}
    both = {(0, 2), (2, 4), (4, 6), (6, 0), (0, 4), (4, 2), (2, 6)}
    assert {(h.sender, h.receiver) for h in evens} == both
    assert NodeHop(1, 7, "IB/1", "IB/1") in odds


def test_hops_within_a_node_are_not_between_nodes() -> None:
    everyone = tuple(range(8))
    (hops,) = hops_of(log({everyone: [everyone]}), [everyone])
    assert {(h.sender, h.receiver) for h in hops} == {(1, 2), (3, 4), (5, 6), (7, 0)}


def test_what_may_be_another_group_is_not_known() -> None:
    """Without devices both rails fit both communicators, which run unlike."""
    text = log({ODDS: [(1, 7, 5, 3)], EVENS: [EVENS]})
    assert hops_of(text, [EVENS, ODDS], device=None) == [None, None]
    assert hops_of("", [EVENS]) == [None]
    half = "\n".join(line for line in log({EVENS: [EVENS]}).splitlines() if "h3" not in line)
    assert hops_of(half, [EVENS]) == [None]


def test_a_call_that_runs_as_a_tree_takes_the_hops_of_the_tree() -> None:
    lines = log({EVENS: [EVENS]}).splitlines()
    trees = ["-1/-1/-1->0->1", "0/2/-1->1->-1", "3/-1/-1->2->1", "-1/-1/-1->3->2"]
    for own, tree in enumerate(trees):
        where = next(k for k, line in enumerate(lines) if f"-> {own} ->" in line)
        lines.insert(where, lines[where].partition("Ring")[0] + f"Trees [0] {tree}")
    (hops,) = hops_of("\n".join(lines), [EVENS], algorithm="TREE")
    assert {(h.sender, h.receiver) for h in hops} == {(0, 2), (4, 2), (6, 4)}


PAIRS_OF = {
    "evens": [("h0", "h1"), ("h1", "h2"), ("h2", "h3"), ("h0", "h3")],
    "odds": [("h0", "h2"), ("h1", "h2"), ("h1", "h3"), ("h0", "h3")],
}


def suspects(slow: set[int], hops: list[Any], seed: int = 0) -> tuple[set[tuple[Any, ...]], float]:
    """The likeliest suspects, where the second group is three times slower."""
    members = [EVENS, ODDS, *WITHIN]
    dice = np.random.default_rng(seed)
    excess = np.array([np.log(3.0) * (k in slow) for k in range(len(members))])
    ones = np.ones(len(members))
    paces = LinkPaces(
        members=members,
        ways=[[] for _ in members],
        nodes=[tuple(sorted({HOSTS[r] for r in m})) for m in members],
        kind=np.array([0, 0, *[1] * len(WITHIN)]),
        excess=excess + dice.normal(0, 0.03, len(members)),
        scatter=0.05 * ones,
        unsure=0.25 * ones,
        busbw_gbps=ones,
        usual_gbps=ones,
        usual_from=[""] * len(members),
        collectives=ones.astype(np.int64),
        time_ns=ones,
        matches=np.arange(len(members)),
        group=np.arange(len(members)),
        hops=hops,
    )
    classes, nothing = find_slow_links(paces, HOSTS)
    parts = {(s.kind, *s.nodes, s.device) for s in classes[0].suspects}
    return parts, 0.0 if nothing > 0.5 else classes[0].probability


WITHIN = [(0, 1), (2, 3), (4, 5), (6, 7)]


@pytest.mark.parametrize("seed", thinned(range(10), 3))
def test_rings_tell_which_links_alone_can_be_slow(seed: int) -> None:
    """The evens' ring passes h0 h1 h2 h3, that of the odds h0 h2 h1 h3. The odds are slow: by the
    links that only they use, or by their own adapters; not by h1-h2, nor by all of h1."""
    text = log({EVENS: [EVENS], ODDS: [(1, 5, 3, 7)]})
    hops = hops_of(text, [EVENS, ODDS, *WITHIN])
    assert {tuple(sorted((HOSTS[h.sender], HOSTS[h.receiver]))) for h in hops[1]} == {
        *PAIRS_OF["odds"]
    }
    parts, probability = suspects({1}, hops, seed)
    assert probability > 0.9
    assert {part for part in parts if part[0] == PAIR} == {
        (PAIR, "h0", "h2", ""), (PAIR, "h1", "h3", ""),
    }  # fmt: skip
    assert {(ADAPTER, f"h{k}", "IB/1") for k in range(4)} <= parts
    assert not {part[0] for part in parts} & {NETWORK, ADAPTERS}
    without, _ = suspects({1}, [None] * 6, seed)
    assert PAIR not in {part[0] for part in without}


def test_an_adapter_that_two_ranks_share_is_one_suspect() -> None:
    """Both rails of a host leave by one adapter: with both slow it is suspected by its name."""
    hops = hops_of(log({EVENS: [EVENS], ODDS: [ODDS]}, "NET/IB/0"), [EVENS, ODDS, *WITHIN])
    parts, _ = suspects({0, 1}, hops)
    assert (ADAPTER, "h1", "IB/0") in parts
    assert not {part for part in parts if part[0] == ADAPTER and part[-1] != "IB/0"}


def test_pairs_of_neighbours() -> None:
    """The fixture's own orders are what the tests take them for."""
    for name, order in (("evens", EVENS), ("odds", (1, 5, 3, 7))):
        pairs = [*pairwise(order), (order[-1], order[0])]
        assert [tuple(sorted((HOSTS[a], HOSTS[b]))) for a, b in pairs] == PAIRS_OF[name]
