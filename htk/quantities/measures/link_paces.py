"""How fast each group of ranks communicates, against what its links should do.

One observation a group: how much longer its transfers take than its bytes would at the usual rate,
large messages first, waiting left out. Groups of one kind make the same calls over as many ranks
and nodes, so that they should be equally fast, whatever that is.
"""

from dataclasses import dataclass

import numpy as np

from htk.base.columns.groups import Groups
from htk.base.columns.types import NONE, Floats, Ints, Mask
from htk.physics.detected import devices
from htk.physics.link_rates import group_gbps, scale_up_gbps
from htk.quantities.measures.channel_hops import Hops
from htk.quantities.measures.collective_calls import CollectiveCalls

LARGE_BYTES = 1 << 20  # below it latency decides, not the link
USUAL = 0.75  # of its links' rate is what large messages reach
UNKNOWN = 10.0  # standard deviation, in logarithms, of a rate that nothing is known of
_SURE = {"given": 0.2, "data sheet": 0.3, "usual installations": 0.25}
_LATENCY_NS = 50_000.0  # of a call, about and at most
_SCATTER = 0.05  # of a group's transfers, in logarithms, at least
_COMPARED = ("all_reduce", "all_gather", "reduce_scatter", "broadcast")  # with the links' rate
_TRANSFERS = (*_COMPARED, "reduce", "all_to_all", "gather", "scatter", "send", "recv")
_MAD = 1.4826  # standard deviations of a Gaussian


@dataclass(frozen=True)
class LinkRates:
    """One-way rates in GB/s where they are known, and where they come from."""

    intra_gbps: float | None  # of a GPU to its neighbours
    inter_gbps: float | None  # of all adapters of a node
    nic_from: str  # given, usual installations

    @classmethod
    def of(cls, calls: CollectiveCalls, link: float | None, nic: float | None) -> "LinkRates":
        names = calls.ranks["device_name"].unique().to_pylist()
        links = [rate for rate in map(scale_up_gbps, names) if rate]
        usual = min((d.gpu.scale_out_gbps for d in devices(calls.ranks) if d.gpu), default=None)
        adapters = usual * calls.hosts.per_node if usual else None
        origin = "given" if nic else "usual installations"
        return cls(link or min(links, default=None), nic or adapters, origin)

    def limit(self, calls: CollectiveCalls, members: tuple[int, ...]) -> tuple[float, str]:
        """Return the rate that a group cannot pass (NaN: not known), and what it rests on."""
        hosts = calls.hosts.of_rank
        nodes = [hosts.get(rank) for rank in members]
        if None in nodes:
            return np.nan, ""
        if len(set(nodes)) == 1:
            return float(self.intra_gbps or np.nan), "data sheet"
        most = max(nodes.count(node) for node in set(nodes))
        rate = group_gbps(self.intra_gbps, self.inter_gbps, most, calls.hosts.per_node)
        return float(rate or np.nan), self.nic_from


@dataclass(frozen=True)
class LinkPaces:
    """Groups of ranks, an observation each."""

    members: list[tuple[int, ...]]  # global ranks
    nodes: list[tuple[str, ...]]  # empty: not known
    kind: Ints
    excess: Floats  # log of its time over the usual
    scatter: Floats  # standard deviation of that
    unsure: Floats  # standard deviation of the usual itself: common to a kind
    busbw_gbps: Floats
    limit_gbps: Floats  # NaN: not known
    limit_from: list[str]
    collectives: Ints  # large ones
    time_ns: Floats  # that they take together
    hops: list[Hops | None] | None = None  # of each between nodes; None: not logged

    def __len__(self) -> int:
        return len(self.members)


