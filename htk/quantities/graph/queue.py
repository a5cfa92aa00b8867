"""Queues of launches that fill, as the recording shows them."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import numbers
from htk.base.columns.groups import paired
from htk.base.columns.types import NO_TIME, Ints, Mask

FULL_QUEUE = 512  # no queue shorter than this has been seen to fill
_HELD = 10  # times as long as usual takes a launch that waits for room in the queue


@dataclass(frozen=True)
class FullQueue:
    """The launched kernels of a device whose queue fills, by launch."""

    kernels: Ints
    start: Ints  # of each
    deepest: int
    blocked: Mask  # launches that were held up


def full_queues(tables: Mapping[str, pa.Table]) -> list[FullQueue]:
    """Return the queues that fill."""
    kernels, links = tables["kernels"], tables["kernel_links"]
    rank = numbers(kernels["rank"], -1).astype(np.int64)
    lane = paired(rank, numbers(kernels["device"], -1))
    start, end = numbers(kernels["start_ns"]), numbers(links["launch_end_ns"], NO_TIME)
    issued = numbers(links["launch_start_ns"], NO_TIME)
    queues = []
    launched = np.flatnonzero(issued > NO_TIME)
    for device in np.unique(lane[launched]).tolist():  # a few devices
        on_device = launched[lane[launched] == device]
        on_device = on_device[np.argsort(issued[on_device], kind="stable")]
        depth = np.arange(len(on_device)) - np.searchsorted(
            np.sort(start[on_device]), issued[on_device], "right"
        )
        deepest = int(depth.max(initial=0))
        length = end[on_device] - issued[on_device]
        deep = depth >= 0.9 * deepest  # of long steps most launches are, so that most are held up
        usual = np.median(length[~deep]) if not deep.all() else np.quantile(length, 0.1)
        blocked = deep & (length > _HELD * usual)
        if deepest >= FULL_QUEUE and blocked.any():
            queues.append(FullQueue(on_device, start[on_device], deepest, blocked))
    return queues
