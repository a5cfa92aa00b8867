"""What each collective takes beyond its baseline: waiting for ranks left out.

A collective's transfer lasts from its last start to its last end, so that no skew between ranks is
in it. The baseline is the first of these that there is: benchmarks of that type over as many ranks
and nodes; the fastest tenth of like calls (type, bytes, ranks, nodes, algorithm and protocol) over
all groups; latency and bandwidth fitted to the fastest of other sizes; what links of their rate
usually reach.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from htk.base.columns.types import Floats, Ints, fill_none
from htk.physics.latency_bandwidth import Segment, fit_segments, predicted_us
from htk.quantities.measures.complete_collectives import CompleteCollectives
from htk.quantities.measures.transfer_times import LinkRates, TransferTimes
from htk.quantities.measures.transfers import of_benchmarks

BASELINES = ("benchmark", "like calls", "other sizes", "link rates")
BENCHMARK, LIKE_CALLS, OTHER_SIZES, LINK_RATES = range(len(BASELINES))
_ALIKE = 5  # calls of one size, of which the fastest tenth is a baseline
_SIZES = 3  # that a curve rests on
_BEYOND = 1.05  # times the largest size of a benchmark, which it still speaks for


@dataclass(frozen=True)
class TransferBaseline:
    """What each collective should take (NaN: nothing tells), and what says so."""

    expected_ns: Floats
    basis: Ints  # number of BASELINES, NONE: none
    with_themselves: int  # collectives compared with those of their own group alone
    sigma_ns: Floats  # what clocks leave uncertain in those that it is made of, on average


def baseline_of(
    collectives: CompleteCollectives, bench_points: pa.Table, rates: LinkRates, wanted: Ints
) -> TransferBaseline:
    """Return what collectives should take by the wanted baselines, the first that there is."""
    expected = np.full(len(collectives), np.nan)
    basis = fill_none(len(collectives))
    usual = TransferTimes(collectives, rates)
    makers: dict[int, Callable[[], Floats]] = {
        BENCHMARK: lambda: _by_benchmarks(collectives, bench_points),
        LIKE_CALLS: lambda: _by_like_calls(usual),
        OTHER_SIZES: lambda: _by_other_sizes(usual),
        LINK_RATES: lambda: usual.expected_ns,
    }
    for number in wanted.tolist():
        times = makers[number]()
        new = np.isnan(expected) & ~np.isnan(times)
        expected[new] = times[new]
        basis[new] = number
    alone = 0
    sigma = np.zeros(len(collectives))
    for number, alike in ((LIKE_CALLS, usual.sized), (OTHER_SIZES, usual.kinds)):
        rests_on = basis == number
        of_one_group = (alike.distinct(collectives.group) == 1)[alike.group_ids]
        alone += int((of_one_group & rests_on).sum())
        total = np.bincount(alike.group_ids, collectives.sigma_ns, len(alike))
        sigma[rests_on] = (total / np.maximum(alike.count, 1))[alike.group_ids[rests_on]]
    return TransferBaseline(expected, basis, alone, sigma)


def _by_like_calls(times: TransferTimes) -> Floats:
    are_many = (times.sized.count >= _ALIKE)[times.sized.group_ids]
    return np.asarray(np.where(are_many, times.fast_ns, np.nan))


def _by_other_sizes(times: TransferTimes) -> Floats:
    expected = np.full(len(times.collectives), np.nan)
    for kind in range(len(times.kinds)):  # a few kinds
        transfers = np.flatnonzero(times.kinds.group_ids == kind)
        sizes, fast_ns = times.fast_times(transfers)
        if len(sizes) >= _SIZES:
            curve = fit_segments(sizes, fast_ns / 1e3, 1)
            expected[transfers] = _predicted_ns(curve, times.collectives.moved[transfers])
    return expected


def _predicted_ns(curve: list[Segment], moved: Floats) -> Floats:
    sizes, inverse = np.unique(moved.astype(np.int64), return_inverse=True)
    predicted = [1e3 * predicted_us(curve, size) for size in sizes.tolist()]
    return np.array(predicted)[inverse.ravel()]


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
        curve = fit_segments(transfers.moved, transfers.time_us)
        if len(rows) and curve:
            expected[rows] = np.fmin(expected[rows], _predicted_ns(curve, size[rows]))
    return expected
