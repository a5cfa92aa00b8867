"""How many units ahead FSDP gathers parameters.

At depth d the gather of a unit may start when the dth unit before it starts to compute; at 0 when
the one before it is done. What held it in the recording (events of the compute stream, its own
launch) no longer does: the host issues it in time.
"""

import numpy as np
from numpy.typing import NDArray

from htk.base.columns.order import order_by
from htk.base.columns.types import Ints
from htk.base.errors import UsageError
from htk.whatif.fsdp_units import all_waited_for, compute_lane
from htk.whatif.step_model import StepModel
from htk.whatif.synthetic_ops import forget_removed, link_nodes

NAME = "prefetch_depth"
HELP = "Units that FSDP gathers ahead of the one that computes: 0, 1, 2."

_SIGMA = 0.01  # of the step
_SIGMA_OF_NONE = 0.06  # in the backward pass gathers then also queue behind reductions


def read_depth(value: str) -> int:
    """Return the units that are gathered ahead."""
    if not value.isdigit():
        raise UsageError(f"{NAME} {value!r}: a number of units was expected")
    return int(value)


def apply(model: StepModel, value: str) -> StepModel:
    depth = read_depth(value)
    tails: list[int] = []
    heads: list[int] = []
    graph = model.graph
    freed = np.zeros(len(graph.src), bool)
    for rank in graph.ranks:
        lane = compute_lane(model, rank)
        if not len(lane):
            continue  # nothing computes there that could wait for a gather
        position = {int(a): k for k, a in enumerate(lane.tolist())}
        gathers, users = _find_users(model, rank, lane)
        freed |= _mark_holding(model, gathers[1:], lane)
        turned, first, second = _turn_edges(model, lane, gathers, users, depth)
        freed |= turned
        tails += graph.end[first].tolist()
        heads += graph.start[second].tolist()
        for k in range(1, len(gathers)):  # some tens of units
            gather = gathers[k]
            user = users[max(k - depth, 0)]
            before = lane[position[user] - 1] if position[user] else -1
            if before >= 0 and k > depth:
                # What frees the buffer: at 0 the compute before, else the copy out of it.
                copied = depth > 0 and _copies_out(model, user)
                tails.append(int(graph.end[user if copied else before]))
                heads.append(int(graph.start[gather]))
            call = int(graph.activities.call[user])
            if call >= 0:
                tails.append(int(graph.call_start[call]))
                heads.append(int(graph.start[gather]))
    if not freed.any():
        raise UsageError(
            f"{NAME}: no all-gathers that compute waits for were recorded; record a step of FSDP "
            "(--sharding full_shard alone tells what it would take, gathered as FSDP does)"
        )
    changed = forget_removed(model.without(freed))
    return (
        link_nodes(changed, np.array(tails, np.int64), np.array(heads, np.int64))
        .with_uncertainty("structure", _SIGMA if depth else _SIGMA_OF_NONE)
        .with_assumption(
            f"a gather starts when the {depth}th unit before its own does, and as many are held"
        )
    )


def _turn_edges(
    model: StepModel, lane: Ints, gathers: list[int], users: list[int], depth: int
) -> tuple[NDArray[np.bool_], list[int], list[int]]:
    """Return the edges between gathers and reductions that no longer hold, and pairs of which the
    second now follows the first."""
    graph = model.graph
    acts = graph.activities
    reduces = np.flatnonzero(
        model.is_collective("reduce_scatter") & (acts.rank == acts.rank[lane[0]])
    )
    reduces = reduces[order_by(acts.start[reduces])]
    position = {activity: k for k, activity in enumerate(lane.tolist())}
    ready = [position.get(a, -1) for a in all_waited_for(model, reduces.tolist(), lane)]
    freed = np.zeros(len(graph.src), bool)
    first: list[int] = []
    second: list[int] = []
    for k in range(1, len(gathers)):
        begin = position[users[k - 1]]
        end = position[users[k]]
        between = [n for n, position_ready in enumerate(ready) if begin <= position_ready < end]
        if not between:  # of the forward pass, or the first of the backward
            continue
        gather = gathers[k]
        reduce = int(reduces[between[-1]])
        ends = ((reduce, gather), (gather, reduce))
        before, after = ends if depth else reversed(ends)
        freed |= (graph.src == graph.end[before[0]]) & (graph.dst == graph.start[before[1]])
        first.append(after[0])
        second.append(after[1])
        if depth and between[-1]:
            first.append(int(reduces[between[-1] - 1]))
            second.append(gather)
    return freed, first, second


def _copies_out(model: StepModel, activity: int) -> bool:
    return "split_with_sizes_copy" in (model.facts.op[activity] or "")


def _find_users(model: StepModel, rank: int, lane: Ints) -> tuple[list[int], list[int]]:
    """Gathers of a rank in order, and the first activity of the compute stream to wait for each."""
    graph = model.graph
    acts = graph.activities
    all_gathers = np.flatnonzero(model.is_collective("all_gather") & (acts.rank == rank))
    all_gathers = all_gathers[order_by(acts.start[all_gathers])]
    events = graph.edges("event")
    heads = dict(zip(graph.start[lane].tolist(), lane.tolist(), strict=True))
    gathers = []
    users = []
    for gather in all_gathers.tolist():
        waiting = graph.dst[events & (graph.src == graph.end[gather])].tolist()
        waiters = [heads[node] for node in waiting if node in heads]
        if waiters:
            gathers.append(gather)
            users.append(min(waiters, key=lambda a: int(acts.start[a])))
    return gathers, users


def _mark_holding(model: StepModel, gathers: list[int], lane: Ints) -> NDArray[np.bool_]:
    """Edges by which host and compute stream hold gathers, or the copies into their buffers."""
    graph = model.graph
    heads = np.zeros(len(graph.time), bool)
    heads[graph.start[gathers]] = True
    events = graph.edges("event")
    feeding = np.zeros(len(graph.time), bool)
    feeding[graph.src[heads[graph.dst] & events]] = True
    copies = feeding[graph.end] & ~model.is_comm
    copies[lane] = False
    heads[graph.start[copies]] = True
    computed = np.zeros(len(graph.time), bool)
    computed[graph.end[lane]] = True
    by_compute = events & computed[graph.src]
    return np.asarray(heads[graph.dst] & (graph.edges("launch") | by_compute))
