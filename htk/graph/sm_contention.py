"""Kernels that waited for room: another stream's kernel filled the GPU.

Nothing records this. It is inferred for starts that stream, launch and events do not explain: the
kernel of another stream that ended just then, else the one that was running.
"""

import numpy as np

from htk.columns.types import Ints, Mask
from htk.graph.nodes import Activities, LaunchCalls
from htk.graph.waits import Wait

_UNEXPLAINED_NS = 20_000
_JUST_ENDED_NS = 20_000


def waits_for_room(activities: Activities, calls: LaunchCalls, ready: Ints) -> tuple[Wait, Wait]:
    """After the end of another kernel; after the start of one that was still running.

    `ready`: when each activity could have started, as far as other edges tell. Only what was
    launched earlier is waited for: that something later ran first is an accident of this step.
    """
    launched = np.where(activities.call >= 0, calls.start[activities.call], activities.start)
    late = (activities.kind == 0) & (activities.start - ready > _UNEXPLAINED_NS)
    late &= ready > np.iinfo(np.int64).min
    ended: list[tuple[int, int, int, bool]] = []
    running: list[tuple[int, int, int, bool]] = []
    for device in np.unique(activities.device[late]).tolist():  # a few
        mine = np.flatnonzero(activities.device == device)
        mine = mine[np.argsort(activities.end[mine], kind="stable")]
        ends = activities.end[mine]
        for which in np.flatnonzero(late & (activities.device == device)).tolist():  # a few
            start = int(activities.start[which])
            low = int(np.searchsorted(ends, start - _JUST_ENDED_NS))
            near = mine[low : int(np.searchsorted(ends, start, "right"))]
            near = near[_before(activities, launched, near, which)]
            if len(near):
                other = int(near[-1])
                ended.append((other, which, start - int(activities.end[other]), False))
                continue
            beside = mine[(activities.start[mine] < start) & (ends > start)]
            beside = beside[activities.kind[beside] == 0]
            beside = beside[_before(activities, launched, beside, which)]
            if len(beside):
                other = int(beside[np.argmax(activities.start[beside])])
                lead = start - int(activities.start[other])
                running.append((other, which, lead, False))
    return Wait.of(ended), Wait.of(running)


def _before(activities: Activities, launched: Ints, others: Ints, which: int) -> Mask:
    """Of other streams, launched earlier."""
    elsewhere = activities.lane[others] != activities.lane[which]
    return np.asarray(elsewhere & (launched[others] < launched[which]))
