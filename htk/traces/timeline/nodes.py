"""Many ranks by their nodes: a row for each, as busy as its ranks are in the mean."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from htk.base.columns.groups import Groups
from htk.base.columns.order import order_by
from htk.base.columns.types import Floats, Ints
from htk.quantities.measures.hosts import Hosts
from htk.traces.trace.trace import Trace

SECTION = "node"
MANY = 64  # ranks; up to as many are rows of their own
_TOGETHER = 8  # ranks of a row where nodes are not known


@dataclass(frozen=True)
class Node:
    name: str
    ranks: list[int]


def nodes_of(trace: Trace) -> list[Node]:
    """Return the nodes with their recorded ranks; none of a recording of few ranks."""
    if len(trace.ranks) <= MANY:
        return []
    host = Hosts.from_tables(trace.tables["ranks"], trace.tables["collectives"]).of_rank
    if len({host.get(rank, rank) for rank in trace.ranks}) > len(trace.ranks) // 2:
        host = {}
    ranks_of: dict[str, list[int]] = {}
    for rank in trace.ranks:
        first = rank // _TOGETHER * _TOGETHER
        name = host.get(rank) or f"ranks {first} to {first + _TOGETHER - 1}"
        ranks_of.setdefault(name, []).append(rank)
    return [Node(name, ranks) for name, ranks in ranks_of.items()]


@dataclass(frozen=True)
class MeanBusy:
    """The mean time that ranks of a node spent on one kind of work, up to each moment."""

    time: Ints
    total: Floats

    def between(self, edges: Ints) -> Floats:
        """Return the busy time between neighbouring edges, in ns."""
        return np.diff(np.interp(edges, self.time, self.total))


def mean_busy(
    owner: Ints, kind: Ints, start: Ints, end: Ints, ranks: Ints
) -> Iterator[tuple[int, int, MeanBusy]]:
    """Yield node, kind and how busy it is, of spans whose node and kind are told; `ranks` says how
    many each node has."""
    work = Groups.by_keys([owner, kind])  # three a node
    ends_of = np.concatenate([work.group_ids, work.group_ids])
    time = np.concatenate([start, end])
    order = order_by(ends_of, time)
    time = time[order]
    # As many spans end as begin, so that one sum runs through all nodes and kinds.
    level = np.cumsum(np.repeat([1, -1], len(start))[order])
    passed = np.append(0.0, np.cumsum(level[:-1] * np.diff(time)))[: len(time)]
    first = np.append(0, np.cumsum(2 * work.count)).tolist()
    for (node, number), a, b in zip(work.keys.tolist(), first, first[1:], strict=False):
        yield node, number, MeanBusy(time[a:b], (passed[a:b] - passed[a]) / ranks[node])
