"""What keeps the host from launching: calls that block, allocate or load, collections of garbage,
compilation, data loading, operators that take long.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import (
    build_numbers,
    codes_of,
    decode_texts,
    match_texts,
    number_or_null,
    read_booleans,
    read_lengths,
    read_numbers,
    read_times,
)
from htk.base.columns.nesting import FILE, files_of
from htk.base.columns.order import order_by
from htk.base.columns.segments import mark_heads, running_max
from htk.base.columns.types import NO_TIME, NONE, Ints, Mask
from htk.base.schema import INT32, INT64, STRING
from htk.quantities.derived.host_states import (
    ALLOCATION,
    COMPILATION,
    GC,
    LAZY,
    LOADING,
    OPERATOR,
    PROFILER,
    START_UP,
    STATES,
    SYNC,
    SYSTEM,
    call_states,
    overhead_state,
    span_state,
)

LONG_NS = 1_000_000  # an operator that keeps the host so long is no matter of launching fast
_LONG_COPY_NS = 50_000  # asynchronous copies return sooner, unless their memory is pageable
WAITING = (PROFILER, GC, COMPILATION, START_UP, LAZY, ALLOCATION, SYNC, LOADING, SYSTEM)
_WAITS = np.array([*(state in WAITING for state in range(len(STATES))), False])  # by state or NONE


class _Stalls(NamedTuple):
    file: Ints
    state: Ints
    start: Ints
    end: Ints
    op: Ints  # row of the operator round it, or NONE
    name: pa.Array  # texts


_NO_ROWS = np.empty(0, np.int64)
_NOTHING = _Stalls(_NO_ROWS, _NO_ROWS, _NO_ROWS, _NO_ROWS, _NO_ROWS, pa.nulls(0, STRING))


def stalls(
    kernels: pa.Table,
    kernel_links: pa.Table,
    launches: pa.Table,
    launch_links: pa.Table,
    cpu_ops: pa.Table,
    op_links: pa.Table,
    annotations: pa.Table,
    python_calls: pa.Table,
    overheads: pa.Table,
) -> pa.Table:
    """Return the stalls of the host of one file, in order of their start. One inside another of the
    same state is left out: a range and the function in it are one.

    Where the tables are those of several files (`derived.together`), so is the answer.
    """
    on_host = ~read_booleans(annotations["on_gpu"])
    parts = [
        _find_call_stalls(call_states(launches, kernels, kernel_links), launches, launch_links),
        _find_span_stalls(cpu_ops, span_state, np.ones(cpu_ops.num_rows, bool)),
        _find_span_stalls(annotations, span_state, on_host),
        _find_span_stalls(python_calls, span_state, np.ones(python_calls.num_rows, bool)),
        _find_span_stalls(overheads, overhead_state, np.ones(overheads.num_rows, bool)),
        _long_operators(cpu_ops, op_links),
    ]
    file, state, start, end, op = (
        np.concatenate(column) for column in zip(*(part[:-1] for part in parts), strict=True)
    )
    kept = _find_outermost(state, start, end)
    kept = kept[order_by(start[kept])]
    columns = {
        "cause": decode_texts(state[kept], pa.array(STATES)),
        "name": pa.concat_arrays([part.name for part in parts])
        .take(pa.array(kept))
        .dictionary_encode(),
        "op_row": build_numbers(op[kept], INT64, op[kept] != NONE),
        "start_ns": build_numbers(start[kept], INT64),
        "end_ns": build_numbers(end[kept], INT64),
    }
    if FILE in launches.column_names:
        columns[FILE] = build_numbers(file[kept], INT64)
    return pa.table(columns)


def _find_call_stalls(state: Ints, launches: pa.Table, launch_links: pa.Table) -> _Stalls:
    """Return the calls that block, allocate or load code."""
    length = read_lengths(launches)
    quick = match_texts(launches["name"], lambda n: "Memcpy" in n and "Async" in n)
    chosen = _WAITS[state] & ~(quick & (length < _LONG_COPY_NS))
    rows = np.flatnonzero(chosen)
    return _pick_spans(
        launches, rows, state[rows], read_numbers(launch_links["op_row"], NONE)[rows]
    )


def _long_operators(cpu_ops: pa.Table, op_links: pa.Table) -> _Stalls:
    """Outermost operators that keep the host longer than any launch takes."""
    length = read_lengths(cpu_ops)
    rows = np.flatnonzero((read_numbers(op_links["depth"], 0) == 0) & (length >= LONG_NS))
    return _pick_spans(cpu_ops, rows, np.full(len(rows), OPERATOR), np.full(len(rows), NONE))


def _find_span_stalls(spans: pa.Table, rule: Callable[[str], int], chosen: Mask) -> _Stalls:
    codes, dictionary = codes_of(spans["name"])
    state = np.array([*(rule(name) for name in dictionary.to_pylist()), NONE], np.int64)[codes]
    rows = np.flatnonzero(chosen & _WAITS[state])
    return _pick_spans(spans, rows, state[rows], np.full(len(rows), NONE))


def _pick_spans(spans: pa.Table, rows: Ints, state: Ints, op: Ints) -> _Stalls:
    if not len(rows):
        return _NOTHING
    start, end = read_times(spans, rows)
    codes, names = codes_of(spans["name"])
    own = codes[rows]
    taken = names.take(number_or_null(own, INT32))
    file = files_of(spans)[rows]
    return _Stalls(file, state.astype(np.int64), start, end, op.astype(np.int64), taken)


def _find_outermost(state: Ints, start: Ints, end: Ints) -> Ints:
    """Return the rows that lie inside no other one of their state."""
    order = order_by(state, start, -end)
    first = mark_heads(state[order])
    reach = running_max(first, end[order])
    before = np.where(first, NO_TIME, np.append(NO_TIME, reach[:-1])[: len(order)])
    return np.asarray(order[end[order] > before])
