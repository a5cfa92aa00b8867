"""Collectives that all their members recorded, told apart by the ranks that took part."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from htk.base.columns.arrow import codes_of, numbers, read_keys
from htk.base.columns.groups import Groups
from htk.base.columns.order import ordered
from htk.base.columns.types import NONE, Floats, Ints, Mask
from htk.quantities.measures.collective_calls import CollectiveCalls

TRANSFERS = (
    "all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "all_to_all", "gather",
    "scatter", "send", "recv",
)  # fmt: skip


@dataclass(frozen=True)
class CompleteCollectives:
    """Collectives that all their members recorded, and what each takes."""

    calls: CollectiveCalls
    row: Ints  # one of its rows in `calls`
    group: Ints
    members: list[tuple[int, ...]]  # global ranks of each group, of messages the sender first
    moved: Floats  # bytes × bus factor
    time_ns: Ints  # from the last start to the last end

    @classmethod
    def of(cls, calls: CollectiveCalls) -> "CompleteCollectives":
        """Return a row of each; messages are told apart by who sends them to whom."""
        size, factor = calls.moved
        useful = (calls.match != NONE) & calls.waits.has_wait & ~calls.lacking
        useful &= (calls.waits.span > 0) & (np.nan_to_num(size * factor) > 0)
        chosen = np.flatnonzero(useful & calls.rows.is_type(*TRANSFERS))
        chosen = chosen[_tells_members(calls, chosen)]
        received = calls.rows.is_type("recv")[chosen]
        chosen = chosen[ordered(received)]  # a message's row is its sender's
        by_match = Groups.by_keys(calls.match[chosen])
        row = chosen[by_match.first_row]
        rank = calls.rows.rank[chosen]
        sends = calls.rows.is_type("send")[row]
        message = sends | calls.rows.is_type("recv")[row]
        own = calls.rows.rank[row]
        peer = calls.rows.peer[row]
        sender = np.where(message, np.where(sends, own, peer), NONE)
        receiver = np.where(message, np.where(sends, peer, own), NONE)
        name = np.where(message, NONE, calls.rows.group[row])
        groups = Groups.by_keys([name, sender, receiver])
        order = ordered(by_match.group_ids)
        ends = np.cumsum(by_match.count)
        members = []
        for k in groups.first_row.tolist():  # a few groups
            ranks = sorted(rank[order[ends[k] - by_match.count[k] : ends[k]]].tolist())
            of_group = calls.members(int(row[k])) or ()
            ranks = sorted(of_group) if len(of_group) > len(ranks) else ranks
            members.append((int(sender[k]), int(receiver[k])) if message[k] else tuple(ranks))
        moved = (size * factor)[row]
        return cls(calls, row, groups.group_ids, members, moved, calls.waits.span[row])

    @cached_property
    def is_message(self) -> Mask:
        """Whether each group is two ranks of which one sends to the other."""
        first = Groups.by_keys(self.group).first_row
        return np.asarray(self.calls.rows.is_type("send", "recv")[self.row[first]])

    def __len__(self) -> int:
        return len(self.row)

    @cached_property
    def sigma_ns(self) -> Floats:
        """Standard deviation of each time that the clocks leave (NaN: not known): its last start
        and last end may be on any two of its clocks."""
        recorded = read_keys(self.calls.matches["wait_ns_sigma"])
        matched = np.flatnonzero(self.calls.match != NONE)
        members = Groups.by_keys(self.calls.match[matched])
        least = members.min(recorded[matched])
        most = members.max(recorded[matched])
        of_row = np.full(self.calls.rows.length, np.nan)
        of_row[matched] = np.where(least == NONE, np.nan, most)[members.group_ids]
        return of_row[self.row]

    @cached_property
    def nodes(self) -> list[tuple[str, ...]]:
        """Nodes of each group; empty: some are not known."""
        hosts = self.calls.hosts.of_rank
        nodes = [tuple(sorted({hosts.get(r, "") for r in m})) for m in self.members]
        return [() if "" in n else n for n in nodes]

    @cached_property
    def like(self) -> Ints:
        """Keys of what is alike but for its size: type, ranks, nodes, most of a node, algorithm,
        protocol; a column each."""
        hosts = self.calls.hosts.of_rank
        shape = []
        for ranks, nodes in zip(self.members, self.nodes, strict=True):  # a few groups
            seen = [hosts.get(r) for r in ranks]
            shape.append((len(ranks), len(nodes), max(map(seen.count, set(seen)))))
        shapes = np.array(shape, np.int64).reshape(-1, 3)[self.group]
        table = self.calls.table
        names = [codes_of(table[name])[0][self.row] for name in ("algorithm", "protocol")]
        return np.column_stack([self.calls.rows.type[self.row], shapes, *names]).astype(np.int64)


def _tells_members(calls: CollectiveCalls, chosen: Ints) -> Mask:
    """Return whether each call's group is recorded, or all that took part are looked at."""
    named = (calls.rows.group_ranks[0] != NONE) | calls.rows.is_type("send", "recv")
    present = numbers(calls.matches["members_present"], NONE)
    here = Groups.by_keys(calls.match[chosen])
    return np.asarray(named[chosen] | (here.count[here.group_ids] >= present[chosen]))
