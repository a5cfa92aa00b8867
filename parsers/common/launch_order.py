"""GPU work that begins before its launch, or ends after a call that waited for it has returned.

If one shift of a GPU's clock makes all of it possible, that clock is moved; else what cannot be is
put behind its launch, in the order of its stream.
"""

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import codes_of, match_texts, read_numbers, read_times
from htk.base.columns.groups import Groups
from htk.base.columns.order import order_by
from htk.base.columns.segments import SegmentTimes, mark_heads, running_max
from htk.base.columns.types import NO_TIME, NONE, Ints, Mask
from htk.base.core.humanize import format_duration
from htk.base.mappings import NamedTables
from htk.parsers.common.doubtful import TICK_NS, Impossible, report_impossible
from htk.parsers.common.mending import set_times, without_rows
from htk.quantities.derived.links import is_ambiguous

FAR_NS = 60_000_000_000
LATE_NS = 50_000  # clocks of host and GPU differ by a few µs in whole recordings
_FEWEST, _CLOCK_PCT = 3, 2  # activities, and of the launched ones, that tell of a wrong clock
_NEVER = -NO_TIME
_WAITS = ("cudaDeviceSynchronize", "hipDeviceSynchronize", "cuCtxSynchronize")


def mend_launched(tables: dict[str, pa.Table], is_overlong: Mask, seen: list[Impossible]) -> None:
    """Move or leave out GPU work that its calls rule out. What is overlong on its stream is cut
    elsewhere; so its end tells nothing."""
    launches = tables.get("launches")
    if launches is None or not launches.num_rows:
        return
    launched = _Launched.from_tables(tables)
    is_far = _far_ones(tables, launched)
    if is_far.any():
        far = np.flatnonzero(is_far)
        text = "activity a minute and more after its launch and all other work: left out"
        report_impossible(seen, tables["kernels"], far, "far_activity", text)
        tables["kernels"] = without_rows(tables["kernels"], far)
        is_overlong = is_overlong[~is_far]
        launched = _Launched.from_tables(tables)
    kernels = tables["kernels"]
    start, end = read_times(kernels)
    early_ns = np.where(launched.is_launched, launched.first_ns - start, NO_TIME)
    waited_ns = launched.waited_ns(tables)
    late_ns = np.where(is_overlong, NO_TIME, end - waited_ns)
    is_suspect = (early_ns > TICK_NS) | (late_ns > LATE_NS)
    if not is_suspect.any():
        return
    is_suspect &= ~is_ambiguous(kernels, launches)
    device = read_numbers(kernels["device"], NONE)
    alone = np.zeros(len(start), bool)
    for gpu in np.unique(device[is_suspect]).tolist():
        of_gpu = launched.is_launched & (device == gpu)
        suspect = np.flatnonzero(is_suspect & of_gpu)
        shift_ns = _find_shift(suspect, np.flatnonzero(of_gpu), early_ns, late_ns)
        if shift_ns:
            _tell_clock(gpu, shift_ns, kernels, suspect, seen)
            _shift_clock(tables, gpu, shift_ns)
        else:
            alone[suspect] = True
    alone &= ~_share_ids(launched.ids)
    if alone.any():
        _place_activities(tables, launched, waited_ns, alone, seen)


def _share_ids(ids: Ints) -> Mask:
    """Return which activities have an id that others have: of a graph, or from before the recording
    with an id used anew."""
    order = order_by(ids)
    again = ~mark_heads(ids[order])
    shared = np.zeros(len(ids), bool)
    shared[order] = again | np.append(again[1:], False)
    return shared


def _find_shift(suspect: Ints, launched: Ints, early_ns: Ints, late_ns: Ints) -> int:
    """Return by how much a GPU's clock is behind the host's; 0: that is not what is wrong.

    How far is not known; the least that makes all activities possible is taken.
    """
    if len(suspect) < _FEWEST or 100 * len(suspect) < _CLOCK_PCT * len(launched):
        return 0
    most_early = int(early_ns[suspect].max())
    most_late = int(late_ns[suspect].max())
    if most_early > TICK_NS and int(late_ns[launched].max()) + most_early <= LATE_NS:
        return most_early
    if most_late > LATE_NS and int(early_ns[launched].max()) + most_late <= TICK_NS:
        return -most_late
    return 0


def _far_ones(tables: NamedTables, launched: "_Launched") -> Mask:
    """Return what begins a minute after its launch on a GPU that did nothing meanwhile."""
    kernels = tables["kernels"]
    start = read_numbers(kernels["start_ns"])
    is_far = np.zeros(len(start), bool)
    late = np.flatnonzero(launched.is_launched & (start - launched.first_ns > FAR_NS))
    if not len(late):
        return is_far
    last = launched.calls.last(launched.ids[late], start[late])
    late = late[start[late] - read_numbers(tables["launches"]["start_ns"])[last] > FAR_NS]
    end = np.sort(read_numbers(kernels["end_ns"]))
    before = np.searchsorted(end, start[late], "right") - 1
    idle_ns = start[late] - np.where(before >= 0, end[before], start.min())
    is_far[late[idle_ns > FAR_NS]] = True
    return is_far


