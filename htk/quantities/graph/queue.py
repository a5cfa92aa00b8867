"""Queues of launches that fill, as the recording shows them."""

from dataclasses import dataclass

import numpy as np

from htk.base.columns.arrow import read_booleans, read_keys, read_numbers
from htk.base.columns.groups import pair_columns, rows_by_number
from htk.base.columns.types import NO_TIME, NONE, Ints, Mask
from htk.base.mappings import NamedTables

FULL_QUEUE = 512  # no queue shorter than this has been seen to fill
_HELD = 10  # times as long as a short launch takes one that waits for room in the queue


@dataclass(frozen=True)
class FullQueue:
    """The activities of a device whose queue fills, by launch; those launched before the recording
    come first."""

    kernels: Ints
    start: Ints  # of each
    capacity: int  # how many may wait; a launch beyond returns once one of them has started
    blocked: Mask  # launches that were held up


def full_queues(tables: NamedTables) -> list[FullQueue]:
    """Return the queues that fill."""
    kernels = tables["kernels"]
    links = tables["kernel_links"]
    rank = read_keys(kernels["rank"])
    lane = pair_columns(rank, read_numbers(kernels["device"], NONE))
    start = read_numbers(kernels["start_ns"])
    end = read_numbers(links["launch_end_ns"], NO_TIME)
    issued = read_numbers(links["launch_start_ns"], NO_TIME)
    is_recorded = issued > NO_TIME
    # What was launched before the recording stands in the queue all the same, ahead of the rest.
    queued = np.flatnonzero(is_recorded | read_booleans(links["carry_in"]))
    queues = []
    of_device = rows_by_number(lane[queued])
    for device in np.unique(lane[is_recorded]).tolist():  # a few devices
        on_device = queued[of_device(device)]
        on_device = on_device[np.lexsort([start[on_device], issued[on_device]])]
        timed = is_recorded[on_device]
        depth = _count_waiting(start[on_device], issued[on_device])
        deepest = int(depth[timed].max(initial=0))
        if deepest < FULL_QUEUE:
            continue
        length = end[on_device] - issued[on_device]
        deep = timed & (depth >= 0.9 * deepest)
        held = deep & (length > _HELD * np.quantile(length[timed], 0.1))
        if held.any():
            left = _count_waiting(start[on_device], end[on_device])[held]
            capacity = int(np.median(left)) + 1
            blocked = held | (timed & (depth >= capacity))
            queues.append(FullQueue(on_device, start[on_device], capacity, blocked))
    return queues


def _count_waiting(start: Ints, time: Ints) -> Ints:
    """Return how many of the activities launched before each one had not started at its time."""
    return np.arange(len(start)) - np.searchsorted(np.sort(start), time, "right")
