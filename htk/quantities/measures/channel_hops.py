"""Hops between nodes that each group's collectives take, as NCCL's log tells of rings and trees.

A communicator of the log is a group of the trace where both have as many ranks, on the same hosts
and devices in the same order, and no other group has; or where calls of both were paired. Without
the log of a communicator its hops are not known.
"""

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import codes_of, mark_valid, read_booleans, read_numbers
from htk.base.columns.types import NONE
from htk.base.mappings import Facts, Fields
from htk.quantities.derived.collective_rows import CollectiveRows
from htk.quantities.measures.collective_calls import CollectiveCalls

RING = "RING"
TREE = "TREE"
_ADAPTER = re.compile(r"NET/([A-Za-z]{1,16}/\d{1,4})\b")
Comm = tuple[int | None, str | None]  # hash; else the split that it comes from
_Place = tuple[str | None, int | None]  # host and device of a rank


@dataclass(frozen=True)
class NodeHop:
    """A hop from one node to another, in global ranks; adapters by name, where logged."""

    sender: int
    receiver: int
    send_adapter: str | None
    receive_adapter: str | None


Hops = frozenset[NodeHop]


def hops_between_nodes(
    calls: CollectiveCalls,
    members: list[tuple[int, ...]],
    comm_hashes: Mapping[tuple[int, ...], int],
    transports: pa.Table,
    inits: pa.Table,
) -> list[Hops | None]:
    """Return the hops of each group between nodes; None: not logged.

    `comm_hashes` is what the calls of a group were paired with, where they were.
    """
    comms = _read_communicators(inits)
    if not comms or not transports.num_rows:
        return [None] * len(members)
    logged = dict(_logged_hops(transports))
    position = _read_places(calls)
    trees = _tree_users(calls)
    hosts = calls.hosts.of_rank
    hops: list[Hops | None] = []
    for ranks in members:  # a few groups
        algorithm = TREE if ranks in trees else RING
        comm = _find_communicator(ranks, members, comms, logged, position, comm_hashes.get(ranks))
        order = logged.get(comm, {}).get(algorithm, set()) if comm else set()
        is_complete = {a for a, _ in order} | {b for _, b in order} == set(range(len(ranks)))
        if comm is None or not is_complete:
            hops.append(None)
            continue
        hops.append(_list_node_hops(ranks, order, logged[comm]["adapters"], hosts))
    return hops


def _list_node_hops(
    ranks: tuple[int, ...],
    order: set[tuple[int, int]],
    adapters: Mapping[tuple[int, int, int], str],
    hosts: Mapping[int, str],
) -> Hops:
    return frozenset(
        NodeHop(ranks[a], ranks[b], adapters.get((a, b, a)), adapters.get((a, b, b)))
        for a, b in order
        if hosts.get(ranks[a]) != hosts.get(ranks[b])
    )


def paired_communicators(collectives: pa.Table, facts: pa.Table) -> dict[tuple[int, ...], int]:
    """Return the communicator that the calls of each group were paired with: one alone, and no
    other group's as well."""
    codes, listed = CollectiveRows(collectives).group_ranks
    hashed = facts["comm_hash"]
    rows = np.flatnonzero(
        mark_valid(hashed) & ~read_booleans(facts["comm_guessed"]) & (codes != NONE)
    )
    values = read_numbers(hashed, 0)
    seen: dict[int, set[int]] = defaultdict(set)
    for code, value in set(zip(codes[rows].tolist(), values[rows].tolist(), strict=True)):
        seen[code].add(value)
    return {listed[code]: hashes.pop() for code, hashes in seen.items() if len(hashes) == 1}


