"""What the wrappers of one rank's model record tells how several will share it."""

import pytest

from htk.whatif.sharding_wrapper import read_wrapper

UNIT = ["FSDP::all_gather", "FSDP::pre_backward", "FSDP::post_backward_reduce"]


@pytest.mark.parametrize(
    ("names", "strategy"),
    [
        ([*UNIT, "FSDP::all_gather"], "full_shard"),  # again in the backward pass
        (UNIT, "shard_grad_op"),
        (["FullyShardedDataParallel._unshard"], "full_shard"),
        (["DistributedDataParallel.forward"], "ddp"),
        (["forward", "DistributedDataParallelism"], None),
    ],
)
def test_annotations_of_wrappers_tell_the_sharding(names: list[str], strategy: str | None) -> None:
    assert read_wrapper(names) == strategy
