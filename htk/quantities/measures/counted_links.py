"""Bytes that counters of links saw between their samples, and that transfers moved meanwhile.

Totals are differences of neighbouring samples of a series; one that falls was reset, and its
interval is left out. A rate is taken for all of the time since the series' sample before.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import codes_of, mark_valid, read_numbers
from htk.base.columns.groups import Groups
from htk.base.columns.order import order_by
from htk.base.columns.types import NONE, Floats, Ints


@dataclass(frozen=True)
class CountedIntervals:
    """What a series counted between two of its samples, a row each."""

    sample: Ints  # row of the sample that ends it
    start_ns: Ints
    end_ns: Ints
    counted_bytes: Floats
    resets: int
    untimed: int  # samples without a time


def counted_intervals(samples: pa.Table) -> CountedIntervals:
    """Return the intervals between the samples of each series."""
    timed = mark_valid(samples["time_ns"])
    rows = np.flatnonzero(timed)
    texts = ("host", "port", "link", "direction", "metric")
    keys = [codes_of(samples[name])[0] for name in texts]
    keys.append(read_numbers(samples["device"], NONE))
    series = Groups.by_keys(np.column_stack(keys).astype(np.int64)[rows]).group_ids
    time = read_numbers(samples["time_ns"])[rows]
    order = order_by(series, time)
    rows = rows[order]
    series = series[order]
    time = time[order]
    same = np.flatnonzero((series[1:] == series[:-1]) & (time[1:] > time[:-1]))
    before = rows[same]
    after = rows[same + 1]
    total = read_numbers(samples["total_bytes"], NONE)
    rate = read_numbers(samples["bytes_per_s"], np.nan)
    start = time[same]
    end = time[same + 1]
    grown = (total[after] - total[before]).astype(np.float64)
    has_totals = (total[after] >= 0) & (total[before] >= 0)
    by_rate = rate[after] * ((end - start) / 1e9)
    counted = np.where(has_totals, grown, by_rate)
    good = np.where(has_totals, grown >= 0, ~np.isnan(by_rate))
    return CountedIntervals(
        after[good],
        start[good],
        end[good],
        counted[good],
        int((has_totals & (grown < 0)).sum()),
        int((~timed).sum()),
    )


def moved_within(start: Ints, end: Ints, moved: Floats, edges: Ints) -> Floats:
    """Return the bytes moved before each edge, of transfers that go on evenly."""
    length = np.maximum(end - start, 1)
    before = [float((moved * np.clip((t - start) / length, 0, 1)).sum()) for t in edges.tolist()]
    return np.array(before, np.float64)  # edges are few: a second apart, of a recording of some
