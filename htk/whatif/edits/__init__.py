"""The edits: one module each, in one list. Each has NAME, HELP and apply(model, value)."""

from typing import Protocol, cast

from htk.base import plugins
from htk.base.errors import UsageError
from htk.whatif.edits import (
    accumulation,
    attention,
    balanced_experts,
    batch,
    bucket,
    checkpointing,
    compiled,
    cp,
    ep,
    fix_rank,
    gradients,
    graphs,
    hardware,
    host,
    lora,
    loss,
    network,
    no_data_wait,
    no_skew,
    no_sync,
    optimizer,
    overlap,
    pp,
    precision,
    prefetch_depth,
    remove_syncs,
    replace,
    seq,
    serving,
    sharding,
    sp,
    split,
    tp,
    workers,
    world,
)
from htk.whatif.step_model import StepModel


class Edit(Protocol):
    @property
    def NAME(self) -> str: ...
    @property
    def HELP(self) -> str: ...
    def apply(self, model: StepModel, value: str) -> StepModel: ...


# In the order in which they are applied, whichever order they are given in.
EDITS: tuple[Edit, ...] = cast(
    "tuple[Edit, ...]",
    (
        replace,
        hardware,
        precision,
        batch,
        seq,
        serving,
        attention,
        loss,
        optimizer,
        lora,
        checkpointing,
        tp,
        sp,
        cp,
        ep,
        world,
        sharding,
        bucket,
        prefetch_depth,
        network,
        gradients,
        fix_rank,
        balanced_experts,
        no_skew,
        split,
        overlap,
        remove_syncs,
        no_data_wait,
        workers,
        host,
        graphs,
        compiled,
        no_sync,
        accumulation,
        pp,
    ),
)

# Those of other packages are applied last.
EDITS += tuple(plugins.loaded("htk.edits"))

# Each of these may be given several times, for different kernels or ranks.
REPEATABLE = ("replace", "fix_rank")


def edit(name: str) -> Edit:
    for candidate in EDITS:
        if name == candidate.NAME:
            return candidate
    raise UsageError(f"no what-if {name!r}; there are {', '.join(e.NAME for e in EDITS)}")
