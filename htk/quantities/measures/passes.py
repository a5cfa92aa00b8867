"""The pass of each operator and activity, from the tables `op_passes` and `kernel_passes`."""

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import (
    codes_of,
    mark_valid,
    match_texts,
    read_booleans,
    read_lengths,
    read_numbers,
    read_times,
)
from htk.base.columns.groups import Groups, number_hosts
from htk.base.columns.nesting import Nested
from htk.base.columns.order import order_by
from htk.base.columns.types import NONE, Ints, Mask
from htk.base.names.phases import OTHER, PHASES, phase_of_range
from htk.base.schema import TEXT


class RangeTimes(NamedTuple):
    """Time of a host in ranges that name a phase."""

    host: Ints
    start: Ints
    end: Ints
    phase: Ints


def phase_codes(passes: pa.Table) -> Ints:
    """Return the place of each row's phase in PHASES; NONE where its launch was not recorded."""
    codes, texts = codes_of(passes["phase"])
    return np.array([*(PHASES.index(t) for t in texts.to_pylist()), NONE], np.int64)[codes]


def is_backward(passes: pa.Table) -> Mask:
    """Return which rows are of the backward pass, forward work that is done again included."""
    return match_texts(passes["phase"], "backward".__eq__)


def naming_ranges(annotations: pa.Table) -> pa.Table:
    """Return the user ranges of threads that name a phase."""
    named = match_texts(annotations["name"], lambda name: phase_of_range(name) != OTHER)
    named &= ~read_booleans(annotations["on_gpu"]) & ~mark_valid(annotations["step"])
    return annotations.filter(pa.array(named))


def phases_of_ranges(ranges: pa.Table) -> Ints:
    codes, names = codes_of(ranges["name"])
    return np.array([*(phase_of_range(n) for n in names.to_pylist()), OTHER], np.int64)[codes]


def threads_of(*tables: pa.Table) -> list[Ints]:
    """Return the number of the (rank, cycle, process, thread) of each row of each table."""
    columns = [np.concatenate([number_hosts(table) for table in tables])]
    for name in ("process", "thread"):
        chunks = [chunk for table in tables for chunk in table[name].chunks]
        columns.append(codes_of(pa.chunked_array(chunks, TEXT))[0].astype(np.int64))
    ids = Groups.by_keys(columns).group_ids
    return np.split(ids, np.cumsum([table.num_rows for table in tables])[:-1])


def between_operators(cpu_ops: pa.Table, op_links: pa.Table, annotations: pa.Table) -> RangeTimes:
    """Return the time of ranges that name a phase, less the operators of their thread, which have
    a phase of their own; of nested ranges the innermost counts. It is cut where steps are."""
    ranges = naming_ranges(annotations)
    if not ranges.num_rows:
        none = np.empty(0, np.int64)
        return RangeTimes(none, none, none, none)
    lasting = read_lengths(cpu_ops) > 0  # one without length, beside others, would hide them
    outer = cpu_ops.filter(pa.array(lasting & (read_numbers(op_links["depth"]) == 0)))
    thread, of_ops = threads_of(ranges, outer)
    start, end = read_times(ranges)
    op_start, op_end = read_times(outer)
    cut, of_cut = _edges_of_steps(annotations, thread, number_hosts(ranges))
    edge = np.concatenate([start, end, op_start, op_end, cut])
    whose = np.concatenate([thread, thread, of_ops, of_ops, of_cut])
    order = order_by(whose, edge)
    whose = whose[order]
    edge = edge[order]
    pieces = np.flatnonzero((whose[1:] == whose[:-1]) & (edge[1:] > edge[:-1]))
    whose = whose[pieces]
    low = edge[pieces]
    high = edge[pieces + 1]
    row = Nested(thread, start, end).around(whose, low)
    operators = Nested(of_ops, op_start, op_end, np.full(len(of_ops), NONE))
    kept = (row != NONE) & (operators.around(whose, low) == NONE)
    row = row[kept]
    host = number_hosts(ranges)[row]
    phase = phases_of_ranges(ranges)[row]
    return RangeTimes(host, low[kept], high[kept], phase)


def _edges_of_steps(annotations: pa.Table, thread: Ints, host: Ints) -> tuple[Ints, Ints]:
    """Return when steps of its host begin and end, for each thread; and that thread."""
    is_step = mark_valid(annotations["step"]) & ~read_booleans(annotations["on_gpu"])
    steps = annotations.filter(pa.array(is_step))
    edge = np.concatenate(read_times(steps))
    of_edge = np.tile(number_hosts(steps), 2)
    threads, first = np.unique(thread, return_index=True)
    edges = [edge[of_edge == machine] for machine in host[first].tolist()]  # a few threads a rank
    return np.concatenate(edges), np.repeat(threads, [len(times) for times in edges])
