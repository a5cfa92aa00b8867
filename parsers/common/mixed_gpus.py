"""Numbers of GPUs that are mixed up: work that waits in turn for that of another GPU.

        recorded   GPU 0   111   333   555        truly   GPU 0   111222333444555
                   GPU 1      222   444

Two GPUs that one thread feeds in turn work at one time, unless the thread is too slow for that.
"""

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import codes_of, read_numbers, read_times
from htk.base.columns.order import order_by
from htk.base.columns.segments import SegmentTimes, mark_heads, running_max
from htk.base.columns.types import NO_TIME, NONE, Ints

_TICK_NS = 1000  # stamps of whole microseconds may overlap by one
_LONG_NS = 10_000  # what it takes to begin what was launched, and more
_FEWEST = 10
_SWITCHES = 4  # one of so many that one thread launches is on another GPU than the one before
_OVERLAPS = 4  # one of so many may run beside the one before: programmatic launches do


def find_calls(kernels: pa.Table, launches: pa.Table) -> tuple[Ints, Ints]:
    """Return a call with the id of each activity, and how many such calls there are."""
    calls = SegmentTimes(
        read_numbers(launches["correlation"], NONE), read_numbers(launches["start_ns"])
    )
    wanted = read_numbers(kernels["correlation"], NONE)
    ids = read_numbers(launches["correlation"], NONE)[calls.order]
    first = np.searchsorted(ids, wanted)
    count = np.where(wanted > 0, np.searchsorted(ids, wanted, "right") - first, 0)
    return calls.order[np.minimum(first, len(ids) - 1)], count


def find_mixed_gpus(kernels: pa.Table, launches: pa.Table, calls: tuple[Ints, Ints]) -> Ints:
    """Return the activities that could begin on their GPU, and begin when that of another ends;
    none where that is no habit. `calls`: see `find_calls`."""
    none = np.zeros(0, np.int64)
    device = read_numbers(kernels["device"], NONE)
    if not (device != device[0]).any():
        return none
    call, count = calls
    thread = codes_of(launches["thread"])[0].astype(np.int64)[call]
    call_begin, call_end = read_times(launches)
    stream = read_numbers(kernels["stream"], NONE)
    rows = np.flatnonzero((count == 1) & (read_numbers(kernels["graph_id"]) <= 0))
    rows = rows[order_by(thread[rows], stream[rows], call_begin[call[rows]])]
    before = rows[:-1]
    after = rows[1:]
    is_next = (thread[before] == thread[after]) & (stream[before] == stream[after])
    switches = is_next & (device[before] != device[after])
    start, end = read_times(kernels)
    overlap = switches & (start[after] < end[before] - _TICK_NS)
    ready_ns = np.maximum(_free_ns(device, start, end), call_end[call])
    waits = switches & ~overlap & (end[before] - ready_ns[after] > _LONG_NS)
    is_habit = (
        waits.sum() >= _FEWEST
        and _SWITCHES * switches.sum() >= is_next.sum()
        and _OVERLAPS * overlap.sum() <= waits.sum()
    )
    return np.sort(after[waits]) if is_habit else none


def _free_ns(device: Ints, start: Ints, end: Ints) -> Ints:
    """Return when all that began before each activity on its GPU had ended."""
    order = order_by(device, start)
    first = mark_heads(device[order])
    ended = running_max(first, end[order])
    free = np.full(len(start), NO_TIME)
    later = np.flatnonzero(~first)
    free[order[later]] = ended[later - 1]
    return free
