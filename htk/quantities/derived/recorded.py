"""What of a job was recorded: which ranks, on which hosts, and when each GPU.

Time outside of that is unrecorded, neither idle nor short.
"""

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import read_keys, read_numbers, read_times
from htk.base.columns.groups import Groups
from htk.base.columns.intervals import Spans, merge_spans
from htk.base.columns.types import NO_TIME, NONE


def recorded_hosts(ranks: pa.Table) -> dict[int, str]:
    """Host of each rank, where recorded."""
    pairs = zip(ranks["rank"].to_pylist(), ranks["host"].to_pylist(), strict=True)
    return {rank: host for rank, host in pairs if rank is not None and host}


def unrecorded_ranks(ranks: pa.Table) -> int:
    """Return how many ranks of the job have no file, where its size is recorded."""
    sizes = [size for size in ranks["world_size"].to_pylist() if size]
    here = {rank for rank in ranks["rank"].to_pylist() if rank is not None}
    return max(max(sizes, default=0) - len(here), 0) if here else 0


def recorded_spans(ranks: pa.Table, activities: pa.Table) -> dict[tuple[int, int], Spans]:
    """Return when each GPU with work, by rank and device, was recorded: from its files' first event
    to their last, GPU work included."""
    of_file = read_numbers(ranks["rank"], NONE), read_numbers(ranks["cycle"], 0)
    low = read_numbers(ranks["start_ns"], NO_TIME)
    high = read_numbers(ranks["end_ns"], NO_TIME)
    timed = (low != NO_TIME) & (high != NO_TIME)
    gpus = Groups.by_keys([read_keys(activities[c]) for c in ("rank", "device", "cycle")])
    start, end = read_times(activities)
    begins = gpus.min(start).tolist()
    ends = gpus.max(end).tolist()
    spans: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for (rank, device, cycle), first, last in zip(gpus.keys.tolist(), begins, ends, strict=True):
        file = timed & (of_file[0] == rank) & (of_file[1] == cycle)
        begin = min([first, *low[file].tolist()])
        finish = max([last, *high[file].tolist()])
        spans.setdefault((rank, device), []).append((begin, finish))
    return {gpu: merge_spans(*np.array(times, np.int64).T) for gpu, times in spans.items()}
