"""ZeRO's stages, by hand."""

import pytest

from htk.base.errors import UsageError
from htk.physics.wire import Sharding, build_ledger
from htk.whatif.edits import sharding
from tests.htk.whatif.small_step_model import Act, comm, length, period, small_model

K = 1000
MIB = 1 << 20


def ddp(ranks: int = 4, optimizer: int = 400 * K) -> list[Act]:
    """Two buckets of 64 MiB: 20 us and 600 for 6/4 of their bytes; 4 ranks of a node."""
    reduced = {"group": ranks, "per_node": ranks, "in_bytes": 64 * MIB, "backward": True}
    return [
        Act("a", 300 * K),
        Act("b1", 300 * K, backward=True),
        comm("r1", 620 * K, "all_reduce", waits=("b1",), **reduced),
        Act("b0", 300 * K, backward=True),
        comm("r0", 620 * K, "all_reduce", waits=("b0",), **reduced),
        Act("adam", optimizer, waits=("r0",), family="optimizer"),
    ]


@pytest.mark.parametrize("stage", ["zero1", "zero2"])
def test_half_is_reduced_a_part_updated_and_all_gathered(stage: str) -> None:
    model = small_model(ddp(), gpus_per_node=4)
    found = sharding.apply(model, stage)
    assert length(found, "r1") == pytest.approx(320 * K, rel=0.02)
    assert length(found, "adam") == 100 * K
    # as much as was saved of both buckets, and a latency
    assert found.added["gather"] == pytest.approx(620 * K, rel=0.03)
    assert found.added_exposed == pytest.approx(found.added["gather"])
    assert any("optimizer's state over all ranks" in words for words in found.assumptions)
    assert (
        period(found)
        == period(model.with_lengths(model.is_comm, found.lengths()))
        - 300 * K
        + found.added["gather"]
    )


def test_what_it_sends() -> None:
    """(N-1)/N of gradients for each synchronisation, and of parameters once."""
    sent = build_ledger(1000, Sharding("zero1", 4), micro_batches=3, syncs=2)
    assert sent.reduce_wire == 3 / 4 * 2 * 1000 * 2
    assert sent.gather_wire == 3 / 4 * 2 * 1000
    assert sent.all_reduce_wire == 0


def test_other_stages_have_names_of_their_own() -> None:
    with pytest.raises(UsageError, match="zero1, zero2"):
        sharding.apply(small_model(ddp(), gpus_per_node=4), "zero4")


def test_the_third_stage_is_full_sharding() -> None:
    assert sharding.parse_strategy("ZeRO3") == sharding.parse_strategy("FULL_SHARD") == "full_shard"


def test_a_bucket_slower_than_the_links_saves_what_they_take() -> None:
    """Three buckets of equal size, one of which took twice as long: it too saves 300 us."""
    slow = comm("r2", 1240 * K, "all_reduce", waits=("b0",), group=4, per_node=4,
                in_bytes=64 * MIB, backward=True)  # fmt: skip
    changed = sharding.apply(small_model([*ddp(), slow], gpus_per_node=4), "zero1")
    assert length(changed, "r1") == pytest.approx(320 * K, rel=0.02)
    assert length(changed, "r2") == pytest.approx(940 * K, rel=0.01)
