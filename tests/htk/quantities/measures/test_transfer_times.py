"""No link is slow where none is, whatever the ranks and buckets; those that are slow are found."""

from itertools import product

import pytest

from htk.quantities.measures.link_paces import link_paces
from htk.quantities.measures.slow_links import Alike, suspected
from htk.quantities.measures.transfer_times import LinkRates
from tests.htk.quantities.measures.made_transfers import (
    KIB,
    MIB,
    PER_NODE,
    MadeJob,
    Slow,
    made_calls,
)

BUCKETS = (
    (64 * KIB,), (MIB,), (8 * MIB, 64 * MIB), (25 * MIB, 13 * MIB), (64 * KIB, 4 * MIB, 32 * MIB),
    (256 * MIB,),
)  # fmt: skip
LARGE = ((25 * MIB, 13 * MIB), (8 * MIB, 64 * MIB), (256 * MIB,))
MANY = [pytest.param(world, marks=pytest.mark.nightly) for world in (256, 1024)]
WORLDS = [8, 64, *MANY]


def judged(job: MadeJob) -> tuple[list[Alike], float]:
    calls = made_calls(job)
    return suspected(link_paces(calls, LinkRates.of(calls, None, None)), calls.hosts.of_rank)


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
            MadeJob(world, "hybrid", buckets, seed, Slow(frozenset({rank}), factor, across=True))
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
            MadeJob(world, "hybrid", buckets, seed, Slow(frozenset({rank}), factor, across=False))
        )
        assert nothing < 0.5, (buckets, nothing)
        assert ("h1",) in {suspect.nodes for suspect in classes[0].suspects}
        assert classes[0].slowdown == pytest.approx(factor, rel=0.15)
