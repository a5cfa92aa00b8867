"""Which ranks of a profiled job are workers: those that share each layer count as one.

Groups whose ranks reduce activations within the forward pass share layers (tensor and sequence
parallelism). Of such a group the lowest rank speaks for all: they run in step. All other groups
have to hold one rank of each worker: parameters are gathered and gradients reduced over them. Ranks
that send each other messages are stages of pipelines.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from htk.answers.export.pipelines import MESSAGES, Messages, Pipelines
from htk.answers.export.reductions import FEW_ELEMENTS
from htk.base.columns.arrow import read_numbers
from htk.base.columns.types import NONE, Ints, Mask
from htk.base.errors import MissingTable
from htk.base.schema.operation_types import CODES
from htk.quantities.derived.collective_rows import CollectiveRows

_IN_LAYERS = ("all_reduce", "reduce_scatter")
_REDUCTION = CODES["grads_all_reduce"]
_REDUCING = ("all_reduce", "reduce", "unknown")  # what may reduce gradients
_SHARDING = {"all_gather": "params_all_gather", "reduce_scatter": "grads_reduce_scatter"}


@dataclass(frozen=True)
class WorkerGroups:
    """The workers of a job, and what each collective is to them."""

    workers: Ints  # the rank that speaks for each, in order
    replica: Ints  # of each worker
    stage: Ints
    within: Mask  # of each collective: it is part of a layer's computation
    type: Ints  # … its type of operation; NONE: it is none
    pipelines: Pipelines | None

    @classmethod
    def from_collectives(
        cls,
        collectives: pa.Table,
        in_forward: Mask,
        after_backward: Mask,
        step: Ints,
        ranks: list[int],
    ) -> "WorkerGroups":
        """Tell them; `in_forward` says which collectives were launched in the forward pass,
        `after_backward` behind computations of a backward, and `step` in which step (NONE: in
        none)."""
        rows = CollectiveRows(collectives)
        codes, listed = rows.group_ranks
        elements = read_numbers(collectives["in_elements"], NONE)
        few = (elements >= 0) & (elements <= FEW_ELEMENTS)  # a loss is no activation
        sharing = rows.is_type(*_IN_LAYERS) & in_forward & (codes >= 0) & ~few
        size = np.array([*(len(members) for members in listed), 0])[codes]
        sharing &= (size > 1) & (size < len(ranks))
        sets = sorted({listed[code] for code in np.unique(codes[sharing]).tolist()})
        _refuse_overlaps(sets)
        lowest = {rank: min(members) for members in sets for rank in members}
        workers = np.array(sorted({lowest.get(rank, rank) for rank in ranks}), np.int64)
        within = np.isin(codes, [k for k, members in enumerate(listed) if members in sets])
        pipelines = None
        if rows.is_type(*MESSAGES).any():
            _refuse_missing(workers, ranks)
            messages = Messages.from_rows(rows, step, after_backward, lowest, ranks)
            pipelines = Pipelines.from_messages(messages, workers)
            replica, stage = pipelines.replica_and_stage(workers)
            type_ = pipelines.types(rows, messages, within | (few & in_forward), ranks)
        else:
            _refuse_other_parallelism(rows, within, len(workers), len(ranks))
            _refuse_missing(workers, ranks)
            replica = np.arange(len(workers))
            stage = np.zeros(len(workers), np.int64)
            type_ = np.where(rows.is_type(*_REDUCING), _REDUCTION, NONE)
            is_sharded = bool((rows.is_type("reduce_scatter") & ~within).any())
            for name, operation in _SHARDING.items():
                type_[rows.is_type(name) & ~within] = CODES[operation] if is_sharded else NONE
        return cls(workers, replica, stage, within, type_, pipelines)


def _refuse_missing(workers: Ints, recorded: list[int]) -> None:
    missing = sorted(set(workers.tolist()) - set(recorded))
    if missing:
        raise MissingTable(
            f"rank {missing[0]} was not recorded, which speaks for the ranks that share its "
            "layers; record the first rank of each tensor-parallel group"
        )


def _refuse_other_parallelism(
    rows: CollectiveRows, within: Mask, workers: int, recorded: int
) -> None:
    """Say which collective is not of this kind of job, or that ranks are missing."""
    beyond = (rows.group_size > recorded) & ~within
    if beyond.any():
        raise MissingTable(
            f"collectives have {int(rows.group_size[beyond].max())} ranks and {recorded} recorded "
            "a profile; rows of a job need the profiles of all ranks"
        )
    other = rows.is_type("all_to_all") | ((rows.group_size > 1) & (rows.group_size != workers))
    if (other & ~within).any():
        row = int(np.argmax(other & ~within))
        raise MissingTable(
            "this job has "
            f"{rows.types[rows.type[row]]}{_describe_members(int(rows.group_size[row]), workers)}"
            "; rows can be cut from profiles of data parallelism, sharded or not, tensor "
            "parallelism and pipelines. For experts and replicas of shards log them with "
            "htk.capture(operations=True)"
        )


def _describe_members(size: int, workers: int) -> str:
    return f" among {size} of {workers} workers" if size > 0 else ""


def _refuse_overlaps(sets: list[tuple[int, ...]]) -> None:
    """A rank that shares layers with two groups belongs to no one worker."""
    members = [rank for group in sets for rank in group]
    if len(members) > len(set(members)):
        raise MissingTable(
            "ranks reduce activations with several groups (context and tensor parallelism, say), "
            "so that no one worker can be told; log rows with htk.capture(operations=True)"
        )
