"""When each GPU was recorded: time outside of that is unrecorded, neither idle nor short."""

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import numbers, read_keys, read_times
from htk.base.columns.intervals import Spans, union
from htk.base.columns.types import NO_TIME, NONE


def recorded_spans(ranks: pa.Table, activities: pa.Table) -> dict[tuple[int, int], Spans]:
    """Return when each GPU with work, by rank and device, was recorded: from its files' first event
    to their last, GPU work included."""
    of_file = numbers(ranks["rank"], NONE), numbers(ranks["cycle"], 0)
    low = numbers(ranks["start_ns"], NO_TIME)
    high = numbers(ranks["end_ns"], NO_TIME)
    timed = (low != NO_TIME) & (high != NO_TIME)
    keys = np.stack([read_keys(activities[c]) for c in ("rank", "device", "cycle")])
    start, end = read_times(activities)
    gpus, recording = np.unique(keys, axis=1, return_inverse=True)
    spans: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for k, (rank, device, cycle) in enumerate(gpus.T.tolist()):  # a few recordings
        own = recording.ravel() == k
        file = timed & (of_file[0] == rank) & (of_file[1] == cycle)
        begin = min([int(start[own].min()), *low[file].tolist()])
        finish = max([int(end[own].max()), *high[file].tolist()])
        spans.setdefault((rank, device), []).append((begin, finish))
    return {gpu: union(*np.array(times, np.int64).T) for gpu, times in spans.items()}
