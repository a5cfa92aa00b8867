"""How fast each group of ranks communicates, against what its links should do.

One observation a group: how much longer the bytes of its transfers take than at the usual rate,
latency and waiting left out. Groups of one kind make the same calls over as many ranks and nodes,
so that they should be equally fast, whatever that is.
"""

from collections import Counter
from dataclasses import dataclass

import numpy as np

from htk.base.columns.arrow import codes_of
from htk.base.columns.groups import Groups
from htk.base.columns.order import order_by
from htk.base.columns.types import NONE, Floats, Ints, Mask
from htk.base.core.humanize import format_int_ranges
from htk.quantities.measures.channel_hops import Hops
from htk.quantities.measures.collective_calls import CollectiveCalls, find_group_scopes
from htk.quantities.measures.complete_collectives import TRANSFERS, CompleteCollectives
from htk.quantities.measures.transfer_times import LinkRates, TransferTimes

_SCATTER = 0.02  # of a group's transfers, in logarithms, at least
_LEAST_REST = 0.05  # of a transfer's time, that is not latency whatever was expected
_LONG = 1.3  # times as long as equal calls of other groups take
_GROUPS_ALIKE = 3  # that tell what is usual
_LINKS = ("within nodes", "between nodes", "between unknown hosts")
_MESSAGES = ("send", "recv", "send_recv")
_MAD = 1.4826  # standard deviations of a Gaussian


@dataclass(frozen=True)
class LinkPaces:
    """Groups of ranks, an observation each."""

    members: list[tuple[int, ...]]  # global ranks; of messages the sender first
    ways: list[list[tuple[int, ...]]]  # of messages: from which rank to which, one or both
    nodes: list[tuple[str, ...]]  # empty: not known
    kind: Ints
    excess: Floats  # log of the time of its bytes over the usual
    scatter: Floats  # standard deviation of that
    unsure: Floats  # standard deviation of the usual itself: common to a kind
    busbw_gbps: Floats
    usual_gbps: Floats  # what their bytes are expected to move at
    usual_from: list[str]  # measured, data sheet, usual installations, given
    collectives: Ints  # those that tell of its links
    time_ns: Floats  # that they take together
    matches: Ints  # of all groups
    group: Ints  # of each match
    hops: list[Hops | None] | None = None  # of each between nodes; None: not logged

    def __len__(self) -> int:
        return len(self.members)

    def calls_of(self, calls: CollectiveCalls, groups: Ints) -> Mask:
        """Return which calls are those that tell of these groups' links."""
        chosen = self.matches[np.isin(self.group, groups)]
        return np.isin(calls.match, chosen)


def judged_calls(calls: CollectiveCalls, paces: LinkPaces) -> dict[str, tuple[int, int]]:
    """Return, for each sort of call and of links, how many were judged and how many there are."""
    moves = _moves_data(calls)
    message = calls.rows.is_type(*_MESSAGES)
    judged = moves & ~_left_out(calls, paces)
    links = _links_of(calls)
    counts = {}
    for sort, of_sort in (("collectives", ~message), ("messages", message)):
        for number, words in enumerate(_LINKS):
            chosen = moves & of_sort & (links == number)
            if chosen.any():
                counts[f"{sort} {words}"] = int((chosen & judged).sum()), int(chosen.sum())
    return counts


def _moves_data(calls: CollectiveCalls) -> Mask:
    """Return which calls move data between ranks."""
    moves: Mask = calls.rows.is_type(*TRANSFERS, "send_recv") & (calls.size != 1)
    return moves


def _left_out(calls: CollectiveCalls, paces: LinkPaces) -> Mask:
    """Return which calls move data and were not judged."""
    return _moves_data(calls) & ~paces.calls_of(calls, np.arange(len(paces)))


def _links_of(calls: CollectiveCalls) -> Ints:
    """Return which of `_LINKS` each call uses."""
    codes, names = codes_of(find_group_scopes(calls))
    of_scope = {"node": 0, "across nodes": 1}
    links = np.array([of_scope.get(name or "", 2) for name in (*names.to_pylist(), None)])[codes]
    hosts = calls.hosts.of_rank
    messages = np.flatnonzero(calls.rows.is_type(*_MESSAGES) & (calls.rows.peer != NONE))
    ends = zip(calls.rows.rank[messages].tolist(), calls.rows.peer[messages].tolist(), strict=True)
    pairs = [(hosts.get(rank), hosts.get(peer)) for rank, peer in ends]
    links[messages] = [2 if None in pair else int(pair[0] != pair[1]) for pair in pairs]
    return links


def reasons_not_judged(calls: CollectiveCalls, paces: LinkPaces) -> dict[str, int]:
    """Return how many calls tell nothing of links, by the reason."""
    left = np.flatnonzero(_left_out(calls, paces))
    codes, names = codes_of(calls.matches["reason"])
    reasons = [name or "" for name in (*names.to_pylist(), "")]
    sized = calls.has_size[left]
    words = [
        reasons[code]
        or ("bound by latency, small, or without their like" if has_size else "of unknown size")
        for code, has_size in zip(codes[left].tolist(), sized.tolist(), strict=True)
    ]
    return dict(Counter(words).most_common())


