"""Collectives with their part of a device's time: shared, exposed, waiting, transferring."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import read_numbers
from htk.base.columns.types import Ints
from htk.base.core.analysis import Later
from htk.base.schema.links import COLLECTIVE_SHARES
from htk.quantities.derived.exposure import on_gpu, shares_of
from htk.quantities.measures.collective_calls import CollectiveCalls


@dataclass(frozen=True)
class CommShares:
    """For each timed collective; an instant with k of them active counts 1/k for each."""

    rows: Ints  # rows of `collectives`; those that ran on no GPU have no part of its time
    shared: Ints
    exposed_wait: Ints
    exposed_transfer: Ints
    exposed_undetermined: Ints  # waiting or transferring: ranks or a match are missing
    transfer: Ints  # whole, on a GPU
    undetermined: Ints
    on_gpu: Ints  # 1 where it ran on one

    @property
    def exposed(self) -> Ints:
        return self.exposed_wait + self.exposed_transfer + self.exposed_undetermined


def comm_split(calls: CollectiveCalls, activities: pa.Table) -> CommShares:
    """Wait and transfer while compute runs, or does not. On a rank's own clock, as compute is.

    What is undetermined lies between the two.
    """
    waiting, unknown, moving = shares_of(calls.rows, calls.matches, activities)
    shared = waiting[:, 0] + unknown[:, 0] + moving[:, 0]
    return _split_shares(calls, shared, waiting[:, 1], moving[:, 1], unknown[:, 1])


def split_of(
    calls: CollectiveCalls, align: bool, collective_shares: Later, activities: Later
) -> CommShares:
    """Return wait and transfer beside compute; for aligned clocks as they are kept."""
    return kept_split(calls, collective_shares) if align else comm_split(calls, activities())


def kept_split(calls: CollectiveCalls, collective_shares: Later) -> CommShares:
    """Return the kept shares of calls that are matched on aligned clocks."""
    kept = calls.rows_of(collective_shares())
    timed = calls.rows.timed
    return _split_shares(
        calls, *(read_numbers(kept[name])[timed] for name in COLLECTIVE_SHARES.names)
    )


def _split_shares(
    calls: CollectiveCalls, shared: Ints, wait: Ints, transfer: Ints, undetermined: Ints
) -> CommShares:
    rows = np.flatnonzero(calls.rows.timed)
    of_gpu = on_gpu(calls.rows)[rows]
    start = calls.rows.start[rows]
    end = calls.rows.end[rows]
    waited = calls.waits.wait[rows]
    alone = calls.rows.group_size[rows] == 1
    moved = np.where(alone, end - start, calls.waits.transfer[rows])
    return CommShares(
        rows,
        shared,
        wait,
        transfer,
        undetermined,
        np.where(of_gpu, moved, 0),
        np.where(of_gpu, end - moved - (start + waited), 0),
        of_gpu.astype(np.int64),
    )
