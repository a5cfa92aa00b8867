"""What each collective takes beyond its baseline: waiting for ranks left out.

A collective's transfer lasts from its last start to its last end, so that no skew between ranks is
in it. The baseline is the first of these that there is: benchmarks of that type over as many ranks
and nodes; the fastest tenth of like calls (type, bytes, ranks, nodes, algorithm and protocol) over
all groups; latency and bandwidth fitted to the fastest of other sizes; what links of their rate
usually reach.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import codes_of, numbers
from htk.base.columns.groups import Groups
from htk.base.columns.types import NONE, Floats, Ints
from htk.physics.latency_bandwidth import Segment, fit, predicted_us
from htk.quantities.measures.collective_calls import CollectiveCalls
from htk.quantities.measures.link_paces import LinkRates, complete_transfers, usual_times
from htk.quantities.measures.transfers import FAST, of_benchmarks

BASELINES = ("benchmark", "like calls", "other sizes", "link rates")
BENCHMARK, LIKE_CALLS, OTHER_SIZES, LINK_RATES = range(len(BASELINES))
_ALIKE = 5  # calls of one size, of which the fastest tenth is a baseline
_SIZES = 3  # that a curve rests on
_BEYOND = 1.05  # times the largest size of a benchmark, which it still speaks for


@dataclass(frozen=True)
class CompleteCollectives:
    """Collectives that all their members recorded, and what each takes."""

    calls: CollectiveCalls
    row: Ints  # one of its rows in `calls`
    group: Ints
    members: list[tuple[int, ...]]  # global ranks of each group
    moved: Floats  # bytes × bus factor
    time_ns: Ints  # from the last start to the last end

    @classmethod
    def of(cls, calls: CollectiveCalls) -> "CompleteCollectives":
        row, group, members = complete_transfers(calls)
        size, factor = calls.moved
        return cls(calls, row, group, members, (size * factor)[row], calls.waits.span[row])

    def __len__(self) -> int:
        return len(self.row)

    @cached_property
    def sigma_ns(self) -> Floats:
        """Standard deviation of each time that the clocks leave (NaN: not known): its last start
        and last end may be on any two of its clocks."""
        recorded = numbers(self.calls.matches["wait_ns_sigma"], NONE).astype(np.int64)
        matched = np.flatnonzero(self.calls.match != NONE)
        members = Groups.by_keys(self.calls.match[matched])
        least, most = (f(recorded[matched]) for f in (members.min, members.max))
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


@dataclass(frozen=True)
class TransferBaseline:
    """What each collective should take (NaN: nothing tells), and what says so."""

    expected_ns: Floats
    basis: Ints  # number of BASELINES, NONE: none
    with_themselves: int  # collectives compared with those of their own group alone
    sigma_ns: Floats  # standard deviation of what is expected that the clocks leave


def baseline_of(
    collectives: CompleteCollectives, bench_points: pa.Table, rates: LinkRates, wanted: Ints
) -> TransferBaseline:
    """Return what collectives should take by the wanted baselines, the first that there is."""
    expected = np.full(len(collectives), np.nan)
    basis = np.full(len(collectives), NONE, np.int64)
    makers: dict[int, Callable[[], Floats]] = {
        BENCHMARK: lambda: _by_benchmarks(collectives, bench_points),
        LIKE_CALLS: lambda: _by_like_calls(collectives),
        OTHER_SIZES: lambda: _by_other_sizes(collectives),
        LINK_RATES: lambda: _by_link_rates(collectives, rates),
    }
    for number in wanted.tolist():
        times = makers[number]()
        new = np.isnan(expected) & ~np.isnan(times)
        expected[new], basis[new] = times[new], number
    alone = _with_themselves(collectives, basis)
    return TransferBaseline(expected, basis, alone, _sigma(collectives, basis))


def _with_themselves(collectives: CompleteCollectives, basis: Ints) -> int:
    """Return how many collectives have a baseline that is made of their own group's alone."""
    count = 0
    for number, keys in ((LIKE_CALLS, _sized(collectives)), (OTHER_SIZES, collectives.like)):
        alike = Groups.by_keys(keys)
        alone = (alike.distinct(collectives.group) == 1)[alike.group_ids]
        count += int((alone & (basis == number)).sum())
    return count


