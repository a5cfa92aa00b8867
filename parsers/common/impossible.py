"""What cannot have happened on a GPU: found once as a recording is read, and counted as damage.

Where the truth can be told it is mended (what is recorded twice, a clock that runs behind, an
activity that lasts over those which follow on its stream); else it is kept and named.
"""

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import (
    codes_of,
    number,
    numbers,
    read_keys,
    read_times,
    truths,
    with_column,
)
from htk.base.columns.groups import Groups
from htk.base.columns.order import ordered
from htk.base.columns.segments import SegmentTimes, heads, running_max
from htk.base.columns.types import NONE, Ints, Mask
from htk.base.core.humanize import format_duration
from htk.base.mappings import Facts, NamedTables
from htk.base.schema import INT32, INT64
from htk.parsers.common.doubtful import TICK_NS, Impossible, name_doubtful, name_lost_gpu, report
from htk.quantities.derived.links import is_ambiguous

_FAR_NS = 60_000_000_000
_FEWEST, _CLOCK_PCT = 3, 2  # activities, and of the launched ones, are early if the clock is wrong
_IDS = {"launches": "correlation", "cpu_ops": "external_id"}
_TIMED = ("kernels", "cpu_ops", "launches")  # a range of the user's may hold nothing
_ENDLESS_NS = 1_000_000_000
_ENDLESS_TIMES = 10  # as long as all else of a recording, so that nothing else saw its end
_MANY = 100  # events at least, of which a single one lasts so long


def mend_impossible(
    tables: NamedTables, facts: Facts
) -> tuple[dict[str, pa.Table], list[Impossible]]:
    """Return the tables of a recording without what cannot be, and what was found."""
    mended = dict(tables)
    seen: list[Impossible] = []
    _drop_repeated_calls(mended, seen)
    if "annotations" in mended:
        _unmark_inner_steps(mended, seen)
    if "kernels" in mended and mended["kernels"].num_rows:
        _drop_repeats(mended, seen)
        launches = _Launches.of(mended)
        if launches is not None and _drop_far_ones(mended, launches, seen):
            launches = _Launches.of(mended)
        if launches is not None:
            _move_early_clocks(mended, launches, seen)
        _cut_overruns(mended, seen)
        name_doubtful(mended, facts, seen)
    elif "launches" in mended:
        name_lost_gpu(mended, facts, seen)
    _cut_endless(mended, seen)
    return mended, seen


def are_inner_steps(step: Ints, start: Ints, end: Ints) -> Mask:
    """Return which steps lie within one of another number: marked by a second counter.

    ##### 10 #####   ##### 11 #####
      ## 110 ##        ## 111 ##      these
    """
    order = ordered(start, -end)
    reach = np.maximum.accumulate(end[order])
    is_longest = end[order] == reach
    holder = np.maximum.accumulate(np.where(is_longest, np.arange(len(order)), 0))
    is_inner = np.zeros(len(order), bool)
    around = holder[:-1]
    of_another = step[order][1:] != step[order][around]
    is_inner[order[1:]] = (end[order][1:] <= reach[:-1]) & of_another
    return is_inner


def _unmark_inner_steps(tables: dict[str, pa.Table], seen: list[Impossible]) -> None:
    """Let a step inside another one be a range as any other, on the host and on the GPU."""
    ranges = tables["annotations"]
    step = numbers(ranges["step"], NONE)
    host = np.flatnonzero((step != NONE) & ~truths(ranges["on_gpu"]))
    start, end = read_times(ranges)
    inner = host[are_inner_steps(step[host], start[host], end[host])]
    if not len(inner):
        return
    report(seen, ranges, inner, "inner_step", "step inside a step of another number: not a step")
    outer = np.setdiff1d(step[host], step[inner])
    is_step = np.isin(step, outer)
    tables["annotations"] = with_column(ranges, "step", number(step, INT32, is_step))


def _stream_order(kernels: pa.Table) -> tuple[Ints, Mask]:
    """Return the activities stream by stream in the order of their times, and where each begins.

    Activities of one graph run beside each other, whatever their stream; what has no length
    stands anywhere.
    """
    graph = numbers(kernels["graph_id"])
    stream = numbers(kernels["stream"], NONE)
    has_length = numbers(kernels["end_ns"]) > numbers(kernels["start_ns"])
    rows = np.flatnonzero((graph <= 0) & (stream >= 0) & has_length)
    names = ("device", "context", "stream", "start_ns", "end_ns", "correlation")
    columns = [numbers(kernels[name], NONE)[rows] for name in names]
    order = ordered(*columns)
    return rows[order], heads(*(column[order] for column in columns[:3]))


