"""Contention on a GPU: compute and communication slow each other while both run.

How long anything takes depends on what runs beside it, also on what is launched later. So a step is
timed, what overlapped is looked up here, and the step is timed again.
"""

import numpy as np
from numpy.typing import NDArray

from htk.base.columns.order import order_by
from htk.base.columns.types import Ints
from htk.recording.simulate.instructions import Activity, Do, RankProgram
from htk.recording.simulate.stage_times import TimedRow

Shares = NDArray[np.float32]


class Beside:
    """The times at which all launches of a step ran, on all ranks."""

    def __init__(self, program: RankProgram, ranks: int) -> None:
        self._rows = [k for k, do in enumerate(program.do) if do in (Do.LAUNCH, Do.NODE)]
        self._place = {row: position for position, row in enumerate(self._rows)}
        self._what: list[Activity] = [program.what[k][0] for k in self._rows]
        self._start = np.zeros((len(self._rows), ranks), np.int64)
        self._end = np.zeros((len(self._rows), ranks), np.int64)
        self._moving: dict[int, Ints] = {}  # of collectives: since when all members are there

    def note(self, note: TimedRow) -> None:
        position = self._place.get(note.row)
        if position is not None and note.on_gpu is not None:
            self._start[position], self._end[position] = note.on_gpu[:2]
            if self._what[position].kind == "comm":
                self._moving[position] = note.on_gpu[2]

    def shares(self, tables: dict[str, Ints]) -> Shares:
        """Return, per launch and rank, the share of its time that the other kind ran beside it.

        A collective gets the mean over its members: not all parts of a ring are as slow as its
        slowest.
        """
        overlap = np.zeros(self._start.shape, np.float32)
        compute = [k for k, what in enumerate(self._what) if what.kind == "compute"]
        comm = list(self._moving)
        if not compute or not comm:
            return overlap
        moving = np.stack([self._moving[k] for k in comm])
        for rank in range(overlap.shape[1]):  # each has intervals of its own
            start = self._start[:, rank]
            end = self._end[:, rank]
            overlap[compute, rank] = _share_covered(
                start[comm], end[comm], start[compute], end[compute]
            )
            overlap[comm, rank] = _share_covered(
                start[compute], end[compute], moving[:, rank], end[comm]
            )
        for k in comm:
            what = self._what[k].collective
            if what is not None:
                table = tables[what.group]
                overlap[k, table] = overlap[k][table].mean(axis=1)[:, None]
        return overlap


def _share_covered(low: Ints, high: Ints, start: Ints, end: Ints) -> NDArray[np.float64]:
    """Return the share of each interval `start`-`end` that the union of `low`-`high` covers."""
    order = order_by(low)
    until = np.maximum.accumulate(high[order])
    since = np.maximum(low[order], np.concatenate([low[order][:1], until[:-1]]))
    total = np.cumsum(until - since)

    def measure_covered_until(instants: Ints) -> Ints:
        last = np.searchsorted(since, instants, side="right") - 1
        overlap: Ints = np.where(last < 0, 0, total[last] - np.maximum(0, until[last] - instants))
        return overlap

    overlap: NDArray[np.float64] = (
        measure_covered_until(end) - measure_covered_until(start)
    ) / np.maximum(1, end - start)
    return overlap