def _sigma(collectives: CompleteCollectives, basis: Ints) -> Floats:
    """Return that of the collectives of the trace that a baseline is made of, on average."""
    sigma = np.zeros(len(collectives))
    for number, keys in ((LIKE_CALLS, _sized(collectives)), (OTHER_SIZES, collectives.like)):
        alike = Groups.by_keys(keys)
        total = np.bincount(alike.group_ids, collectives.sigma_ns, len(alike))
        chosen = basis == number
        sigma[chosen] = (total / np.maximum(alike.count, 1))[alike.group_ids[chosen]]
    return sigma


def _sized(collectives: CompleteCollectives) -> Ints:
    return np.column_stack([collectives.like, collectives.moved.astype(np.int64)])


def _by_like_calls(collectives: CompleteCollectives) -> Floats:
    alike = Groups.by_keys(_sized(collectives))
    if not len(alike):
        return np.full(len(collectives), np.nan)
    fast = alike.quantiles(collectives.time_ns, [FAST])[0]
    return np.asarray(np.where(alike.count >= _ALIKE, fast, np.nan)[alike.group_ids])


def _by_other_sizes(collectives: CompleteCollectives) -> Floats:
    expected = np.full(len(collectives), np.nan)
    kinds = Groups.by_keys(collectives.like)
    for k in range(len(kinds)):  # a few kinds
        rows = np.flatnonzero(kinds.group_ids == k)
        sizes = Groups.by_keys(collectives.moved[rows].astype(np.int64))
        if len(sizes) < _SIZES:
            continue
        fast_us = sizes.quantiles(collectives.time_ns[rows], [FAST])[0] / 1e3
        curve = fit(sizes.keys.ravel().astype(np.float64), fast_us, 1)
        expected[rows] = _predicted_ns(curve, sizes)[sizes.group_ids]
    return expected


def _predicted_ns(curve: list[Segment], sizes: Groups) -> Floats:
    return np.array([1e3 * predicted_us(curve, moved) for moved in sizes.keys.ravel().tolist()])


def _by_benchmarks(collectives: CompleteCollectives, bench_points: pa.Table) -> Floats:
    """Within the sizes that were measured; of in place and out of place the faster."""
    expected = np.full(len(collectives), np.nan)
    kind, ranks, nodes = collectives.like[:, :3].T
    for transfers in of_benchmarks(bench_points):  # a few curves
        types = list(collectives.calls.rows.types)
        if transfers.type not in types:
            continue
        across = {"node": nodes == 1, "across nodes": nodes > 1}.get(transfers.level or "", True)
        size = collectives.moved
        inside = (size >= transfers.moved.min()) & (size <= _BEYOND * transfers.moved.max())
        rows = np.flatnonzero(
            (kind == types.index(transfers.type)) & (ranks == transfers.ranks) & across & inside
        )
        curve = fit(transfers.moved, transfers.time_us)
        if len(rows) and curve:
            sizes = Groups.by_keys(size[rows].astype(np.int64))
            expected[rows] = np.fmin(expected[rows], _predicted_ns(curve, sizes)[sizes.group_ids])
    return expected


def _by_link_rates(collectives: CompleteCollectives, rates: LinkRates) -> Floats:
    limits = [rates.limit(collectives.calls, members)[0] for members in collectives.members]
    limit = np.array(limits, np.float64)[collectives.group]
    usual, _, has_rate = usual_times(collectives.calls, collectives.row, collectives.moved, limit)
    return np.asarray(np.where(has_rate, np.exp(usual), np.nan))
