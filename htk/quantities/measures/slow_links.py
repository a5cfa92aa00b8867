"""Find the adapter, link, node or GPU that slows communication: tomography of overlapping groups.

What is slow slows every group that uses it, and no other. Each suspect is a hypothesis: groups that
use it are slower by one factor, groups of a kind are equally fast otherwise, and what that pace is
is known only as well as the links' rates are. Suspects that the same groups use cannot be told
apart; they share the probability. Where NCCL's log tells the rings (or trees) of a group, it uses
the adapters and links of its hops alone.
"""

from collections import defaultdict
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from htk.base.columns.order import order_by
from htk.base.columns.types import Floats, Ints
from htk.quantities.measures.channel_hops import Hops, hops_between_nodes, paired_communicators
from htk.quantities.measures.collective_calls import CollectiveCalls
from htk.quantities.measures.link_paces import LinkPaces, link_paces
from htk.quantities.measures.transfer_times import LinkRates

ADAPTER = "network adapter"
ADAPTERS = "node's network adapters"
NETWORK = "network between nodes"
PAIR = "link between two nodes"
GPU = "GPU's links"
NODE = "node's GPU links"
PATH = "path from rank to rank"
SUSPECTED = 0.3  # probability that something is slow, before anything was seen
_SHARES = {NETWORK: 0.2, ADAPTERS: 0.25, ADAPTER: 0.25, PAIR: 0.1, GPU: 0.1, NODE: 0.1, PATH: 0.1}
_FACTORS = (1.3, 1.6, 2.0, 2.5, 3.0, 4.0, 6.0, 10.0, 20.0)
_ALIKE = 0.05  # standard deviation between equal links, in logarithms
_LEAST_APART = 0.03  # the same, where many groups show how equal links are
_MANY = 8  # groups of a kind that tell how far equal ones lie apart
_MAD = 1.4826


@dataclass(frozen=True)
class Suspect:
    """Something that groups use, and how likely it is what is slow."""

    kind: str
    nodes: tuple[str, ...]
    ranks: tuple[int, ...]
    device: str  # name of an adapter, where logged
    probability: float


@dataclass(frozen=True)
class Alike:
    """Suspects that exactly the same groups use, the likeliest first: nothing tells them apart."""

    suspects: list[Suspect]
    groups: Ints  # of LinkPaces
    slowdown: float  # of those groups

    @property
    def probability(self) -> float:
        return sum(suspect.probability for suspect in self.suspects)


@dataclass(frozen=True)
class NcclRecords:
    """Tables of NCCL's log: what of it belongs to the collectives, its connections and inits."""

    collectives: pa.Table  # all that were recorded, of all sources
    facts: pa.Table  # of those, row by row
    transports: pa.Table
    inits: pa.Table


def logged_paces(calls: CollectiveCalls, rates: LinkRates, records: NcclRecords) -> LinkPaces:
    """Return the pace of each group, with the hops of its rings and trees where they are logged."""
    paces = link_paces(calls, rates)
    paired = paired_communicators(records.collectives, records.facts)
    members = [tuple(sorted(m)) for m in paces.members]
    transports = records.transports
    hops = hops_between_nodes(calls, members, paired, transports, records.inits)
    return replace(paces, hops=hops)


def find_slow_links(paces: LinkPaces, hosts: dict[int, str]) -> tuple[list[Alike], float]:
    """Return what may be slow, the likeliest first, and the probability that nothing is."""
    users = _list_users(paces, hosts)
    if not users:
        return [], 1.0
    keys = list(users)
    support, factor = _measure_support(paces, [users[key] for key in keys])
    kinds = [key[0] for key in keys]
    share = sum(_SHARES[kind] for kind in set(kinds))
    prior = np.array([SUSPECTED * _SHARES[k] / share / kinds.count(k) for k in kinds])
    score = np.log(prior) + support
    peak = max(float(score.max()), np.log(1 - SUSPECTED))
    nothing = float(np.exp(np.log(1 - SUSPECTED) - peak))
    total = nothing + float(np.exp(score - peak).sum())
    same_users: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for k in order_by(-score).tolist():
        same_users[tuple(users[keys[k]])].append(k)
    classes = [
        Alike(
            [Suspect(*keys[k], float(np.exp(score[k] - peak)) / total) for k in same],
            np.array(groups, np.int64),
            float(factor[same[0]]),
        )
        for groups, same in same_users.items()
    ]
    return sorted(classes, key=lambda alike: -alike.probability), nothing / total


Key = tuple[str, tuple[str, ...], tuple[int, ...], str]


