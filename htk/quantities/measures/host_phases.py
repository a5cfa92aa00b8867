"""Phases on the host: when its outermost operators, and its ranges between them, run."""

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import read_booleans, read_numbers, read_times
from htk.base.columns.groups import number_hosts, split_pairs
from htk.base.columns.types import NONE, Ints, take_or
from htk.quantities.derived.links import steps_of
from htk.quantities.measures.passes import between_operators, phase_codes

NO_STEP = np.iinfo(np.int32).max  # what has no step comes last


def phase_keys(rows: pa.Table, step: pa.ChunkedArray, phase: Ints) -> Ints:
    """Return rank, step, phase and cycle of each row."""
    columns = [
        read_numbers(rows["rank"], NONE),
        read_numbers(step, NO_STEP),
        phase,
        read_numbers(rows["cycle"], 0),
    ]
    return np.array(columns, np.int64).T  # each column in one piece


def host_phase_spans(
    cpu_ops: pa.Table, op_links: pa.Table, op_passes: pa.Table, annotations: pa.Table
) -> tuple[Ints, Ints, Ints]:
    """Rank, step, phase and cycle of outermost operators and of the time of ranges between them,
    with their times."""
    top = pa.array((read_numbers(op_links["depth"]) == 0) & read_booleans(op_links["selected"]))
    outer = cpu_ops.select(["rank", "cycle", "start_ns", "end_ns"]).filter(top)
    phases = phase_codes(op_passes.select(["phase"]).filter(top))
    keys = phase_keys(outer, op_links["step"].filter(top), phases)
    ranges = between_operators(cpu_ops, op_links, annotations)
    rank, cycle = split_pairs(ranges.host)
    step = _steps_at(annotations, ranges.host, ranges.start)
    between = np.array([rank, step, ranges.phase, cycle]).T
    keys = np.concatenate([keys, between]).astype(np.int64)
    start, end = read_times(outer)
    return keys, np.append(start, ranges.start), np.append(end, ranges.end)


def _steps_at(annotations: pa.Table, host: Ints, time: Ints) -> Ints:
    """Return the step of each host at each time."""
    step_of_row = np.full(len(time), NO_STEP, np.int64)
    whose = number_hosts(annotations)
    for machine in np.unique(host).tolist():  # a rank each
        step, start, end = steps_of(annotations.filter(pa.array(whose == machine)))
        of_host = np.flatnonzero(host == machine)
        position = np.searchsorted(start, time[of_host], side="right") - 1
        inside = (position >= 0) & (time[of_host] < take_or(end, position, 0))
        step_of_row[of_host[inside]] = step[position[inside]]
    return step_of_row
