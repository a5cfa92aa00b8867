"""Which ranks of a profiled job are workers: those that share each layer count as one.

Groups whose ranks reduce activations within the forward pass share layers (tensor and sequence
parallelism). Of such a group the lowest rank speaks for all: they run in step. All other groups
have to hold one rank of each worker: parameters are gathered and gradients reduced over them.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from htk.columns.types import Ints, Mask
from htk.derived.match import CollectiveRows
from htk.errors import MissingTable

_IN_LAYERS = ("all_reduce", "reduce_scatter")
_GATHERS, _SCATTERS = ("all_gather",), ("reduce_scatter",)
_OTHER = ("all_to_all", "send", "recv", "send_recv")


@dataclass(frozen=True)
class WorkerGroups:
    """The workers of a job, and what each collective is to them."""

    workers: Ints  # the rank that speaks for each, in order
    within: Mask  # of each collective: it is part of a layer's computation
    gathers: Mask  # … of parameters
    scatters: Mask  # … of gradients

    @classmethod
    def of(cls, collectives: pa.Table, in_forward: Mask, ranks: list[int]) -> "WorkerGroups":
        """Tell them; `in_forward` says which collectives were launched in the forward pass."""
        rows = CollectiveRows(collectives)
        codes, listed = rows.group_ranks
        sharing = rows.is_type(*_IN_LAYERS) & in_forward & (codes >= 0)
        size = np.array([*(len(members) for members in listed), 0])[codes]
        sharing &= (size > 1) & (size < len(ranks))
        sets = sorted({listed[code] for code in np.unique(codes[sharing]).tolist()})
        _refuse_overlaps(sets)
        lowest = {rank: min(members) for members in sets for rank in members}
        workers = sorted({lowest.get(rank, rank) for rank in ranks})
        within = np.isin(codes, [k for k, m in enumerate(listed) if m in sets and codes.size])
        mixed = (rows.group_size > 1) & (rows.group_size != len(workers)) & ~within
        if mixed.any() or (rows.is_type(*_OTHER) & ~within).any():
            raise MissingTable(
                "rows can be cut from profiles of data parallelism, sharded or not, with or "
                "without tensor parallelism; this job has pipelines, experts or replicas of "
                "shards: log its rows with htk.capture(operations=True)"
            )
        missing = sorted(set(workers) - set(ranks))
        if missing:
            raise MissingTable(
                f"rank {missing[0]} was not recorded, which speaks for the ranks that share its "
                "layers; record the first rank of each tensor-parallel group"
            )
        return cls(
            np.array(workers, np.int64),
            within,
            rows.is_type(*_GATHERS) & ~within,
            rows.is_type(*_SCATTERS) & ~within,
        )


def _refuse_overlaps(sets: list[tuple[int, ...]]) -> None:
    """A rank that shares layers with two groups belongs to no one worker."""
    members = [rank for group in sets for rank in group]
    if len(members) > len(set(members)):
        raise MissingTable(
            "ranks reduce activations with several groups (context and tensor parallelism, say), "
            "so that no one worker can be told; log rows with htk.capture(operations=True)"
        )
