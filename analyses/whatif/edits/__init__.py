"""The edits: one module each, in one list. Each has NAME, HELP and apply(scene, value)."""

from typing import Protocol, cast

from htk.analyses.whatif.edits import (
    batch,
    fix_rank,
    graphs,
    host,
    network,
    no_skew,
    overlap,
    remove_syncs,
    replace,
    sharding,
    world,
)
from htk.analyses.whatif.scene import Scene
from htk.errors import UsageError


class Edit(Protocol):
    @property
    def NAME(self) -> str: ...
    @property
    def HELP(self) -> str: ...
    def apply(self, scene: Scene, value: str) -> Scene: ...


# In the order in which they are applied, whichever order they are given in.
EDITS: tuple[Edit, ...] = cast(
    "tuple[Edit, ...]",
    (
        replace,
        batch,
        sharding,
        world,
        network,
        fix_rank,
        no_skew,
        overlap,
        remove_syncs,
        host,
        graphs,
    ),
)


def edit(name: str) -> Edit:
    for one in EDITS:
        if name == one.NAME:
            return one
    raise UsageError(f"no what-if {name!r}; there are {', '.join(e.NAME for e in EDITS)}")
