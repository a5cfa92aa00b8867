"""Collectives that all their members recorded, told apart by the ranks that took part."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from htk.base.columns.arrow import codes_of, read_keys, read_numbers
from htk.base.columns.groups import Groups
from htk.base.columns.order import order_by
from htk.base.columns.types import NONE, Floats, Ints, Mask
from htk.quantities.derived.messages import peers_of_calls
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
    ways: list[list[tuple[int, ...]]]  # of messages: from which rank to which, one or both
    moved: Floats  # bytes × bus factor
    time_ns: Ints  # from the last start to the last end

    @classmethod
    def from_calls(cls, calls: CollectiveCalls) -> "CompleteCollectives":
        """Return a row of each; messages are told apart by who sends them to whom, and from those
        of a batch in which both do."""
        size, factor = calls.moved
        useful = (calls.match != NONE) & calls.waits.has_wait & ~calls.lacking
        useful &= (calls.waits.span > 0) & (np.nan_to_num(size * factor) > 0)
        batched = calls.rows.is_type("send_recv") & (calls.rows.peer != NONE)
        batched &= peers_of_calls(calls.table["messages"]) == 1
        is_sender = batched & (read_numbers(calls.table["in_bytes"], 0) > 0)
        is_receiver = batched & (read_numbers(calls.table["out_bytes"], 0) > 0)
        is_sender |= calls.rows.is_type("send")
        is_receiver |= calls.rows.is_type("recv")
        chosen = np.flatnonzero(useful & (calls.rows.is_type(*TRANSFERS) | batched))
        chosen = chosen[_tells_members(calls, chosen)]
        chosen = chosen[order_by(~is_sender[chosen])]  # a message's row is its sender's
        by_match = Groups.by_keys(calls.match[chosen])
        row = chosen[by_match.first_row]
        rank = calls.rows.rank[chosen]
        is_message = is_sender[row] | is_receiver[row]
        both = is_sender[row] & is_receiver[row]
        own = np.where(is_message, calls.rows.rank[row], NONE)
        peer = np.where(is_message, calls.rows.peer[row], NONE)
        is_first = np.where(both, own < peer, is_sender[row])
        sender = np.where(is_first, own, peer)
        receiver = np.where(is_first, peer, own)
        name = np.where(is_message, NONE, calls.rows.group[row])
        groups = Groups.by_keys([name, sender, receiver, both])
        order = order_by(by_match.group_ids)
        ends = np.cumsum(by_match.count)
        members = []
        ways: list[list[tuple[int, ...]]] = []
        for k in groups.first_row.tolist():  # a few groups
            ranks = sorted(rank[order[ends[k] - by_match.count[k] : ends[k]]].tolist())
            of_group = calls.members(int(row[k])) or ()
            ranks = sorted(of_group) if len(of_group) > len(ranks) else ranks
            way: tuple[int, ...] = (int(sender[k]), int(receiver[k]))
            members.append(way if is_message[k] else tuple(ranks))
            ways.append([way, way[::-1]][: 1 + both[k]] if is_message[k] else [])
        moved = (size * factor)[row]
        return cls(calls, row, groups.group_ids, members, ways, moved, calls.waits.span[row])

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
    named = (calls.rows.group_ranks[0] != NONE) | calls.rows.is_type("send", "recv", "send_recv")
    present = read_numbers(calls.matches["members_present"], NONE)
    here = Groups.by_keys(calls.match[chosen])
    return np.asarray(named[chosen] | (here.count[here.group_ids] >= present[chosen]))