def long_groups_left_out(calls: CollectiveCalls, paces: LinkPaces) -> dict[str, str]:
    """Return groups that were not judged whose collectives last longer than equal ones of other
    groups: for a slow link, or for ranks that come late."""
    sized = _left_out(calls, paces) & calls.has_size & (calls.duration > 0)
    rows = np.flatnonzero(sized & ~calls.rows.is_type(*_MESSAGES))
    moved = np.nan_to_num(calls.moved[0][rows]).astype(np.int64)
    alike = [calls.rows.type[rows], calls.size[rows], _links_of(calls)[rows], moved]
    calls_alike = Groups.by_keys(alike)
    equal = Groups.by_keys([calls_alike.group_ids, calls.rows.group[rows]])
    shortest = equal.quantiles(calls.duration[rows], [0.1])[0]  # of those that hardly wait
    others = Groups.by_keys(equal.keys[:, 0])
    usual = others.quantiles(shortest, [0.5])[0][others.group_ids]
    compared = np.flatnonzero((others.count >= _GROUPS_ALIKE)[others.group_ids])
    groups = Groups.by_keys(equal.keys[compared, 1])
    own = np.bincount(groups.group_ids, (equal.count * shortest)[compared], len(groups))
    of_others = np.bincount(groups.group_ids, (equal.count * usual)[compared], len(groups))
    ratio = own / of_others
    firsts = rows[equal.first_row[compared][groups.first_row]]
    return {
        _name_group(calls, int(firsts[k])): f"{ratio[k]:.1f} times as long as like groups"
        for k in order_by(-ratio).tolist()
        if ratio[k] >= _LONG
    }


def _name_group(calls: CollectiveCalls, row: int) -> str:
    members = calls.members(row)
    if members is None:
        return f"group {calls.table['group'][row].as_py()}"
    return f"ranks {format_int_ranges(sorted(members))}"


def link_paces(calls: CollectiveCalls, rates: LinkRates) -> LinkPaces:
    """Return what each group's transfers tell of its links."""
    complete = CompleteCollectives.from_calls(calls)
    times = TransferTimes(complete, rates)
    chosen = np.flatnonzero(times.tells_of_links)
    judged, group = np.unique(complete.group[chosen], return_inverse=True)
    group = group.ravel().astype(np.int64)
    members = [complete.members[k] for k in judged.tolist()]
    nodes = [complete.nodes[k] for k in judged.tolist()]
    measured = set(complete.group[~np.isnan(times.measured_ns)].tolist())
    count = len(members)

    time = complete.time_ns[chosen].astype(np.float64)
    moved = complete.moved[chosen]
    latency, sigma = (values[chosen] for values in times.latencies)
    of_bytes = np.maximum(time - latency, _LEAST_REST * time)
    excess = np.log(of_bytes / times.wire_ns[chosen])
    louder = time / of_bytes  # so much a scatter of the whole time scatters what is left
    weight = moved / louder**2
    unsure = np.hypot(times.unsure_of_rate[chosen], sigma / of_bytes)

    alike = Groups.by_keys([group, times.kinds.group_ids[chosen], moved.astype(np.int64)])
    middle = alike.quantiles(excess, [0.5])[0][alike.group_ids]
    calls_of_group = np.bincount(group, minlength=count)
    off = Groups.by_keys(group).quantiles(np.abs(excess - middle), [0.5])[0]
    least = _SCATTER * _average_by_group(group, louder, weight, count)
    time_of_group = np.bincount(group, time, count)
    return LinkPaces(
        members=members,
        ways=[complete.ways[k] for k in judged.tolist()],
        nodes=nodes,
        kind=_number_kinds(alike, members, nodes),
        excess=_average_by_group(group, excess, weight, count),
        scatter=np.hypot(least, _MAD * off / np.sqrt(calls_of_group)),
        unsure=_average_by_group(group, unsure, weight, count),
        busbw_gbps=np.bincount(group, moved, count) / time_of_group,
        usual_gbps=np.bincount(group, moved, count)
        / np.bincount(group, times.wire_ns[chosen], count),
        usual_from=["measured" if k in measured else times.limits[k][1] for k in judged.tolist()],
        collectives=calls_of_group.astype(np.int64),
        time_ns=time_of_group.astype(np.float64),
        matches=calls.match[complete.row[chosen]],
        group=group,
    )


def _average_by_group(group: Ints, values: Floats, weight: Floats, count: int) -> Floats:
    """Return the weighted mean of each group's values."""
    total: Floats = np.bincount(group, weight, count).astype(np.float64)
    return np.asarray(np.bincount(group, weight * values, count) / total)


def _number_kinds(
    alike: Groups, members: list[tuple[int, ...]], nodes: list[tuple[str, ...]]
) -> Ints:
    """Return a number for groups of as many ranks and nodes that make the same calls."""
    calls: dict[int, list[tuple[int, int]]] = {}
    for group, kind, moved in alike.keys.tolist():  # a few sizes of each group
        calls.setdefault(group, []).append((kind, moved))
    shapes = [
        (len(m), len(n), tuple(calls[k]))
        for k, (m, n) in enumerate(zip(members, nodes, strict=True))
    ]
    numbers = {shape: k for k, shape in enumerate(dict.fromkeys(shapes))}
    return np.array([numbers[shape] for shape in shapes], np.int64)
