"""Work that is launched and has not started: what waits in the queues of devices and streams."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import read_keys, read_numbers
from htk.base.columns.groups import Groups
from htk.base.columns.order import order_by
from htk.base.columns.types import NONE, Ints


@dataclass(frozen=True)
class Waiting:
    """What waits in a queue: a launch, or on one stream the part of it that goes there."""

    key: Ints  # rank, cycle, device and stream
    row: Ints  # the activity that starts first
    launched: Ints
    started: Ints

    @classmethod
    def from_kernels(
        cls, kernels: pa.Table, kernel_links: pa.Table, *, per_stream: bool
    ) -> "Waiting":
        launch = read_numbers(kernel_links["launch_row"], NONE)
        start = read_numbers(kernels["start_ns"])
        columns = ("rank", "cycle", "device", "stream")
        key = np.column_stack([read_keys(kernels[c]) for c in columns])
        if not per_stream:
            key[:, 3] = NONE
        linked = np.flatnonzero(launch != NONE)
        linked = linked[order_by(start[linked])]
        row = linked[Groups.by_keys(np.column_stack([key, launch])[linked]).first_row]
        launched = read_numbers(kernel_links["launch_start_ns"])[row]
        return cls(key[row], row, launched, np.maximum(start[row], launched))


@dataclass(frozen=True)
class QueueLengths:
    """The length of each queue after each launch and start, ordered by queue and time."""

    queue: Ints
    time: Ints
    length: Ints
    order: Ints  # of what waits: its launches, then its starts

    @classmethod
    def from_waiting(cls, waiting: Waiting, groups: Groups) -> "QueueLengths":
        """Return the lengths of the queues that `groups` makes of what waits."""
        queue = np.concatenate([groups.group_ids, groups.group_ids])
        time = np.concatenate([waiting.launched, waiting.started])
        change = np.repeat(np.array([1, -1], np.int64), len(waiting.row))
        order = order_by(queue, time, -change)  # launches first: a start is never early
        # Each queue ends empty, so that one sum runs through all of them.
        return cls(queue[order], time[order], np.cumsum(change[order]), order)