def _list_users(paces: LinkPaces, hosts: dict[int, str]) -> dict[Key, list[int]]:
    """Return the groups that use each suspect."""
    users: dict[Key, list[int]] = defaultdict(list)
    ranks_of: dict[str, list[int]] = defaultdict(list)
    for rank, host in sorted(hosts.items()):
        ranks_of[host].append(rank)
    everywhere = tuple(sorted({n for nodes in paces.nodes if len(nodes) > 1 for n in nodes}))
    adapters = _name_adapters(paces, hosts)
    for group, (members, nodes) in enumerate(zip(paces.members, paces.nodes, strict=True)):
        if len(nodes) == 1:
            users[NODE, nodes, tuple(ranks_of[nodes[0]]), ""].append(group)
        for way in paces.ways[group]:
            path = tuple(dict.fromkeys(hosts[rank] for rank in way if rank in hosts))
            users[PATH, path, way, ""].append(group)
        for rank in members:
            users[GPU, (hosts[rank],) if rank in hosts else (), (rank,), ""].append(group)
        if len(nodes) < 2:
            continue
        users[NETWORK, everywhere, (), ""].append(group)
        hops = paces.hops[group] if paces.hops else None
        ends = members if hops is None else {r for h in hops for r in (h.sender, h.receiver)}
        pairs = {nodes} if hops is None and len(nodes) == 2 else _list_pairs(hops, hosts)
        for pair in sorted(pairs):
            users[PAIR, pair, (), ""].append(group)
        for key in sorted({adapters.get(r) or _build_adapter_key(r, hosts) for r in ends}):
            users[key].append(group)
        for node in sorted({hosts[r] for r in ends if r in hosts} or nodes):
            users[ADAPTERS, (node,), tuple(ranks_of[node]), ""].append(group)
    return users


def _list_pairs(hops: Hops | None, hosts: dict[int, str]) -> set[tuple[str, ...]]:
    return {tuple(sorted((hosts[h.sender], hosts[h.receiver]))) for h in hops or ()}


def _build_adapter_key(rank: int, hosts: dict[int, str]) -> Key:
    return ADAPTER, (hosts[rank],) if rank in hosts else (), (rank,), ""


def _name_adapters(paces: LinkPaces, hosts: dict[int, str]) -> dict[int, Key]:
    """Return each rank's adapter by name; empty unless every hop names both ends' adapters, the
    same one for a rank each time."""
    names: dict[int, set[str | None]] = defaultdict(set)
    for hops, nodes in zip(paces.hops or [], paces.nodes, strict=False):
        if hops is None and len(nodes) > 1:
            return {}
        for hop in hops or ():
            names[hop.sender].add(hop.send_adapter)
            names[hop.receiver].add(hop.receive_adapter)
    named = {rank: next(iter(seen)) for rank, seen in names.items() if len(seen) == 1}
    if len(named) < len(names) or None in named.values():
        return {}
    users: dict[tuple[str, str], list[int]] = defaultdict(list)
    for rank, device in sorted(named.items()):
        users[hosts[rank], str(device)].append(rank)
    return {
        rank: (ADAPTER, (host,), tuple(ranks), device)
        for (host, device), ranks in users.items()
        for rank in ranks
    }


def _measure_support(paces: LinkPaces, users: list[list[int]]) -> tuple[Floats, Floats]:
    """Return each suspect's log likelihood over that of nothing slow, and its likeliest factor."""
    kinds = int(paces.kind.max(initial=-1)) + 1
    weight = 1 / _estimate_variance(paces)
    total = np.bincount(paces.kind, weight * paces.excess**0, kinds).astype(np.float64)
    first = np.bincount(paces.kind, weight * paces.excess**1, kinds).astype(np.float64)
    unsure = np.bincount(paces.kind, weight * paces.unsure, kinds) / total
    precision = total + 1 / unsure**2  # of the pace of a kind
    suspect = np.repeat(np.arange(len(users)), [len(groups) for groups in users])
    group = np.concatenate([np.array(groups, np.int64) for groups in users])
    on = np.zeros((len(users), kinds))
    off = np.zeros((len(users), kinds))
    np.add.at(on, (suspect, paces.kind[group]), weight[group])
    np.add.at(off, (suspect, paces.kind[group]), (weight * paces.excess)[group])
    gains = []
    for log_factor in np.log(_FACTORS):
        squares = log_factor**2 * on - 2 * log_factor * off
        pace = (2 * log_factor * on * first - (log_factor * on) ** 2) / precision
        gains.append(-0.5 * (squares + pace).sum(axis=1))
    gain = np.stack(gains, axis=1)
    peak = gain.max(axis=1)
    support = peak + np.log(np.exp(gain - peak[:, None]).mean(axis=1))
    return support, _find_likeliest(on, off, first, precision)


def _find_likeliest(on: Floats, off: Floats, first: Floats, precision: Floats) -> Floats:
    """Return the factor that fits best, at least 1."""
    slope = (off - on * first / precision).sum(axis=1)
    curve = (on - on**2 / precision).sum(axis=1)
    factor: Floats = np.exp(np.clip(slope / np.maximum(curve, 1e-12), 0.0, 5.0))
    return factor


def _estimate_variance(paces: LinkPaces) -> Floats:
    """Return the variance of each group's excess: its scatter's, and that among groups of its kind.

    The latter is measured where a kind has many groups, and assumed elsewhere.
    """
    spread = np.full(len(paces), _ALIKE)
    for kind in np.flatnonzero(np.bincount(paces.kind) >= _MANY).tolist():  # a few kinds
        of_kind = paces.kind == kind
        excess = paces.excess[of_kind]
        spread[of_kind] = max(
            _LEAST_APART, _MAD * float(np.median(np.abs(excess - np.median(excess))))
        )
    variance: Floats = paces.scatter**2 + spread**2
    return variance
