"""Kernels that waited for free multiprocessors: another stream's kernel filled the GPU.

Nothing records this. It is inferred for starts that stream, launch and events do not explain: the
kernel of another stream that ended just then, else the one that was running.
"""

import numpy as np

from htk.base.columns.order import order_by
from htk.base.columns.types import Ints, Mask, take_or
from htk.quantities.graph.nodes import Activities, LaunchCalls
from htk.quantities.graph.waits import Wait

_UNEXPLAINED_NS = 20_000
_JUST_ENDED_NS = 20_000


def waits_for_room(activities: Activities, calls: LaunchCalls, ready: Ints) -> tuple[Wait, Wait]:
    """Return waits for the end of another kernel, and for the start of one that was still running.

    `ready`: when each activity could have started, as far as other edges tell. Only what was
    launched earlier is waited for: that something later ran first is an accident of this step.
    """
    launched = take_or(calls.start, activities.call, 0)
    launched = np.where(activities.call >= 0, launched, activities.start)
    late = (activities.kind == 0) & (activities.start - ready > _UNEXPLAINED_NS)
    late &= ready > np.iinfo(np.int64).min
    ended: list[tuple[int, int, int, bool]] = []
    running: list[tuple[int, int, int, bool]] = []
    for device in np.unique(activities.device[late]).tolist():  # a few
        on_device = np.flatnonzero(activities.device == device)
        on_device = on_device[order_by(activities.end[on_device])]
        ends = activities.end[on_device]
        for row in np.flatnonzero(late & (activities.device == device)).tolist():  # a few
            start = int(activities.start[row])
            low = int(np.searchsorted(ends, start - _JUST_ENDED_NS))
            near = on_device[low : int(np.searchsorted(ends, start, "right"))]
            near = near[_mark_launched_before(activities, launched, near, row)]
            if len(near):
                other = int(near[-1])
                ended.append((other, row, start - int(activities.end[other]), False))
                continue
            beside = on_device[(activities.start[on_device] < start) & (ends > start)]
            beside = beside[activities.kind[beside] == 0]
            beside = beside[_mark_launched_before(activities, launched, beside, row)]
            if len(beside):
                other = int(beside[np.argmax(activities.start[beside])])
                lead = start - int(activities.start[other])
                running.append((other, row, lead, False))
    return Wait.from_rows(ended), Wait.from_rows(running)


def _mark_launched_before(activities: Activities, launched: Ints, others: Ints, row: int) -> Mask:
    """Return which of the others are on another stream than the row and were launched earlier."""
    elsewhere = activities.lane[others] != activities.lane[row]
    return np.asarray(elsewhere & (launched[others] < launched[row]))
