"""Graphs of some ranks cut down to what leads from one collective to the next.

When a collective's last member arrives depends on when earlier ones of its ranks began, and on how
long its ranks need from there. What else a graph holds begins when it does whatever collectives do,
or leads to none. Nodes between collectives that wait for one node alone come a fixed time after it;
those that wait for several are left. So the graphs of all ranks become a small one, of as many
nodes as there are collectives on each rank, give or take a few.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from htk.base.columns.groups import Groups
from htk.base.columns.order import order_by
from htk.base.columns.types import Ints, Mask
from htk.quantities.graph.build import EARLIEST, Graph
from htk.quantities.graph.part import GraphPart, Weights
from htk.quantities.graph.pooled import Told
from htk.quantities.graph.replay import NEVER, raise_to_longest, replay_one_step

_ACTIVITY, _MEETING, _CALL = range(3)  # nodes of one time come in this order


@dataclass(frozen=True)
class Ways:
    """How long a part's ranks need from one collective to the next."""

    time: Ints  # of each node between them, as observed; in an order in which every edge leads on
    sort: Ints  # of each, of those above
    match: Ints  # the collectives, which are numbered as nodes behind these
    begin: Ints  # of all nodes: when they come if no collective takes any time
    src: Ints
    dst: Ints
    length: Ints


def ways_of(part: GraphPart) -> list[Ways]:
    """Return the ways of a part, for each of its weights."""
    return [_find_ways(part.graph, part.match, weights) for weights in part.weights]


def _find_ways(graph: Graph, match: Ints, weights: Weights) -> Ways:
    meets = np.zeros(len(graph.time), bool)
    meets[graph.joins] = True
    begin = _without_meeting(graph, meets, weights)
    src, dst, length = _find_ways_between(graph, meets, weights.edges)
    is_left = meets.copy()
    is_left[src] = is_left[dst] = True
    between = np.flatnonzero(is_left & ~meets)
    number = np.empty(len(graph.time), np.int64)
    number[between] = np.arange(len(between))
    number[graph.joins] = np.arange(len(match)) + len(between)
    sort = np.full(len(graph.time), _ACTIVITY)
    sort[graph.call_start] = sort[graph.call_end] = _CALL
    begins = begin[np.append(between, graph.joins)]
    ways = number[src], number[dst], length
    return Ways(graph.time[between], sort[between], match, begins, *ways)


def _without_meeting(graph: Graph, meets: Mask, weights: Weights) -> Ints:
    """Return when nodes come, and ranks arrive at collectives, if none of these takes any time."""
    apart = np.where(meets[graph.src], NEVER, weights.edges)
    return replay_one_step(graph, apart, weights.wraps, weights.seen)


def _find_ways_between(graph: Graph, meets: Mask, weight: Ints) -> tuple[Ints, Ints, Ints]:
    """Return the ways between collectives, past nodes that wait for one node alone."""
    src = graph.src
    dst = graph.dst
    from_one = np.where(meets, 0, NEVER)
    to_one = np.where(meets, 0, NEVER)
    nothing = np.zeros(len(src), np.int64)
    raise_to_longest(from_one, src, dst, nothing)
    back = order_by(-src)
    raise_to_longest(to_one, dst[back], src[back], nothing)
    alive = (from_one[src] == 0) & (to_one[dst] == 0)
    src = src[alive]
    dst = dst[alive]
    length = weight[alive]
    while True:
        into = np.bincount(dst, minlength=len(meets))
        root = np.arange(len(meets))
        behind = np.zeros(len(meets), np.int64)
        alone = (into[dst] == 1) & ~meets[dst]
        if not alone.any():
            return src, dst, length
        root[dst[alone]] = src[alone]
        behind[dst[alone]] = length[alone]
        while not np.array_equal(further := root[root], root):
            root, behind = further, behind + behind[root]
        tail = root[src[~alone]]
        length = (behind[src] + length)[~alone]
        ways = Groups.by_keys([tail, dst[~alone]])  # of several ways between two the longest
        src, dst = ways.keys.T
        length = ways.max(length)


def begins_of_collectives(parts: Sequence[Ways], meetings: Told) -> Ints:
    """Return when the last member of each collective arrives, replayed over all ranks; in the order
    of `meetings.match`."""
    many = len(meetings.match)
    first = many + np.cumsum([0, *(len(part.time) for part in parts)])
    nodes = [
        np.append(np.arange(len(part.time)) + low, np.searchsorted(meetings.match, part.match))
        for part, low in zip(parts, first.tolist(), strict=False)
    ]
    time = np.concatenate([meetings.last, *(part.time for part in parts)])
    sort = np.concatenate([np.full(many, _MEETING), *(part.sort for part in parts)])
    position = np.empty(len(time), np.int64)
    position[order_by(time, sort)] = np.arange(len(time))  # in which every way leads on
    came = np.full(len(time), EARLIEST, np.int64)
    for part, own in zip(parts, nodes, strict=True):
        np.maximum.at(came, position[own], part.begin)
    ways = [
        (position[own[part.src]], position[own[part.dst]], part.length)
        for part, own in zip(parts, nodes, strict=True)
    ]
    src, dst, length = (np.concatenate(column) for column in zip(*ways, strict=True))
    rows = order_by(dst)
    raise_to_longest(came, src[rows], dst[rows], length[rows])
    return came[position[:many]]
