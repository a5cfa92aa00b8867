"""What a host cannot have done: calls twice, or beyond their callers, steps that overlap."""

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import (
    build_numbers,
    codes_of,
    read_booleans,
    read_keys,
    read_numbers,
    read_times,
    with_column,
)
from htk.base.columns.groups import Groups
from htk.base.columns.nesting import Nested, Threads
from htk.base.columns.order import order_by
from htk.base.columns.segments import mark_heads
from htk.base.columns.types import NONE, Ints, Mask
from htk.base.schema import INT32, INT64
from htk.parsers.common.doubtful import TICK_NS, Impossible, report_impossible
from htk.parsers.common.mending import set_times

_IDS = {"launches": "correlation", "cpu_ops": "external_id"}
_NUMBERS = {"event", "process", "external_id", "record_function_id", "sequence", "correlation"}
_ROUNDS = 32  # of cuts, each of which may uncover what a call was taken to hold
_ASYNCHRONOUS = "rpc_"  # PyTorch's remote calls end with their answer, after their caller


def mend_host(tables: dict[str, pa.Table], seen: list[Impossible]) -> None:
    """Leave out what the host did twice, and cut what lasts longer than it can."""
    _drop_repeated_calls(tables, seen)
    _cut_beyond_callers(tables, seen)
    if "annotations" in tables:
        _unmark_inner_steps(tables, seen)
        _cut_long_steps(tables, seen)


def are_inner_steps(step: Ints, start: Ints, end: Ints) -> Mask:
    """Return which steps lie within one of another number: marked by a second counter.

    ##### 10 #####   ##### 11 #####
      ## 110 ##        ## 111 ##      these
    """
    order = order_by(start, -end)
    reach = np.maximum.accumulate(end[order])
    is_longest = end[order] == reach
    holder = np.maximum.accumulate(np.where(is_longest, np.arange(len(order)), 0))
    is_inner = np.zeros(len(order), bool)
    around = holder[:-1]
    of_another = step[order][1:] != step[order][around]
    is_inner[order[1:]] = (end[order][1:] <= reach[:-1]) & of_another
    return is_inner


def _host_steps(ranges: pa.Table) -> tuple[Ints, Ints]:
    """Return the number of each range's step, and which rows are steps of the host."""
    step = read_numbers(ranges["step"], NONE)
    return step, np.flatnonzero((step != NONE) & ~read_booleans(ranges["on_gpu"]))


def _unmark_inner_steps(tables: dict[str, pa.Table], seen: list[Impossible]) -> None:
    """Let a step inside another one be a range as any other, on the host and on the GPU."""
    ranges = tables["annotations"]
    step, host = _host_steps(ranges)
    if len(host) < 2:
        return
    start, end = read_times(ranges)
    inner = host[are_inner_steps(step[host], start[host], end[host])]
    if not len(inner):
        return
    report_impossible(
        seen, ranges, inner, "inner_step", "step inside a step of another number: not a step"
    )
    outer = np.setdiff1d(step[host], step[inner])
    is_step = np.isin(step, outer)
    tables["annotations"] = with_column(ranges, "step", build_numbers(step, INT32, is_step))


def _cut_long_steps(tables: dict[str, pa.Table], seen: list[Impossible]) -> None:
    """Cut a step that goes on in the next one of its thread."""
    ranges = tables["annotations"]
    step, host = _host_steps(ranges)
    start, end = read_times(ranges)
    in_turn = host[order_by(start[host])]
    if not (end[in_turn][:-1] > start[in_turn][1:] + TICK_NS).any():  # whatever their threads
        return
    threads = Threads().number_threads(ranges, host)
    order = order_by(threads, start[host])
    host = host[order]
    follows = threads[order][1:] == threads[order][:-1]
    is_long = follows & (step[host][1:] != step[host][:-1])
    is_long &= end[host][:-1] > start[host][1:] + TICK_NS
    long = np.flatnonzero(is_long)
    text = "step that goes on in the next one: cut where that begins"
    report_impossible(seen, ranges, host[long], "long_step", text)
    if len(long):
        set_times(tables, "annotations", host[long], None, start[host[long + 1]])


