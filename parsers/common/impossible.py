"""What cannot have happened on a GPU: found once as a recording is read, and counted as damage.

Where the truth can be told it is mended (what is recorded twice, a clock that runs behind, an
activity that lasts over those which follow on its stream); else it is kept and named.
"""

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import codes_of, read_numbers, read_times
from htk.base.columns.order import order_by
from htk.base.columns.segments import mark_heads, running_max
from htk.base.columns.types import NONE, Ints, Mask
from htk.base.core.humanize import format_duration
from htk.base.mappings import Facts, NamedTables
from htk.parsers.common.doubtful import (
    TICK_NS,
    Impossible,
    name_doubtful,
    name_lost_gpu,
    report_impossible,
)
from htk.parsers.common.host_order import mend_host
from htk.parsers.common.launch_order import FAR_NS, mend_launched
from htk.parsers.common.mending import set_times, without_rows

_TIMED = ("kernels", "cpu_ops", "launches", "annotations")
_ENDLESS_NS = 1_000_000_000
_ENDLESS_TIMES = 10  # as long as all else of a recording, so that nothing else saw its end
_MANY = 100  # events at least, of which a single one lasts so long
_BESIDE = 3  # activities of one stream that programmatic launches may let run at a time
_FEWEST = 3  # more than those that tell of a stream which does not run in order


def mend_impossible(
    tables: NamedTables, facts: Facts, *, keep_overruns: bool = False
) -> tuple[dict[str, pa.Table], list[Impossible]]:
    """Return the tables of a recording without what cannot be, and what was found.

    `keep_overruns`: activities that last over those which follow on their stream stay as they are.
    """
    mended = dict(tables)
    seen: list[Impossible] = []
    mend_host(mended, seen)
    if "kernels" in mended and mended["kernels"].num_rows:
        streams = _Streams.from_kernels(mended["kernels"])
        _drop_repeats(streams, mended, seen)
        streams = streams.now(mended)
        overlong = _find_overlong(streams)
        mend_launched(mended, overlong[0], seen)
        if mended["kernels"] is not streams.kernels:
            streams = streams.now(mended)
            overlong = _find_overlong(streams)
        _mend_overruns(mended, overlong, seen, keep_overruns)
        _name_crowded(streams.now(mended), seen)
        name_doubtful(mended, facts, seen)
    elif "launches" in mended:
        name_lost_gpu(mended, facts, seen)
    _mend_endless(mended, seen)
    return mended, seen


class _Streams(NamedTuple):
    """Activities stream by stream in the order of their times; several checks look at them so.

    Activities of one graph run beside each other, whatever their stream; what has no length
    stands anywhere.
    """

    kernels: pa.Table
    order: Ints  # rows of the table
    first: Mask  # of each stream
    start: Ints
    end: Ints

    @classmethod
    def from_kernels(cls, kernels: pa.Table) -> "_Streams":
        start, end = read_times(kernels)
        stream = read_numbers(kernels["stream"], NONE)
        rows = np.flatnonzero(
            (read_numbers(kernels["graph_id"]) <= 0) & (stream >= 0) & (end > start)
        )
        names = ("device", "context", "stream", "start_ns", "end_ns", "correlation")
        columns = [read_numbers(kernels[name], NONE)[rows] for name in names]
        order = order_by(*columns)
        first = mark_heads(*(column[order] for column in columns[:3]))
        return cls(kernels, rows[order], first, columns[3][order], columns[4][order])

    def now(self, tables: NamedTables) -> "_Streams":
        """Return those of the tables as they now are."""
        kernels = tables["kernels"]
        return self if kernels is self.kernels else _Streams.from_kernels(kernels)


def _drop_repeats(streams: _Streams, tables: dict[str, pa.Table], seen: list[Impossible]) -> None:
    """Leave out what a GPU is told to have done twice: at one time, or by one launch and beginning
    before the first has ended."""
    kernels, order, first, start, end = streams
    correlation = read_numbers(kernels["correlation"], NONE)[order]
    alike = ~first & (correlation >= 0)
    for values in (end - start, codes_of(kernels["name"])[0][order]):
        alike[1:] &= values[1:] == values[:-1]
    is_one_launch = correlation[1:] == correlation[:-1]
    is_one_time = (start[1:] == start[:-1]) & (end - start > TICK_NS)[1:]
    alike[1:] &= is_one_time | (is_one_launch & (start[1:] < end[:-1]))
    repeats = np.sort(order[alike])
    if not len(repeats):
        return
    text = "activity recorded twice, of one name, time and stream: left out"
    report_impossible(seen, kernels, repeats, "repeated_activity", text)
    tables["kernels"] = without_rows(kernels, repeats)


