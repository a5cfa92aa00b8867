"""What each node of a replayed CUDA graph waits for, as torch 2.15 draws it.

An arrow leads from the end of one node, on its row, to the start of another of the same replay; its
number lies above all correlations. Callbacks on the host and records of events are nodes too, and
no GPU work: what waits for one waits for what that waits for, and for as long as it lasts.
"""

from collections import defaultdict

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import build_nulls, build_texts
from htk.base.columns.groups import row_of
from htk.base.columns.segments import SegmentTimes
from htk.base.columns.types import NONE, Ints, Mask
from htk.base.schema import TEXT
from htk.parsers.common.log_records import compact_json
from htk.parsers.kineto.sorting import Columns, is_any

_FIRST_ARROW = 1 << 40
_MOST_PASSED = 1_000  # nodes of the host before one activity; damaged files may hold more
_ROUNDED_NS = 4  # microseconds since the quarter of a year began, in 53 bits


def waits_of_nodes(kernels: Columns, others: Columns, flows: Columns) -> pa.Array:
    """Return, for each GPU activity, the nodes that it waits for and the nanoseconds of what runs
    on the host between, as JSON; null where no arrow leads to it."""
    number, is_number = flows.values("id")
    is_arrow = is_number & (number >= _FIRST_ARROW)
    if not is_arrow.any():
        return build_nulls(TEXT, kernels.length)
    tails, heads = _find_ends(kernels, others, flows, is_arrow)
    node, has_node = kernels.values("graph_node")
    usable = (heads != NONE) & (tails != NONE)
    before: dict[int, list[int]] = defaultdict(list)
    for tail, head in zip(tails[usable].tolist(), heads[usable].tolist(), strict=True):
        before[head].append(tail)
    start, end = others.times()
    host_ns = (end - start).tolist()
    node_of = np.where(has_node, node, NONE).tolist()
    waits: list[str | None] = [None] * kernels.length
    for head in range(kernels.length):
        if head in before:
            waits[head] = compact_json(_through_host(head, before, node_of, host_ns))
    return build_texts(waits)


def _through_host(
    head: int, before: dict[int, list[int]], node_of: list[int], host_ns: list[int]
) -> list[tuple[int, int]]:
    """Return the activities that lead to one, through callbacks and events or directly."""
    passed: dict[int, int] = {}
    ways = [(tail, 0) for tail in before[head]]
    seen: set[int] = set()
    while ways:
        row, passed_ns = ways.pop()
        if row < len(node_of):
            passed[node_of[row]] = max(passed_ns, passed.get(node_of[row], 0))
        elif row not in seen and len(seen) < _MOST_PASSED:  # they may run in circles, too
            seen.add(row)
            passed_ns += host_ns[row - len(node_of)]
            ways += [(tail, passed_ns) for tail in before.get(row, ())]
    return sorted((node, ns) for node, ns in passed.items() if node != NONE)


def _find_ends(
    kernels: Columns, others: Columns, flows: Columns, is_arrow: Mask
) -> tuple[Ints, Ints]:
    """Return the nodes that each arrow leads from and to: rows of activities, and after them of the
    other nodes; NONE: there is none."""
    number = flows.values("id")[0]
    time = flows.values("ts")[0]
    is_begin = is_any(*flows.codes("ph"), ("s",)) & is_arrow
    is_end = is_any(*flows.codes("ph"), ("f",)) & is_arrow
    parts = [(columns, columns.times()) for columns in (kernels, others)]
    lanes = [_number_lanes(columns) for columns, _ in parts]
    lane = np.concatenate(lanes)
    start = np.concatenate([times[0] - columns.base_ns for columns, times in parts])
    end = np.concatenate([times[1] - columns.base_ns for columns, times in parts])
    flow_lane = _number_lanes(flows)
    heads = row_of(np.column_stack([lane, start]), _stack_keys(flow_lane, time, is_end))
    ended = SegmentTimes(lane, end)
    begun = time[is_begin]
    tails = ended.last(flow_lane[is_begin], begun + _ROUNDED_NS)
    tails[(tails != NONE) & (end[tails] < begun - _ROUNDED_NS)] = NONE
    begin_of = row_of(number[is_begin], number[is_end])
    return np.where(begin_of == NONE, NONE, np.append(tails, NONE)[begin_of]), heads


def _stack_keys(lane: Ints, time: Ints, is_wanted: Mask) -> Ints:
    return np.asarray(np.column_stack([lane, time])[is_wanted])


def _number_lanes(columns: Columns) -> Ints:
    """Return a number for the row of the viewer that each event stands on."""
    codes = [columns.codes(name)[0].astype(np.int64) for name in ("pid", "tid")]
    return (codes[0] << 32) + codes[1]
