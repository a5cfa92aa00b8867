"""Collectives with their part of a device's time: shared, exposed, waiting, transferring."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from htk.columns.arrow import valid
from htk.columns.types import NONE, Ints
from htk.measures.collective_calls import CollectiveCalls
from htk.measures.exposure import comm_shares, lanes_of


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
    rows = np.flatnonzero(calls.rows.timed)
    start, end = calls.rows.start[rows], calls.rows.end[rows]
    transfer = calls.waits.transfer[rows]
    edges = (start, start + calls.waits.wait[rows], end - transfer, end)
    lane = lanes_of(calls.table)
    lane[:, 0] = calls.rows.rank
    lane = np.tile(lane[rows], (3, 1))
    on_gpu = (lane[: len(rows), 2] != NONE) | valid(calls.table["stream"])[rows]
    begin, finish = np.concatenate(edges[:3]), np.concatenate(edges[1:])
    finish = np.where(np.tile(on_gpu, 3), finish, begin)
    shares = comm_shares(activities, lane, begin, finish)
    waiting, unknown, moving = shares.reshape(3, len(rows), 2)
    return CommShares(
        rows,
        waiting[:, 0] + unknown[:, 0] + moving[:, 0],
        waiting[:, 1],
        moving[:, 1],
        unknown[:, 1],
        np.where(on_gpu, transfer, 0),
        np.where(on_gpu, edges[2] - edges[1], 0),
        on_gpu.astype(np.int64),
    )