def _drop_repeated_calls(tables: dict[str, pa.Table], seen: list[Impossible]) -> None:
    """Leave out what the host did twice in every respect, or in all but its numbers, if that is
    much of all it did. Times are looked at first: they hardly ever come again."""
    name = next((n for n in _IDS if n in tables and tables[n].num_rows), None)
    if name is None:
        return
    calls = tables[name]
    start, end = read_times(calls)
    moments = np.sort(start)
    if 3 * np.count_nonzero(moments[1:] == moments[:-1]) < calls.num_rows:
        return
    ids = read_numbers(calls[_IDS[name]])
    for numbers_too in (True, False):
        alike = (ids, start) if numbers_too else (start, end)
        order = order_by(*alike)
        again = order[~mark_heads(*(column[order] for column in alike))]
        again = again[ids[again] > 0] if numbers_too else again[end[again] > start[again]]
        if 3 * len(again) < calls.num_rows:
            continue
        repeats = calls.num_rows - _without_repeats(calls, numbers_too).num_rows
        if 3 * repeats >= calls.num_rows:
            break
    else:
        return
    text = "call or operator recorded twice, equal in all or all but its numbers: left out"
    seen.append(
        Impossible("repeated_call", int(read_numbers(calls["event"])[again[0]]), text, repeats)
    )
    for name in tables.keys() - {"kernels"}:
        if numbers_too or "end_ns" in tables[name].column_names:
            tables[name] = _without_repeats(tables[name], numbers_too)


def _without_repeats(table: pa.Table, numbers_too: bool) -> pa.Table:
    """Return the first of the rows that are equal in all but the number of their event.

    Unless their other numbers are to be equal too, what is shorter than its clock tells stays.
    """
    if not table.num_rows:
        return table
    left_out = {"event"} if numbers_too else _NUMBERS
    keys = [_key_of(table[name]) for name in table.column_names if name not in left_out]
    if not numbers_too:
        start, end = read_times(table)
        shortest = 0 if (start % TICK_NS).any() else TICK_NS
        keys.append(np.where(end - start > shortest, NONE, np.arange(len(start))))
    return table.take(np.sort(Groups.by_keys(keys).first_row))


def _key_of(column: pa.ChunkedArray) -> Ints:
    if pa.types.is_integer(column.type) or pa.types.is_boolean(column.type):
        return read_keys(column.cast(INT64))
    if pa.types.is_floating(column.type):
        return read_numbers(column, np.nan).astype(np.float64).view(np.int64)
    return codes_of(column)[0].astype(np.int64)


def _cut_beyond_callers(tables: dict[str, pa.Table], seen: list[Impossible]) -> None:
    """Cut operators, and calls to launch, that go on after the operator which called them.

        recorded   ##########          cut   ##########
                     #############             ########

    A call that is too long seems to hold what follows its caller; so callers are cut first, and
    what each holds is found anew.
    """
    names = [name for name in reversed(_IDS) if name in tables and tables[name].num_rows]
    if "cpu_ops" not in names:
        return
    threads = Threads()
    thread = np.concatenate([threads.number_threads(tables[name]) for name in names])
    times = [read_times(tables[name]) for name in names]
    start, recorded = (np.concatenate(column) for column in zip(*times, strict=True))
    is_operator = np.arange(len(start)) < tables["cpu_ops"].num_rows
    end = recorded
    for _ in range(_ROUNDS):
        caller = Nested(thread, start, end).parent
        is_long = (caller != NONE) & is_operator[caller] & (end > end[caller] + TICK_NS)
        is_long &= start < end[caller] - TICK_NS  # else it follows, by times that were rounded
        if not is_long.any():
            break
        first = np.flatnonzero(is_long & ~is_long[caller])
        end = end.copy()
        end[first] = end[caller[first]]
    if end is recorded:
        return
    row = 0
    for name in names:
        rows = slice(row, row + tables[name].num_rows)
        row = rows.stop
        cut = np.flatnonzero(end[rows] < recorded[rows])
        cut = cut[
            [not n.startswith(_ASYNCHRONOUS) for n in tables[name]["name"].take(cut).to_pylist()]
        ]
        text = "call that lasts longer than the operator it is called by: cut where that ends"
        report_impossible(seen, tables[name], cut, "long_call", text)
        if len(cut):
            set_times(tables, name, cut, None, end[rows][cut])