def _drop_repeated_calls(tables: dict[str, pa.Table], seen: list[Impossible]) -> None:
    """Leave out what the host did twice in every respect, if that is much of all it did.

    Ids and times are looked at first: together they hardly ever come again.
    """
    name = next((n for n in _IDS if n in tables and tables[n].num_rows), None)
    if name is None:
        return
    calls = tables[name]
    start = numbers(calls["start_ns"])
    ids = numbers(calls[_IDS[name]])
    order = ordered(ids, start)
    again = order[~heads(ids[order], start[order])]
    again = again[ids[again] > 0]
    if 3 * len(again) < calls.num_rows:
        return
    repeats = calls.num_rows - _without_repeats(calls).num_rows
    if 3 * repeats < calls.num_rows:
        return
    text = "call or operator recorded twice, equal in all: left out, as is all else like it"
    seen.append(Impossible("repeated_call", int(numbers(calls["event"])[again[0]]), text, repeats))
    for name in tables.keys() - {"kernels"}:
        tables[name] = _without_repeats(tables[name])


def _drop_repeats(tables: dict[str, pa.Table], seen: list[Impossible]) -> None:
    """Leave out what a GPU is told to have done twice."""
    kernels = tables["kernels"]
    order, first = _stream_order(kernels)
    alike = ~first
    names = codes_of(kernels["name"])[0]
    keys = [numbers(kernels[key], NONE) for key in ("start_ns", "end_ns", "correlation")]
    for values in (*keys, names):
        alike[1:] &= values[order][1:] == values[order][:-1]
    alike &= ((keys[2] >= 0) & (keys[1] > keys[0]))[order]  # of no length there may be several
    repeats = np.sort(order[alike])
    if not len(repeats):
        return
    text = "activity recorded twice, of one time, stream and correlation: left out"
    report(seen, kernels, repeats, "repeated_activity", text)
    tables["kernels"] = _without_rows(kernels, repeats)


def _without_rows(table: pa.Table, rows: Ints) -> pa.Table:
    return table.take(np.delete(np.arange(table.num_rows), rows))


def _without_repeats(table: pa.Table) -> pa.Table:
    """Return the first of the rows that are equal in all but the number of their event."""
    if not table.num_rows:
        return table
    keys = [_key_of(table[name]) for name in table.column_names if name != "event"]
    return table.take(np.sort(Groups.by_keys(keys).first_row))


def _key_of(column: pa.ChunkedArray) -> Ints:
    if pa.types.is_integer(column.type) or pa.types.is_boolean(column.type):
        return read_keys(column.cast(INT64))
    if pa.types.is_floating(column.type):
        return numbers(column, np.nan).astype(np.float64).view(np.int64)
    return codes_of(column)[0].astype(np.int64)


class _Launches(NamedTuple):
    """The calls with the id of each activity; ids may be used anew."""

    calls: SegmentTimes  # by their ids
    ids: Ints  # of the activities
    is_launched: Mask
    first_ns: Ints  # when the first of its calls begins

    @classmethod
    def of(cls, tables: NamedTables) -> "_Launches | None":
        launches = tables.get("launches")
        if launches is None or not launches.num_rows:
            return None
        ids = numbers(launches["correlation"], NONE)
        calls = SegmentTimes(ids, numbers(launches["start_ns"]))
        wanted = numbers(tables["kernels"]["correlation"], NONE)
        sorted_ids = ids[calls.order]
        first = np.minimum(np.searchsorted(sorted_ids, wanted), len(sorted_ids) - 1)
        is_launched = (wanted >= 0) & (sorted_ids[first] == wanted)
        return cls(calls, wanted, is_launched, calls.time[first])


def _drop_far_ones(
    tables: dict[str, pa.Table], launches: _Launches, seen: list[Impossible]
) -> bool:
    """Leave out what begins a minute after its launch on a GPU that did nothing meanwhile."""
    kernels = tables["kernels"]
    start = numbers(kernels["start_ns"])
    late = np.flatnonzero(launches.is_launched & (start - launches.first_ns > _FAR_NS))
    if not len(late):
        return False
    last = launches.calls.last(launches.ids[late], start[late])
    late = late[start[late] - numbers(tables["launches"]["start_ns"])[last] > _FAR_NS]
    end = np.sort(numbers(kernels["end_ns"]))
    before = np.searchsorted(end, start[late], "right") - 1
    idle_ns = start[late] - np.where(before >= 0, end[before], start.min())
    far = late[idle_ns > _FAR_NS]
    if len(far):
        text = "activity a minute and more after its launch and all other work: left out"
        report(seen, kernels, far, "far_activity", text)
        tables["kernels"] = _without_rows(kernels, far)
    return bool(len(far))


