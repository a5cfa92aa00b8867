"""Collectives with their part of a device's time: shared, exposed, waiting and transferring."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from htk.columns.arrow import numbers
from htk.columns.types import Ints
from htk.measures.collective_calls import CollectiveCalls
from htk.measures.exposure import comm_shares


@dataclass(frozen=True)
class Shares:
    """For each timed collective; an instant with k of them active counts 1/k for each."""

    rows: Ints  # rows of `collectives`; those that ran on no GPU have no part of its time
    shared: Ints
    exposed_wait: Ints
    exposed_transfer: Ints  # of matched ones
    exposed_unmatched: Ints
    transfer: Ints  # whole, on a GPU
    on_gpu: Ints  # 1 where it ran on one

    @property
    def exposed(self) -> Ints:
        return self.exposed_wait + self.exposed_transfer + self.exposed_unmatched


def comm_split(calls: CollectiveCalls, activities: pa.Table) -> Shares:
    """Wait and transfer while compute runs, or does not. On a rank's own clock, as compute is."""
    rows = np.flatnonzero(calls.rows.timed)
    start, end = calls.rows.start[rows], calls.rows.end[rows]
    known = calls.waits.known[rows]
    middle = np.where(known, start + calls.waits.wait[rows], start)
    rank = np.tile(calls.rows.rank[rows], 2)
    device = np.tile(numbers(calls.table["device"], -1).astype(np.int64)[rows], 2)
    begin, finish = np.concatenate([start, middle]), np.concatenate([middle, end])
    finish = np.where(device < 0, begin, finish)
    shares = comm_shares(activities, rank, device, begin, finish)
    count = len(rows)
    waiting, moving = shares[:count], shares[count:]
    return Shares(
        rows,
        waiting[:, 0] + moving[:, 0],
        waiting[:, 1],
        np.where(known, moving[:, 1], 0),
        np.where(known, 0, moving[:, 1]),
        np.where(device[:count] >= 0, calls.waits.transfer[rows], 0),
        (device[:count] >= 0).astype(np.int64),
    )