def _tell_clock(
    gpu: int, shift_ns: int, kernels: pa.Table, suspect: Ints, seen: list[Impossible]
) -> None:
    way = "behind" if shift_ns > 0 else "ahead of"
    why = "begin before their launches" if shift_ns > 0 else "end after calls that waited for them"
    text = (
        f"GPU {max(gpu, 0)}'s clock is at least {format_duration(abs(shift_ns))} {way} the host's"
        f" (activities {why}): its times are moved by that"
    )
    report_impossible(seen, kernels, suspect, "gpu_clock", text)


def _shift_clock(tables: dict[str, pa.Table], gpu: int, shift_ns: int) -> None:
    for name in tables.keys() & {"kernels", "annotations"}:
        rows = np.flatnonzero(read_numbers(tables[name]["device"], NONE) == gpu)
        start, end = read_times(tables[name])
        set_times(tables, name, rows, start[rows] + shift_ns, end[rows] + shift_ns)


class _Launched(NamedTuple):
    """The calls with the id of each activity; ids may be used anew."""

    calls: SegmentTimes  # by their ids
    ids: Ints  # of the activities
    is_launched: Mask
    first_ns: Ints  # when the first of its calls begins
    first_row: Ints  # which call that is

    @classmethod
    def from_tables(cls, tables: NamedTables) -> "_Launched":
        launches = tables["launches"]
        ids = read_numbers(launches["correlation"], NONE)
        calls = SegmentTimes(ids, read_numbers(launches["start_ns"]))
        wanted = read_numbers(tables["kernels"]["correlation"], NONE)
        sorted_ids = ids[calls.order]
        first = np.minimum(np.searchsorted(sorted_ids, wanted), len(sorted_ids) - 1)
        is_launched = (wanted >= 0) & (sorted_ids[first] == wanted)
        return cls(calls, wanted, is_launched, calls.time[first], calls.order[first])

    def waited_ns(self, tables: NamedTables) -> Ints:
        """Return when the first call returned that waited for all work of the GPU after each
        activity was launched; _NEVER: none did, or its process has several GPUs."""
        launches = tables["launches"]
        waited = np.full(len(self.ids), _NEVER)
        waits = np.flatnonzero(match_texts(launches["name"], lambda name: name.startswith(_WAITS)))
        if not len(waits):
            return waited
        process = codes_of(launches["process"])[0].astype(np.int64)
        rows = np.flatnonzero(self.is_launched)
        of_process = process[self.first_row[rows]]
        device = read_numbers(tables["kernels"]["device"], NONE)[rows]
        gpus = Groups.by_keys([of_process, device]).keys[:, 0]
        alone = rows[np.isin(of_process, np.flatnonzero(np.bincount(gpus + 1) == 1) - 1)]
        if not len(alone):
            return waited
        start, end = read_times(launches)
        calls = SegmentTimes(process[waits], start[waits])
        until = calls.count_until(process[self.first_row[alone]], self.first_ns[alone])[1]
        after = np.append(calls.order, NONE)[until]
        is_waited = (after != NONE) & (process[waits[after]] == process[self.first_row[alone]])
        waited[alone[is_waited]] = end[waits[after[is_waited]]]
        return waited


def _place_activities(
    tables: dict[str, pa.Table],
    launched: _Launched,
    waited_ns: Ints,
    alone: Mask,
    seen: list[Impossible],
) -> None:
    """Let activities begin with their launches, or once what was launched before on their stream
    has ended; what lasted beyond the call that waited for it ends with that.

        launches   |1  |2  |3        recorded   11  33  .....  222      moved   11 222 33
    """
    kernels = tables["kernels"]
    start, end = read_times(kernels)
    length = end - start
    longest = np.maximum(waited_ns - launched.first_ns, 0)
    is_endless = alone & (length > longest + LATE_NS) & (waited_ns != _NEVER)
    stays = is_endless & (launched.first_ns <= start) & (start < waited_ns)
    text = "activity that goes on after a call that waited for it returned: cut there"
    report_impossible(seen, kernels, np.flatnonzero(is_endless), "endless", text)
    kinds = (
        ("early_activity", start < launched.first_ns, "begins before the call that launched it"),
        ("late_activity", start >= launched.first_ns, "ends after a call that waited for it"),
    )
    for kind, is_kind, what in kinds:
        rows = np.flatnonzero(alone & is_kind & ~is_endless)
        report_impossible(
            seen, kernels, rows, kind, f"activity that {what}: moved behind its launch"
        )
    begin = np.where(alone & ~stays, launched.first_ns, start)
    length = np.where(is_endless, np.where(stays, waited_ns - start, longest), length)
    columns = [read_numbers(kernels[name], NONE) for name in ("device", "context", "stream")]
    order = order_by(*columns, np.where(launched.is_launched, launched.first_ns, start))
    first = mark_heads(*(column[order] for column in columns))
    spent = np.cumsum(length[order])
    ends = np.empty_like(end)
    ends[order] = spent + running_max(first, begin[order] - spent + length[order])
    moved = np.flatnonzero(alone)
    stop = np.where(stays, waited_ns, ends)[moved]
    set_times(tables, "kernels", moved, stop - length[moved], stop)
