"""How fast groups of ranks are, against their links: groups whose transfers are worked out."""

import numpy as np
import pytest

from htk.quantities.measures.link_paces import (
    LARGE_BYTES,
    USUAL,
    LinkRates,
    complete_transfers,
    link_paces,
)
from tests.htk.quantities.measures.timed_calls import calls_of

MB = 1 << 20
GIVEN = LinkRates(100.0, 80.0, "given")  # of a GPU within a node, and of all adapters of a node


@pytest.mark.parametrize(
    ("members", "limit", "origin"),
    [
        ((0, 1, 2, 3), 100.0, "data sheet"),
        ((4, 6), 100.0, "data sheet"),
        ((1, 5), 20.0, "given"),  # one GPU of four: a quarter of its node's adapters
        ((0, 1, 5), 40.0, "given"),  # of the fuller node two
        (tuple(range(8)), 80.0, "given"),
        ((3, 8), np.nan, ""),  # nobody says where rank 8 runs
    ],
)
def test_the_rate_that_a_group_cannot_pass(
    members: tuple[int, ...], limit: float, origin: str
) -> None:
    rate, basis = GIVEN.limit(calls_of([]), members)
    assert (rate, basis) == (pytest.approx(limit, nan_ok=True), origin)


def test_rates_are_those_of_the_catalogue_unless_given() -> None:
    calls = calls_of([], "NVIDIA H100 80GB HBM3")
    usual = LinkRates.of(calls, None, None)
    assert usual.intra_gbps == 450 and usual.nic_from == "usual installations"
    assert usual.inter_gbps is not None and usual.inter_gbps % 4 == 0  # a node of four
    assert LinkRates.of(calls, 7.0, 9.0) == LinkRates(7.0, 9.0, "given")
    assert LinkRates.of(calls_of([], "no such GPU"), None, None).intra_gbps is None


def test_only_what_all_members_recorded_is_a_transfer() -> None:
    calls = calls_of([((1, 5), 4 * MB, 90_000), ((2, 3), 8 * MB, 70_000)], group_size=2)
    row, group, members = complete_transfers(calls)
    assert members == [(1, 5), (2, 3)] and group.tolist() == [0, 1]
    assert calls.waits.span[row].tolist() == [90_000, 70_000]
    lacking = calls_of([((1, 5), 4 * MB, 90_000)], group_size=3, group_ranks="[1,5,6]")
    assert complete_transfers(lacking)[2] == []


def test_a_group_twice_as_slow_as_its_links_allow() -> None:
    """64 MB of two ranks move 64 MB each way: at 15 of 20 GB/s in 4.47 ms; here twice that.
    Small messages, slow as they are, say nothing beside large ones."""
    size = 64 * MB
    usual = size / (20 * USUAL)
    small = [((1, 5), LARGE_BYTES // 64, 900_000)] * 3
    paces = link_paces(calls_of([((1, 5), size, round(2 * usual))] * 5 + small), GIVEN)
    assert (paces.members, paces.nodes) == ([(1, 5)], [("h0", "h1")])
    assert (paces.limit_gbps.tolist(), paces.limit_from) == ([20.0], ["given"])
    assert paces.excess[0] == pytest.approx(np.log(2), abs=0.01)  # latency aside
    assert paces.busbw_gbps[0] == pytest.approx(7.5, rel=1e-6)
    assert paces.collectives.tolist() == [5]
    assert paces.time_ns[0] == pytest.approx(10 * usual, rel=1e-6)
    assert paces.scatter[0] == pytest.approx(0.05)  # calls that are all alike scatter no more


def test_groups_that_make_the_same_calls_are_of_one_kind() -> None:
    across = [((k, k + 4), 4 * MB, 100_000) for k in range(3)]
    within = [((6, 7), 4 * MB, 100_000)]  # of one node
    larger = [((3, 7), 8 * MB, 100_000)]
    paces = link_paces(calls_of(across + within + larger), GIVEN)
    kind = dict(zip(paces.members, paces.kind.tolist(), strict=True))
    assert len({kind[0, 4], kind[1, 5], kind[2, 6]}) == 1
    assert len(set(kind.values())) == 3


def test_without_a_rate_only_like_calls_compare() -> None:
    """One group takes e times as long as the other, of links that nobody knows."""
    slow = [((0, 4), 4 * MB, 200_000), ((1, 5), 4 * MB, round(200_000 * np.e))]
    paces = link_paces(calls_of(slow), LinkRates(None, None, "given"))
    assert np.isnan(paces.limit_gbps).all()
    assert paces.excess[1] - paces.excess[0] == pytest.approx(1, abs=1e-5)
    assert (paces.unsure >= 5).all(), "the usual itself is unknown"


def test_messages_of_a_mebibyte_are_large() -> None:
    size, usual = 64 * MB, 64 * MB / (20 * USUAL)
    calls = [((1, 5), size, round(usual))] * 3
    calls += [((1, 5), MB, 90_000)] * 2 + [((1, 5), MB - 1, 90_000)] * 4
    assert link_paces(calls_of(calls), GIVEN).collectives.tolist() == [5]