def _find_overlong(streams: _Streams) -> tuple[Mask, Ints]:
    """Return which activities last over those that follow on their stream, and where each would
    end if it ended when the next begins.

        recorded   ####################        cut   ####
                        ###    ###                       ###    ###

    Streams run in order; the beginning alone may overlap (programmatic dependent launch).
    """
    kernels, order, first, start, end = streams
    is_long = np.zeros(kernels.num_rows, bool)
    cut = read_numbers(kernels["end_ns"])
    if not (~first[1:] & (end[1:] < end[:-1])).any():  # none outlasts the next one
        return is_long, cut
    # The earliest end of what follows: a running minimum from the stream's end.
    is_last = np.append(first[1:], True)
    earliest = -running_max(is_last[::-1], -end[::-1])[::-1]
    next_end = np.append(earliest[1:], 0)
    overlong = np.flatnonzero(~is_last & (end > next_end + TICK_NS))
    rows = order[overlong]
    is_long[rows] = True
    cut = cut.copy()
    cut[rows] = np.maximum(start[overlong], start[overlong + 1])
    return is_long, cut


def _mend_overruns(
    tables: dict[str, pa.Table],
    overlong: tuple[Mask, Ints],
    seen: list[Impossible],
    keep_overruns: bool,
) -> None:
    """Cut what lasts over its followers, unless it is to be kept; `overlong`: as `_find_overlong`
    returns it of these tables."""
    kernels = tables["kernels"]
    is_long, cut = overlong
    rows = np.flatnonzero(is_long)
    if not len(rows):
        return
    over = format_duration(int((read_numbers(kernels["end_ns"]) - cut).sum()))
    text = f"activity that lasts over those that follow on its stream, by {over} in all"
    if keep_overruns:
        report_impossible(seen, kernels, rows, "overrun_kept", f"{text}: kept, as asked")
        return
    report_impossible(seen, kernels, rows, "overrun", f"{text}: cut there")
    set_times(tables, "kernels", rows, None, cut[rows])


def _name_crowded(streams: _Streams, seen: list[Impossible]) -> None:
    """Add what begins before the third activity before it on its stream has ended."""
    kernels, order, first, start, end = streams
    stream = np.cumsum(first)
    beside = stream[_BESIDE:] == stream[:-_BESIDE]
    beside &= end[:-_BESIDE] > start[_BESIDE:] + TICK_NS
    rows = order[np.flatnonzero(beside) + _BESIDE]
    if len(rows) >= _FEWEST:
        text = "activity that runs beside three others of its stream, which runs in order: kept"
        report_impossible(seen, kernels, rows, "crowded_stream", text)


def _mend_endless(tables: dict[str, pa.Table], seen: list[Impossible]) -> None:
    """Look at the only event that goes on long after all others of its recording.

    It may be true: then nothing was recorded that saw its end. What others of its thread follow
    is cut where all others have ended. One that begins so late is left out.
    """
    events = tables.get("events")
    if events is None or events.num_rows < _MANY:
        return
    start, end = read_times(events)
    last = int(np.argmax(end))
    ended = int(np.delete(end, last).max())
    over_ns = int(end[last]) - ended
    if over_ns <= max(_ENDLESS_NS, _ENDLESS_TIMES * (ended - int(start.min()))):
        return
    event = int(read_numbers(events["event"])[last])
    holder = next((n for n in _TIMED if n in tables and len(_rows_of(tables[n], event))), None)
    if holder is None:
        return
    rows = _rows_of(tables[holder], event)
    over = format_duration(over_ns)
    if start[last] - ended > FAR_NS:
        if holder != "annotations":  # a range of the user's may hold nothing
            text = f"event {over} after all others, left out"
            report_impossible(seen, tables[holder], rows, "stray_time", text)
            tables[holder] = without_rows(tables[holder], rows)
            tables["events"] = without_rows(events, np.array([last]))
        return
    if start[last] >= ended and holder != "kernels":  # nothing tells against it
        return
    is_later = start > start[last]
    for column in ("process", "thread"):
        codes = codes_of(events[column])[0]
        is_later &= codes == codes[last]
    text = f"event that outlasts all others by {over}"
    is_range = (
        holder == "annotations" and read_numbers(tables[holder]["step"], NONE)[rows[0]] == NONE
    )
    if holder in ("cpu_ops", "launches") and is_later.any():
        set_times(tables, holder, rows, None, np.int64(ended))
        report_impossible(seen, tables[holder], rows, "endless", f"{text}: cut where they end")
    elif not is_range and end[last] - start[last] > over_ns // 2:
        report_impossible(
            seen, tables[holder], rows, "outlasting", f"{text}: kept, nothing saw its end"
        )


def _rows_of(spans: pa.Table, event: int) -> Ints:
    return np.flatnonzero(read_numbers(spans["event"], NONE) == event)
