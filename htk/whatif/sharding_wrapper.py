"""How one rank's parameters will be sharded, told by what PyTorch's wrappers record of one too."""

import re
from collections.abc import Sequence

_FSDP = re.compile(r"FSDP::|FullyShardedDataParallel\.")
_DDP = "DistributedDataParallel.forward"
_GATHERS = ("FSDP::all_gather", "FullyShardedDataParallel._unshard")
_REDUCTION = "FSDP::post_backward_reduce"
_TWICE = 1.5  # gathers of a unit, at least, where the backward pass gathers it again


def read_wrapper(annotations: Sequence[str]) -> str | None:
    """Return the strategy that FSDP or DDP has wrapped a model for; None: nothing tells it."""
    if any(map(_FSDP.match, annotations)):
        gathers = sum(map(annotations.count, _GATHERS))
        keeps_whole = gathers < _TWICE * annotations.count(_REDUCTION)
        return "shard_grad_op" if keeps_whole else "full_shard"
    return "ddp" if _DDP in annotations else None
