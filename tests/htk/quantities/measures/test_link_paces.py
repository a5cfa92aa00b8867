"""How fast groups of ranks are, against their links: groups whose transfers are worked out."""

import numpy as np
import pyarrow.compute as pc
import pytest

from htk.quantities.derived.match import collective_matches
from htk.quantities.measures.collective_calls import CollectiveCalls
from htk.quantities.measures.link_paces import link_paces, long_groups_left_out
from htk.quantities.measures.transfer_times import USUAL, LinkRates, usual_latency_ns
from tests.htk.quantities.measures.timed_calls import calls_of
from tests.tables import make

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
    usual = LinkRates.from_calls(calls, None, None)
    assert usual.intra_gbps == 450 and usual.nic_from == "usual installations"
    assert usual.inter_gbps is not None and usual.inter_gbps % 4 == 0  # a node of four
    assert LinkRates.from_calls(calls, 7.0, 9.0) == LinkRates(7.0, 9.0, "given")
    assert LinkRates.from_calls(calls_of([], "no such GPU"), None, None).intra_gbps is None


def test_a_group_twice_as_slow_as_its_links_allow() -> None:
    """64 MB of two ranks move 64 MB each way: at 15 of 20 GB/s in 4.47 ms; here twice that.
    Small messages, slow as they are, say nothing beside large ones."""
    size = 64 * MB
    usual = size / (20 * USUAL)
    small = [((1, 5), size // 64, 900_000)] * 3
    paces = link_paces(calls_of([((1, 5), size, round(2 * usual))] * 5 + small), GIVEN)
    assert (paces.members, paces.nodes) == ([(1, 5)], [("h0", "h1")])
    assert paces.usual_from == ["given"]
    assert paces.usual_gbps.tolist() == pytest.approx([20 * USUAL])
    assert paces.excess[0] == pytest.approx(np.log(2), abs=0.01)  # latency aside
    assert paces.busbw_gbps[0] == pytest.approx(7.5, rel=1e-6)
    assert paces.collectives.tolist() == [5]
    assert paces.time_ns[0] == pytest.approx(10 * usual, rel=1e-6)
    assert paces.scatter[0] == pytest.approx(0.02, rel=0.01)  # calls that are all alike


def test_groups_that_make_the_same_calls_are_of_one_kind() -> None:
    across = [((k, k + 4), 4 * MB, 100_000) for k in range(3)]
    within = [((6, 7), 4 * MB, 100_000)]  # of one node
    larger = [((3, 7), 8 * MB, 200_000)]
    paces = link_paces(calls_of(across + within + larger), GIVEN)
    kind = dict(zip(paces.members, paces.kind.tolist(), strict=True))
    assert len({kind[0, 4], kind[1, 5], kind[2, 6]}) == 1
    assert len(set(kind.values())) == 3


def test_without_a_rate_only_like_calls_compare() -> None:
    """The bytes of one group take e times as long as the other's, on links that nobody knows."""
    latency, _ = usual_latency_ns("all_reduce", 2, 2, 1)
    times = (round(latency + 180_000), round(latency + 180_000 * np.e))
    slow = [((0, 4), 4 * MB, times[0]), ((1, 5), 4 * MB, times[1])]
    paces = link_paces(calls_of(slow), LinkRates(None, None, "given"))
    assert paces.excess[1] - paces.excess[0] == pytest.approx(1, abs=1e-5)
    assert (paces.unsure >= 5).all(), "the usual itself is unknown"


def test_what_latency_bounds_tells_nothing_of_links() -> None:
    """The steps of a ring of eight ranks on two nodes take about 100 us, whatever its size."""
    everyone = tuple(range(8))
    small = calls_of([(everyone, 64 << 10, 120_000)] * 4)
    assert len(link_paces(small, GIVEN)) == 0
    both = calls_of([(everyone, 64 << 10, 120_000), (everyone, 64 * MB, 2_000_000)] * 4)
    assert link_paces(both, GIVEN).collectives.tolist() == [4]


def test_a_latency_that_several_sizes_tell_is_left_out() -> None:
    """400 us and 8 GB/s: of 8 MB more than a quarter of the time is latency."""
    sizes = [4 * MB, 8 * MB, 32 * MB]
    calls = [((1, 5), size, round(400_000 + size / 8)) for size in sizes for _ in range(5)]
    paces = link_paces(calls_of(calls), GIVEN)
    assert paces.excess[0] == pytest.approx(np.log(20 * USUAL / 8), abs=0.03)


def test_groups_that_lack_ranks_are_held_to_each_other_s_durations() -> None:
    """Ranks 0 to 3 alone are recorded, each in a pair with one that is not: those of rank 2 take
    201 us, the others 101 us."""
    pairs = [((k, k + 4), 4 * MB, 200_000 if k == 2 else 100_000) for k in range(4)]
    every = calls_of(pairs * 2)
    recorded = every.table.filter(pc.less(every.table["rank"], 4))
    matches = collective_matches(recorded, make("rank_windows", []), every.ranks)
    calls = CollectiveCalls.from_tables(recorded, matches, every.ranks)
    paces = link_paces(calls, GIVEN)
    assert not len(paces)
    assert long_groups_left_out(calls, paces) == {"ranks 2, 6": "2.0 times as long as like groups"}
    assert long_groups_left_out(every, link_paces(every, GIVEN)) == {}, "judged by their transfers"
