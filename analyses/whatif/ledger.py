"""What a sharded step gathers and reduces, as its own collectives show."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from htk.analyses.whatif.scene import Scene


@dataclass(frozen=True)
class Sharded:
    strategy: str
    ranks: int
    unit_bytes: tuple[int, ...]  # gathered units of one rank, in forward
    reduced_bytes: int
    backward: NDArray[np.bool_]  # gathers that repeat one of forward


def sharded(scene: Scene) -> Sharded | None:
    """From all_gathers (out bytes) and reduce_scatters (in bytes) of one rank."""
    gathers = scene.is_collective("all_gather") & (scene.facts.out_bytes > 0)
    reduces = scene.is_collective("reduce_scatter") & (scene.facts.in_bytes > 0)
    if not gathers.any() or not reduces.any():
        return None
    acts = scene.graph.activities
    backward = np.zeros(len(gathers), bool)
    units: tuple[int, ...] = ()
    for rank in scene.graph.ranks:
        mine = np.flatnonzero(gathers & (acts.rank == rank))
        mine = mine[np.argsort(acts.start[mine], kind="stable")]
        seen: dict[int, int] = {}
        wanted = _counts(scene.facts.in_bytes[reduces & (acts.rank == rank)])
        forward = []
        for one in mine.tolist():  # some tens of units
            size = int(scene.facts.out_bytes[one])
            seen[size] = seen.get(size, 0) + 1
            if seen[size] > wanted.get(size, seen[size]):
                backward[one] = True
            else:
                forward.append(size)
        units = tuple(forward)
    first = scene.graph.ranks[0]
    reduced = int(scene.facts.in_bytes[reduces & (acts.rank == first)].sum())
    replicas = scene.is_collective("all_reduce") & (scene.facts.in_bytes > 1 << 20)
    kind = "full_shard" if backward.any() else "shard_grad_op"
    return Sharded(
        "hybrid_shard" if replicas.any() else kind,
        int(scene.facts.group_size[gathers].max()),
        units,
        reduced,
        backward,
    )


def _counts(sizes: NDArray[np.int64]) -> dict[int, int]:
    values, count = np.unique(sizes, return_counts=True)
    return dict(zip(values.tolist(), count.tolist(), strict=True))