def _move_early_clocks(
    tables: dict[str, pa.Table], launches: _Launches, seen: list[Impossible]
) -> None:
    """Move the times of a GPU many of whose activities begin before their launches.

    How far its clock is behind is not known; the least that makes all of them possible is.
    """
    kernels = tables["kernels"]
    early_ns = launches.first_ns - numbers(kernels["start_ns"])
    is_early = launches.is_launched & (early_ns > TICK_NS)
    if is_early.any():
        is_early &= ~is_ambiguous(kernels, tables["launches"])
    device = numbers(kernels["device"], NONE)
    for gpu in np.unique(device[is_early]).tolist():
        early = np.flatnonzero(is_early & (device == gpu))
        of_gpu = int((launches.is_launched & (device == gpu)).sum())
        if len(early) < _FEWEST or 100 * len(early) < _CLOCK_PCT * of_gpu:
            text = "activity that begins before the call that launched it: kept"
            report(seen, kernels, early, "early_activity", text)
            continue
        behind_ns = int(early_ns[early].max())
        text = (
            f"GPU {max(gpu, 0)}'s clock is at least {format_duration(behind_ns)} behind the host's"
            " (activities begin before their launches): its times are moved by that"
        )
        report(seen, kernels, early, "gpu_clock", text)
        for name in tables.keys() & {"kernels", "annotations"}:
            of_clock = numbers(tables[name]["device"], NONE) == gpu
            tables[name] = _moved(tables[name], np.where(of_clock, behind_ns, 0))


def _moved(table: pa.Table, shift_ns: Ints) -> pa.Table:
    for name in ("start_ns", "end_ns"):
        table = with_column(table, name, number(numbers(table[name]) + shift_ns, INT64))
    return table


def _cut_overruns(tables: dict[str, pa.Table], seen: list[Impossible]) -> None:
    """Cut what lasts over activities that follow on its stream, where the next of them begins.

        recorded   ####################        cut   ####
                        ###    ###                       ###    ###

    Streams run in order; the beginning alone may overlap (programmatic dependent launch).
    """
    kernels = tables["kernels"]
    order, first = _stream_order(kernels)
    if not len(order):
        return
    start, end = read_times(kernels)
    # The earliest end of what follows: a running minimum from the stream's end.
    last = np.append(first[1:], True)[::-1]
    earliest = -running_max(last, -end[order][::-1])[::-1]
    follows = ~np.append(first[1:], True)
    next_end = np.append(earliest[1:], 0)
    overlong = np.flatnonzero(follows & (end[order] > next_end + TICK_NS))
    if not len(overlong):
        return
    rows = order[overlong]
    following = order[overlong + 1]
    cut = end.copy()
    cut[rows] = np.maximum(start[rows], start[following])
    over = format_duration(int((end - cut).sum()))
    text = f"activity that lasts over those that follow on its stream: cut there, by {over} in all"
    report(seen, kernels, rows, "overrun", text)
    _cut_at(tables, "kernels", rows, cut[rows])


def _cut_endless(tables: dict[str, pa.Table], seen: list[Impossible]) -> None:
    """Cut the only event that goes on long after all others of its recording: where its caller
    ends or, if it has none, where all others have ended. One that begins so late is left out."""
    events = tables.get("events")
    if events is None or events.num_rows < _MANY:
        return
    start, end = read_times(events)
    last = int(np.argmax(end))
    ended = int(np.delete(end, last).max())
    over_ns = int(end[last]) - ended
    if over_ns <= max(_ENDLESS_NS, _ENDLESS_TIMES * (ended - int(start.min()))):
        return
    event = int(numbers(events["event"])[last])
    holder = next((n for n in _TIMED if n in tables and len(_rows_of(tables[n], event))), None)
    if holder is None:
        return
    rows = _rows_of(tables[holder], event)
    over = format_duration(over_ns)
    if start[last] < ended:
        is_round = (start < start[last]) & (end > start[last]) & (end <= ended)
        for column in ("process", "thread"):
            codes = codes_of(events[column])[0]
            is_round &= codes == codes[last]
        _cut_at(tables, holder, rows, end[is_round].min(initial=ended))
        report(seen, tables[holder], rows, "endless", f"event that outlasts all others by {over}")
    elif start[last] - ended > _FAR_NS:
        text = f"event {over} after all others, left out"
        report(seen, tables[holder], rows, "stray_time", text)
        tables[holder] = _without_rows(tables[holder], rows)
        tables["events"] = _without_rows(events, np.array([last]))


def _rows_of(spans: pa.Table, event: int) -> Ints:
    return np.flatnonzero(numbers(spans["event"], NONE) == event)


def _cut_at(tables: dict[str, pa.Table], name: str, rows: Ints, ends: Ints | np.int64) -> None:
    """Let activities end earlier, in their table and in that of all events."""
    events = numbers(tables[name]["event"])[rows]
    for holder in {name, "events"} & tables.keys():
        table = tables[holder]
        numbered = numbers(table["event"])
        order = ordered(numbered)
        end = numbers(table["end_ns"]).copy()
        end[order[np.searchsorted(numbered[order], events)]] = ends
        tables[holder] = with_column(table, "end_ns", number(end, INT64))