def link_paces(calls: CollectiveCalls, rates: LinkRates) -> LinkPaces:
    """Return what each group's transfers tell of its links."""
    row, group, members = complete_transfers(calls)
    size, factor = calls.moved
    moved = (size * factor)[row]
    time = calls.waits.span[row].astype(np.float64)
    limits = [rates.limit(calls, m) for m in members]
    hosts = calls.hosts.of_rank
    nodes = [tuple(sorted({hosts.get(r, "") for r in m})) for m in members]
    nodes = [() if "" in n else n for n in nodes]
    limit = np.array([rate for rate, _ in limits])
    origin = [where for _, where in limits]
    largest = np.zeros(len(members))
    np.maximum.at(largest, group, moved)
    use = moved >= np.minimum(LARGE_BYTES, largest)[group]  # a group of small ones: its largest
    row, group, moved, time = row[use], group[use], moved[use], time[use]
    unsure_of_limit = np.array([_SURE.get(where, UNKNOWN) for where in origin])
    usual, unsure = _usual(calls, row, moved, limit[group], unsure_of_limit[group])
    excess = np.log(time) - usual
    weight = np.bincount(group, moved, len(members))
    mean = np.bincount(group, moved * excess, len(members)) / weight
    alike = Groups.by_keys([group, calls.rows.type[row], moved.astype(np.int64)])
    median = alike.quantiles(excess, [0.5])[0][alike.group_ids]
    count = np.bincount(group, minlength=len(members))
    off = Groups.by_keys(group).quantiles(np.abs(excess - median), [0.5])[0]
    return LinkPaces(
        members,
        nodes,
        _kinds(alike, members, nodes),
        mean,
        np.hypot(_SCATTER, _MAD * off / np.sqrt(count)),
        np.bincount(group, moved * unsure, len(members)) / weight,
        np.bincount(group, moved, len(members)) / np.bincount(group, time, len(members)),
        limit,
        origin,
        count.astype(np.int64),
        np.bincount(group, time, len(members)).astype(np.float64),
    )


def _usual(
    calls: CollectiveCalls, row: Ints, moved: Floats, limit: Floats, unsure: Floats
) -> tuple[Floats, Floats]:
    """Log of the time that each transfer usually takes, and how unsure that is."""
    usual, latency, compared = usual_times(calls, row, moved, limit)
    return usual, np.where(compared, unsure + latency, UNKNOWN)


def usual_times(
    calls: CollectiveCalls, row: Ints, moved: Floats, limit: Floats
) -> tuple[Floats, Floats, Mask]:
    """Return the log of the ns that transfers take at the usual share of their links' rate, how
    much of it is latency, and whether that rate is known; else it only compares like calls."""
    compared = calls.rows.is_type(*_COMPARED)[row] & ~np.isnan(limit)
    ideal = moved / np.where(compared, limit, 1.0)
    latency = np.where(compared, np.log1p(_LATENCY_NS / ideal) / 2, 0.0)
    return np.log(ideal) - np.log(USUAL) + latency, latency, compared


def _kinds(alike: Groups, members: list[tuple[int, ...]], nodes: list[tuple[str, ...]]) -> Ints:
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


def complete_transfers(calls: CollectiveCalls) -> tuple[Ints, Ints, list[tuple[int, ...]]]:
    """Return a row of each collective that all its members recorded, its group, all groups' ranks.

    Messages are told apart by who exchanges them.
    """
    size, factor = calls.moved
    useful = (calls.match != NONE) & calls.waits.has_wait & ~calls.lacking
    useful &= (calls.waits.span > 0) & (np.nan_to_num(size * factor) > 0)
    chosen = np.flatnonzero(useful & calls.rows.is_type(*_TRANSFERS))
    by_match = Groups.by_keys(calls.match[chosen])
    row, rank = chosen[by_match.first_row], calls.rows.rank[chosen]
    message = calls.rows.is_type("send", "recv")[row]
    name = np.where(message, NONE, calls.rows.group[row])
    low, high = (np.where(message, end, NONE) for end in (by_match.min(rank), by_match.max(rank)))
    groups = Groups.by_keys([name, low, high])
    order = np.argsort(by_match.group_ids, kind="stable")
    ends = np.cumsum(by_match.count)
    members = [
        tuple(sorted(rank[order[ends[k] - by_match.count[k] : ends[k]]].tolist()))
        for k in groups.first_row.tolist()
    ]
    return row, groups.group_ids, members