def _read_communicators(inits: pa.Table) -> dict[Comm, dict[int, _Place]]:
    """Return host and device of each rank of each communicator that was logged whole."""
    comms: dict[Comm, dict[int, _Place]] = defaultdict(dict)
    size: dict[Comm, int] = {}
    columns = ("comm_hash", "group", "comm_rank", "group_size", "host", "device")
    for row in inits.select(columns).to_pylist():  # a few of each rank
        if row["comm_rank"] is None or not row["group_size"]:
            continue
        comm = row["comm_hash"], row["group"]
        comms[comm][row["comm_rank"]] = row["host"], row["device"]
        size[comm] = row["group_size"]
    return {comm: ranks for comm, ranks in comms.items() if len(ranks) == size[comm]}


def _logged_hops(transports: pa.Table) -> dict[Comm, Fields]:
    """Return the hops of each communicator's rings and trees in its own ranks, over all channels,
    and the adapter of each end of a connection by (from, to, end)."""
    logged: dict[Comm, Fields] = defaultdict(lambda: {"adapters": {}})
    columns = (
        "comm_hash", "group", "comm_rank", "algorithm", "from_rank", "to_rank", "transport",
    )  # fmt: skip
    for row in transports.select(columns).to_pylist():
        comm = logged[row["comm_hash"], row["group"]]
        sender = row["from_rank"]
        receiver = row["to_rank"]
        if None in (sender, receiver) or min(sender, receiver) < 0:
            continue
        if row["algorithm"] is not None:
            comm.setdefault(row["algorithm"], set()).add((sender, receiver))
        elif match := _ADAPTER.search(row["transport"] or ""):
            comm["adapters"].setdefault((sender, receiver, row["comm_rank"]), match[1])
    return logged


def _read_places(calls: CollectiveCalls) -> dict[int, _Place]:
    """Return the recorded host and device of each rank."""
    hosts = {} if calls.hosts.inferred else calls.hosts.of_rank
    rank = calls.rows.rank
    device = read_numbers(calls.table["device"], NONE)
    chosen = np.flatnonzero((rank >= 0) & (device >= 0))
    pairs = {(int(rank[k]), int(device[k])) for k in chosen}
    return {r: (hosts.get(r), d) for r, d in sorted(pairs, reverse=True)}


def _tree_users(calls: CollectiveCalls) -> set[tuple[int, ...]]:
    """Return the groups whose calls of known algorithm are mostly trees."""
    codes, listed = calls.rows.group_ranks
    algorithm, names = codes_of(calls.table["algorithm"])
    trees = np.isin(algorithm, [k for k, name in enumerate(names.to_pylist()) if name == TREE])
    users = set()
    for code in np.unique(codes[trees & (codes != NONE)]).tolist():
        of_group = (codes == code) & (algorithm >= 0)
        if 2 * int((of_group & trees).sum()) > int(of_group.sum()):
            users.add(listed[code])
    return users


def _find_communicator(
    ranks: tuple[int, ...],
    members: list[tuple[int, ...]],
    comms: Mapping[Comm, Mapping[int, _Place]],
    logged: Mapping[Comm, Facts],
    position: Mapping[int, _Place],
    paired: int | None,
) -> Comm | None:
    """Return the communicator of a group, where one alone can be it, or all that can run alike."""
    for comm, places in comms.items():
        if paired is not None and comm[0] == paired and len(places) == len(ranks):
            return comm
    own = [position.get(rank, (None, None)) for rank in ranks]
    fitting = [c for c, places in comms.items() if _is_logged_whole(own, places)]
    rivals = {m for m in members if _is_alike([position.get(r, (None, None)) for r in m], own)}
    if not fitting or len(rivals) != 1:
        return None
    first, *others = (logged.get(comm) for comm in fitting)
    return fitting[0] if all(other == first for other in others) else None


def _is_logged_whole(own: list[_Place], logged: Mapping[int, _Place]) -> bool:
    return len(own) == len(logged) and _is_alike(own, [logged[k] for k in sorted(logged)])


def _is_alike(some: list[_Place], others: list[_Place]) -> bool:
    """Return whether ranks may share hosts and devices: the unknown contradicts nothing."""
    return len(some) == len(others) and all(
        None in (a, b) or a == b
        for left, right in zip(some, others, strict=True)
        for a, b in zip(left, right, strict=True)
    )
