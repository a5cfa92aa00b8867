"""Totals of idle time, kept beside the tables of a file.

Pieces of gaps are more than the activities; most questions want no more of them than sums.
"""

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import (
    build_booleans,
    build_numbers,
    codes_of,
    decode_texts,
    match_texts,
    read_booleans,
    read_keys,
    read_numbers,
)
from htk.base.columns.groups import Groups, number_hosts
from htk.base.columns.segments import SegmentTimes
from htk.base.columns.types import NONE, Ints, Mask, fill_none, take_or
from htk.base.schema import INT64
from htk.base.schema.links import IDLE_COSTS, IDLE_TIMES
from htk.quantities.derived.explained_idle import Stalls, device_pieces, explain_idle
from htk.quantities.derived.host_states import ALLOCATION, SYNC
from htk.quantities.derived.idle import CAUSES
from htk.quantities.derived.stalls import LONG_NS
from htk.quantities.derived.totals import find_longest_rows, held_numbers, of_first, total_table
from htk.quantities.derived.windows import cut_to_windows

_WHO = ("rank", "cycle")
_FREE = ("cudaFree", "hipFree", "cuMemUnmap", "hipMemUnmap")


def rank_idle_times(idle_causes: pa.Table, rank_windows: pa.Table) -> pa.Table:
    """Return how long each device, and each of its streams, is idle for each cause in all of the
    recorded window."""
    return _idle_times(idle_causes, rank_windows)


def step_idle_times(idle_causes: pa.Table, step_windows: pa.Table) -> pa.Table:
    """Return how long each device and stream is idle for each cause in each GPU step.

    What is of no step counts as one.
    """
    return _idle_times(idle_causes, step_windows)


def _idle_times(idle_causes: pa.Table, windows: pa.Table) -> pa.Table:
    cut = cut_to_windows(idle_causes, windows)
    code, causes = codes_of(idle_causes["cause"])
    keys = {
        name: values[cut.window] for name, values in held_numbers(windows, *_WHO, "device").items()
    }
    keys |= {name: values[cut.row] for name, values in held_numbers(idle_causes, "stream").items()}
    keys |= {name: values[cut.window] for name, values in held_numbers(windows, "step").items()}
    groups = Groups.by_keys([*keys.values(), code.astype(np.int64)[cut.row]])
    first = groups.first_row
    complete = groups.min(read_booleans(windows["complete"])[cut.window].astype(np.int64))
    gap = read_numbers(idle_causes["gap_start_ns"])[cut.row]
    columns = of_first(IDLE_TIMES, keys, first)
    columns["complete"] = build_booleans(complete > 0)
    columns["cause"] = decode_texts(code[cut.row][first], causes)
    columns["idle_ns"] = build_numbers(groups.sum(cut.end - cut.start), INT64)
    columns["gaps"] = build_numbers(groups.distinct(gap), INT64)
    return total_table(IDLE_TIMES, columns)


def idle_costs(
    idle_causes: pa.Table, rank_windows: pa.Table, step_windows: pa.Table, stalls: pa.Table
) -> pa.Table:
    """Return the idle time of devices within the recorded windows by what explains it, in the order
    of the longest pieces' gaps."""
    pieces = device_pieces(idle_causes)
    blocking = Stalls.from_table(stalls)
    cut = cut_to_windows(pieces, rank_windows)
    length = cut.end - cut.start
    stall, explained_ns = explain_idle(blocking, pieces)
    blocks = take_or(blocking.state == SYNC, stall, False)
    suspected = match_texts(pieces["cause"], "unrecorded_gpu_work_suspected".__eq__)
    blocked = np.minimum(np.where(blocks & ~suspected, explained_ns, 0)[cut.row], length)
    code, causes = codes_of(pieces["cause"])
    name, names = codes_of(stalls["name"])
    keys = {n: values[cut.row] for n, values in held_numbers(pieces, *_WHO).items()}
    keys["step"] = _steps_of(pieces, step_windows)[cut.row]
    coded = {
        "cause": (code.astype(np.int64)[cut.row], causes),
        "name": (np.append(name, NONE).astype(np.int64)[stall][cut.row], names),
    }
    flags = {
        "long": length >= LONG_NS,
        "blocking": blocks[cut.row],
        "frees": _while_freeing(blocking, number_hosts(pieces)[cut.row], cut.start, cut.end),
    }
    alike = [*keys.values(), *(codes for codes, _ in coded.values())]
    alike += [mask.astype(np.int64) for mask in (*flags.values(), blocked > 0, length > blocked)]
    groups = Groups.by_keys(alike)
    longest = find_longest_rows(groups, length)
    order = np.argsort(longest)
    longest = longest[order]
    columns = of_first(IDLE_COSTS, keys, longest)
    columns |= {
        n: decode_texts(codes[longest], listed, compact=False)
        for n, (codes, listed) in coded.items()
    }
    columns |= {n: build_booleans(mask[longest]) for n, mask in flags.items()}
    columns["pieces"] = build_numbers(groups.count[order], INT64)
    columns["idle_ns"] = build_numbers(groups.sum(length)[order], INT64)
    columns["blocked_ns"] = build_numbers(groups.sum(blocked)[order], INT64)
    columns["longest_start_ns"] = build_numbers(cut.start[longest], INT64)
    columns["longest_ns"] = build_numbers(length[longest], INT64)
    return total_table(IDLE_COSTS, columns)


def cause_numbers(cause: pa.ChunkedArray) -> Ints:
    """Return the number in `CAUSES` of each row's cause (NONE: null), whatever other rows hold."""
    code, causes = codes_of(cause)
    return np.array([*map(CAUSES.index, causes.to_pylist()), NONE], np.int64)[code]


def _steps_of(pieces: pa.Table, steps: pa.Table) -> Ints:
    """Return the GPU step that each piece begins in."""
    step = fill_none(pieces.num_rows)
    cut = cut_to_windows(pieces, steps)
    step[cut.row[::-1]] = read_keys(steps["step"])[cut.window[::-1]]
    return step


def _while_freeing(stalls: Stalls, host: Ints, start: Ints, end: Ints) -> Mask:
    """Return during which spans the host gives memory back to the driver."""
    frees = np.array([bool(n and n.startswith(_FREE)) for n in stalls.names], bool)
    calls = np.flatnonzero(frees[stalls.name] & (stalls.state == ALLOCATION))
    last = SegmentTimes(stalls.host[calls], stalls.start[calls]).last(host, end - 1)
    return np.asarray((last != NONE) & (take_or(stalls.end[calls], last, 0) > start))
