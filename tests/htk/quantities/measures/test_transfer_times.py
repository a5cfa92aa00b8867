"""No link is slow where none is, whatever the ranks and buckets; those that are slow are found."""

from itertools import product

import pytest

from bench.links import (
    KIB,
    MIB,
    PER_NODE,
    MadeJob,
    Slow,
    healthy_job,
    judged,
    names_slow,
    slow_job,
)
from htk.quantities.measures.complete_collectives import CompleteCollectives
from htk.quantities.measures.transfer_times import LinkRates, TransferTimes
from tests.htk.quantities.measures.timed_calls import calls_of

BUCKETS = (
    (64 * KIB,), (MIB,), (8 * MIB, 64 * MIB), (25 * MIB, 13 * MIB), (64 * KIB, 4 * MIB, 32 * MIB),
    (256 * MIB,),
)  # fmt: skip
_H100 = "NVIDIA H100 80GB HBM3"
LARGE = ((25 * MIB, 13 * MIB), (8 * MIB, 64 * MIB), (256 * MIB,))
MANY = [pytest.param(world, marks=pytest.mark.nightly) for world in (256, 1024)]
WORLDS = [8, 64, *MANY]


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("layout", ["full", "hybrid"])
def test_nothing_is_slow_in_a_healthy_job(world: int, layout: str) -> None:
    named = []
    for number, (buckets, seed) in enumerate(product(BUCKETS, range(2))):
        _, nothing = judged(MadeJob(world, layout, buckets, 10 * world + seed + 2 * number))
        if nothing < 0.5:
            named.append((buckets, seed, nothing))
    assert named == []


@pytest.mark.parametrize("world", [32, *WORLDS[1:]])
@pytest.mark.parametrize("factor", [1.3, 2.5])
def test_a_slow_adapter_is_found_among_its_like(world: int, factor: float) -> None:
    """One rank's way to the network: all ranks of its place on other nodes wait for it."""
    for seed, buckets in enumerate(LARGE):
        rank = PER_NODE + 2
        classes, nothing = judged(
            MadeJob(world, "hybrid", buckets, seed, Slow(rank, factor, across=True))
        )
        assert nothing < 0.5, (buckets, nothing)
        assert (rank,) in {suspect.ranks for suspect in classes[0].suspects}
        assert classes[0].slowdown == pytest.approx(factor, rel=0.15)


@pytest.mark.parametrize("world", [32, *WORLDS[1:]])
@pytest.mark.parametrize("factor", [1.3, 2.5])
def test_a_slow_gpu_link_is_found_among_nodes(world: int, factor: float) -> None:
    for seed, buckets in enumerate(LARGE):
        rank = PER_NODE + 2
        classes, nothing = judged(
            MadeJob(world, "hybrid", buckets, seed, Slow(rank, factor, across=False))
        )
        assert nothing < 0.5, (buckets, nothing)
        assert ("h1",) in {suspect.nodes for suspect in classes[0].suspects}
        assert classes[0].slowdown == pytest.approx(factor, rel=0.15)


@pytest.mark.parametrize("world", [8, 16, *MANY])
def test_random_jobs_are_judged_rightly(world: int) -> None:
    """Pairs, messages between stages and groups of all sizes; bench/links.py draws more."""
    for seed in range(15):
        assert judged(healthy_job(seed, world))[1] >= 0.5, seed
        slow = slow_job(seed, world)
        assert names_slow(slow, *judged(slow)), seed


def test_within_a_node_collectives_are_expected_as_they_were_measured() -> None:
    """Two H100s were measured to all-reduce 256 MiB in 888 us: at 67 % of the rate of their links.
    A given rate counts instead, at the usual 75 %; between nodes nothing was measured."""
    calls = calls_of([((0, 1), 256 * MIB, 890_000), ((0, 4), 256 * MIB, 9_000_000)], _H100)
    complete = CompleteCollectives.from_calls(calls)
    assert complete.members == [(0, 1), (0, 4)]
    measured = TransferTimes(complete, LinkRates.from_calls(calls, None, None))
    given = TransferTimes(complete, LinkRates.from_calls(calls, 450.0, None))
    assert measured.expected_ns[0] == pytest.approx(888_000, rel=0.02)
    assert given.expected_ns[0] == pytest.approx(256 * MIB / (0.75 * 450), rel=0.02)
    assert measured.expected_ns[1] == given.expected_ns[1]
