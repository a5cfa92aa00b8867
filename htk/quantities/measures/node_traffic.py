"""Traffic of each collective: how much stays within nodes, and how much passes between.

Bytes are those that a rank sends, mean over its group. A ring enters and leaves each node once, so
that n ranks on m nodes have m of n hops between nodes; a tree, and a chain from or to a root, has
m − 1 of n − 1. All-to-all and messages go to ranks that are named. What switches reduce (NVLS,
CollNet) has no such hops: unknown across nodes.
"""

import numpy as np

from htk.base.columns.arrow import codes_of, read_numbers
from htk.base.columns.groups import Groups
from htk.base.columns.types import NONE, Floats, Ints
from htk.quantities.measures.collective_calls import CollectiveCalls

_RINGS = ("all_reduce", "all_gather", "reduce_scatter")
_CHAINS = ("broadcast", "reduce")
_SPREAD = ("all_to_all", "gather", "scatter")
_MESSAGES = ("send", "recv")
_IN_SWITCHES = ("NVLS", "NVLS_TREE", "COLLNET_DIRECT", "COLLNET_CHAIN")


def node_traffic(calls: CollectiveCalls) -> tuple[Ints, Ints]:
    """Return the bytes that each call sends within nodes, and between nodes (NONE: unknown)."""
    size, factor = calls.traffic
    between, sending = _share_between_nodes(calls)
    total = np.where(calls.rows.is_type("all_to_all"), _sent_to_all(calls), size * factor * sending)
    has = ~np.isnan(total * between)
    sent = np.rint(np.nan_to_num(total)).astype(np.int64)
    across = np.rint(np.nan_to_num(total * between)).astype(np.int64)
    return np.where(has, sent - across, NONE), np.where(has, across, NONE)


def _sent_to_all(calls: CollectiveCalls) -> Floats:
    """Return the bytes that each call of an all-to-all sends to others: what it receives may be
    more (NaN: unknown)."""
    into = read_numbers(calls.table["in_bytes"], NONE).astype(np.float64)
    even = into * (calls.size - 1) / np.maximum(calls.size, 1)
    sent = np.where(calls.kept != NONE, into - calls.kept, even)
    return np.where((into >= 0) & (calls.size > 0), sent, np.nan)


def _share_between_nodes(calls: CollectiveCalls) -> tuple[Floats, Floats]:
    """Return the share of each call's bytes that passes between nodes, and what of those that bus
    bandwidth counts a rank sends (NaN: unknown)."""
    rows = calls.rows
    group, _ = rows.group_ranks
    algorithm, names = codes_of(calls.table["algorithm"])
    listed = names.to_pylist()
    own = np.where(rows.is_type(*_SPREAD, *_MESSAGES), rows.rank, NONE)
    peer = np.where(rows.is_type(*_MESSAGES), rows.peer, rows.root)
    alike = Groups.by_keys([rows.type, group, algorithm.astype(np.int64), own, peer])
    shares = np.full((len(alike), 2), np.nan)
    for k, first in enumerate(alike.first_row.tolist()):  # a few kinds of calls of each rank
        code = int(algorithm[first])
        shares[k] = _shares_of_call(calls, first, listed[code] if code >= 0 else None)
    between, sending = shares[alike.group_ids].T
    between = between.copy()
    for first, like in calls.with_splits():
        between[like] = _share_of_splits(calls, first)
    return between, sending


_UNKNOWN = (np.nan, np.nan)


def _shares_of_call(calls: CollectiveCalls, row: int, algorithm: str | None) -> tuple[float, float]:
    kind = calls.rows.types[calls.rows.type[row]] if calls.rows.type[row] >= 0 else ""
    rank = int(calls.rows.rank[row])
    hosts = calls.hosts.of_rank
    if kind in _MESSAGES:
        ends = {hosts.get(rank), hosts.get(int(calls.rows.peer[row]))}
        return _UNKNOWN if None in ends else (float(len(ends) - 1), float(kind == "send"))
    seen = [hosts.get(r) for r in calls.members(row) or ()]
    if len(seen) < 2 or None in seen:
        return _UNKNOWN
    nodes = len(set(seen))
    count = len(seen)
    if kind in _CHAINS:
        return (nodes - 1) / (count - 1), (count - 1) / count
    if kind in _RINGS and algorithm in _IN_SWITCHES:
        return (0.0, 1.0) if nodes == 1 else _UNKNOWN
    if kind == "all_reduce" and algorithm == "TREE":
        return (nodes - 1) / (count - 1), 1.0
    if kind in _RINGS:
        return 0.0 if nodes == 1 else nodes / count, 1.0
    if kind == "all_to_all" and rank in hosts:
        return (count - seen.count(hosts[rank])) / (count - 1), 1.0
    root = int(calls.rows.root[row])
    if kind in _SPREAD and 0 <= root < count:
        return (count - seen.count(seen[root])) / (count - 1), 1 / count
    return _UNKNOWN


def _share_of_splits(calls: CollectiveCalls, row: int) -> float:
    """Return the share that passes between nodes of what a rank sends to others (NaN: unknown)."""
    sent = calls.sent(row)
    ranks = calls.members(row)
    hosts = calls.hosts.of_rank
    rank = int(calls.rows.rank[row])
    if sent is None or ranks is None or len(sent) != len(ranks) or rank not in ranks:
        return np.nan
    away = [n for n, r in zip(sent, ranks, strict=True) if r != rank]
    if None in {hosts.get(r) for r in ranks} or not sum(away):
        return np.nan
    far = sum(n for n, r in zip(sent, ranks, strict=True) if hosts[r] != hosts[rank])
    return far / sum(away)
