"""Process groups of a job: who talks to whom."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from htk.base.columns.types import Ints, Mask
from htk.recording.simulate.config import Config


@dataclass(frozen=True)
class Group:
    """All groups of one kind; every rank is in one of them."""

    members: tuple[tuple[int, ...], ...]
    names: tuple[str, ...]
    description: str
    nodes: int  # that a group spans
    gpus_per_node: int
    job_ranks: int  # of servers side by side, those of one

    @property
    def size(self) -> int:
        return len(self.members[0])

    @property
    def per_node(self) -> int:
        return self.size // self.nodes

    @cached_property
    def table(self) -> Ints:
        return np.array(self.members, np.int64)

    def rows_within(self, ranks: range) -> Mask:
        """Return which of the groups have all their members among `ranks`."""
        return np.asarray(((self.table >= ranks.start) & (self.table < ranks.stop)).all(axis=1))

    def within(self, ranks: range) -> Ints:
        """Return the groups among `ranks`, by places in them."""
        return self.table[self.rows_within(ranks)] - ranks.start

    def shifted(self, places: int) -> Ints:
        """Return, for each rank, the member of its group so many places on, round the end."""
        others = np.empty(self.table.size, np.int64)
        others[self.table] = np.roll(self.table, -places, axis=1)
        return others

    @cached_property
    def of_rank(self) -> tuple[int, ...]:
        """The index of the group that each rank is in."""
        numbers = np.empty(self.table.size, np.int64)
        numbers[self.table] = np.arange(len(self.members))[:, None]
        return tuple(numbers.tolist())


def process_groups(config: Config) -> dict[str, Group]:
    """Return the groups by kind: shard, replicate, tensor, data; where used, context, expert,
    expert_replicate and pipeline."""
    tensor, shards, replicas = config.tensor_parallel, config.shards, config.replicas
    stages = config.pipeline_parallel
    grid = np.arange(config.ranks).reshape(stages, replicas, shards, tensor)
    data = np.arange(config.ranks).reshape(stages, -1, tensor)
    kinds = {
        "data": data.transpose(0, 2, 1).reshape(stages * tensor, -1),
        "shard": grid.transpose(0, 1, 3, 2).reshape(-1, shards),
        "replicate": grid.transpose(0, 2, 3, 1).reshape(-1, replicas),
        "tensor": data.reshape(-1, tensor),
    }
    if config.context_parallel > 1:
        kinds["context"] = _group_neighbours(config, config.context_parallel)
    if config.expert_parallel > 1:
        kinds["expert"] = _group_neighbours(config, config.expert_parallel)
        spread = np.arange(config.ranks).reshape(stages, -1, config.expert_parallel, tensor)
        copies = config.data_parallel // config.expert_parallel
        kinds["expert_replicate"] = spread.transpose(0, 2, 3, 1).reshape(-1, copies)
    if stages > 1:
        kinds["pipeline"] = np.arange(config.ranks).reshape(stages, -1).T
    groups, number = {}, 1
    for kind, table in kinds.items():
        members = tuple(tuple(row) for row in table.tolist())
        if len(members[0]) == config.job_ranks > 1:
            names: tuple[str, ...] = ("0",) * len(members)
        else:
            apart = 0 if config.split_groups else 1
            names = tuple(str(number + apart * k) for k in range(len(members)))
            number += len(set(names))
        nodes = len({rank // config.gpus_per_node for rank in members[0]})
        description = "default_pg" if names[0] == "0" else f"mesh_{kind}"
        groups[kind] = Group(
            members, names, description, nodes, config.gpus_per_node, config.job_ranks
        )
    return groups


def _group_neighbours(config: Config, many: int) -> Ints:
    """Return groups of so many neighbours in data parallelism."""
    tensor = config.tensor_parallel
    ranks = np.arange(config.ranks).reshape(-1, many, tensor)
    return ranks.transpose(0, 2, 1).reshape(-1, many)
