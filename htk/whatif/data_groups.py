"""The data-parallel groups of a step: which ranks they join, and how these lie in the nodes.

Beside tensor or pipeline parallelism a group is a part of the ranks, and its neighbours lie as far
apart as there are ranks between them.
"""

import json
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from htk.base.columns.arrow import codes_of
from htk.base.columns.groups import Groups
from htk.base.columns.types import Mask, take_or
from htk.physics.network import Network
from htk.quantities.graph.nodes import collective_rows
from htk.whatif.network_tiers import read_network
from htk.whatif.parallelism import mark_replicating, shared_tokens
from htk.whatif.step_model import StepModel
from htk.whatif.transfers import gpus_of_a_node


class Position(NamedTuple):
    """The group of a rank, by a name of its own, and the place in it."""

    group: int
    place: int


def data_network(model: StepModel) -> Network:
    """Return the network as data-parallel groups cross it."""
    stride = model.once("stride of data groups", lambda: _find_stride(model))
    return replace(read_network(model), stride=stride)


def data_positions(model: StepModel) -> dict[int, Position]:
    """Return for each rank its data-parallel group, and its place in it.

    Ranks of a group follow each other as it lists them; where it does not, as they were recorded.
    """
    return model.once("places in data groups", lambda: _data_positions(model))


def _data_positions(model: StepModel) -> dict[int, Position]:
    shards = _list_groups(model, _of_shards(model))
    copies = _list_groups(model, mark_replicating(model))
    positions = {}
    for rank in model.graph.ranks:
        near = shards.get(rank, (rank,))
        far = copies.get(rank, (rank,))
        if len(near) == len(far) == 1 or rank not in near or rank not in far:
            return _by_order(model)
        earlier = far.index(rank) * len(near)
        positions[rank] = Position(near[0] + far[0] - rank, earlier + near.index(rank))
    return positions


def _find_stride(model: StepModel) -> int:
    """Return how far apart neighbours of a data-parallel group are, in ranks."""
    for chosen in (_of_shards(model), mark_replicating(model)):
        groups = _list_groups(model, chosen).values()
        apart = [later - earlier for ranks in groups for earlier, later in pairwise(ranks)]
        if apart:
            return max(min(apart), 1)
        size = int(model.facts.group_size[chosen].max(initial=0))
        here = int(model.facts.per_node[chosen].max(initial=0))
        if 0 < here < size:
            return max(gpus_of_a_node(model) // here, 1)
    return 1


def _of_shards(model: StepModel) -> Mask:
    """Return the collectives of parameters' shards."""
    return model.is_collective("all_gather", "reduce_scatter") & ~shared_tokens(model)


def _list_groups(model: StepModel, chosen: Mask) -> dict[int, tuple[int, ...]]:
    """Return for each rank the group of its chosen collectives, where it is listed and no edit has
    given these another."""
    facts = model.facts
    rows = np.flatnonzero(chosen & (facts.rows >= 0) & (facts.group_size > 1))
    comm = facts.tables["collectives"]
    if not comm.num_rows:
        return {}
    codes, listed = codes_of(comm["group_ranks"])
    code = take_or(codes, collective_rows(facts.tables, facts.rows[rows]))
    members = [tuple(sorted(json.loads(text or "[]"))) for text in listed.to_pylist()]
    ranks = model.graph.activities.rank[rows]
    alike = Groups.by_keys([ranks, code, facts.group_size[rows]])
    groups: dict[int, tuple[int, ...]] = {}
    for rank, of_rank, size in alike.keys.tolist():  # a few for each rank
        joined = members[of_rank] if of_rank >= 0 else ()
        if len(joined) == size and size > len(groups.get(rank, ())):
            groups[rank] = joined
    return groups


def _by_order(model: StepModel) -> dict[int, Position]:
    """Return positions by the collectives that ranks were recorded in together; where each was
    recorded alone, by their numbers. Those of one replica are in groups of their own: all that they
    share with others was put in by edits."""
    chosen = np.flatnonzero((_of_shards(model) | mark_replicating(model)) & (model.run_edge >= 0))
    tables = model.facts.tables
    is_any_recorded = tables["collectives"].num_rows > 0
    if is_any_recorded and (collective_rows(tables, model.facts.rows[chosen]) < 0).all():
        return {rank: Position(rank, 0) for rank in model.graph.ranks}
    size = model.facts.group_size[chosen]
    ranks = model.graph.activities.rank[chosen]
    nodes = model.graph.src[model.run_edge[chosen]]
    counts: dict[int, int] = {}
    positions = {}
    for rank in model.graph.ranks:
        own = ranks == rank
        if not own.any():
            continue
        group = int(nodes[own][np.argmax(size[own])])
        positions[rank] = Position(group, counts.get(group, 0))
        counts[group] = counts.get(group, 0) + 1
    if max(counts.values(), default=1) == 1:
        return {rank: Position(0, rank) for rank in model.graph.ranks}
    return positions
