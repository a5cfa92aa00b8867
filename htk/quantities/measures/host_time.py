"""How the host's time divides into phases: in complete steps, without steps in all recorded."""

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import mark_valid, read_keys, read_numbers, read_times
from htk.base.columns.groups import Groups, row_of
from htk.base.columns.intervals import union_lengths
from htk.base.columns.types import Ints
from htk.base.names.phases import BACKWARD, DATALOADER, FORWARD, OPTIMIZER, OTHER
from htk.quantities.measures.host_phases import NO_STEP, host_phase_spans
from htk.quantities.measures.host_steps import host_steps

SLIVER = 1e-3  # GPU work is next to none where its window is less of the host's

# Where two threads are in two phases at once, the earlier of these counts.
_PHASES = (
    (FORWARD, "forward"),
    (BACKWARD, "backward"),
    (OPTIMIZER, "optimizer"),
    (DATALOADER, "data loading"),
    (OTHER, "other operators"),
)
LOADING = "data loading"
COLLECTIVES = "collectives beside no operator"
REST = "outside operators"
NEEDED = ("cpu_ops", "op_links", "op_passes", "annotations", "step_marks", "collectives")
_SPAN = ["rank", "cycle", "start_ns", "end_ns"]


class HostTime(NamedTuple):
    """Times of all ranks together."""

    window_ns: int
    phases: dict[str, int]  # they add up to the window


def host_time(
    cpu_ops: pa.Table,
    op_links: pa.Table,
    op_passes: pa.Table,
    annotations: pa.Table,
    step_marks: pa.Table,
    collectives: pa.Table,
) -> HostTime:
    """Return the time of each phase, no instant of a rank counted twice, and of the window."""
    keys, start, end = host_phase_spans(cpu_ops, op_links, op_passes, annotations)
    calls = _timed_spans(collectives)
    steps, complete = host_steps(step_marks)
    steps = steps[complete]
    if len(steps):
        of_step = row_of(steps[:, :3], keys[:, [0, 3, 1]])  # rank, cycle, step
        chosen = (keys[:, 1] != NO_STEP) & (of_step >= 0)
        window = int((steps[:, 4] - steps[:, 3]).sum())
    else:
        chosen = np.ones(len(keys), bool)
        window = host_extent(pa.concat_tables([cpu_ops.select(_SPAN), calls]), step_marks)
    phase = keys[chosen, 2]
    spans = np.array([keys[chosen, 0], start[chosen], end[chosen]])
    before, spent = 0, {}
    for k, (_, name) in enumerate(_PHASES):
        earlier = np.isin(phase, [phase for phase, _ in _PHASES[: k + 1]])
        covered = _union_length(spans[:, earlier])
        spent[name] = covered - before
        before = covered
    called = np.array([read_keys(calls["rank"]), *read_times(calls)])
    spent[COLLECTIVES] = _added_length(spans, called, steps[:, [0, 3, 4]].T)
    before += spent[COLLECTIVES]
    window = max(window, before, 1)
    return HostTime(window, spent | {REST: window - before})


def _timed_spans(collectives: pa.Table) -> pa.Table:
    """Return whose the collectives with times are, and the times."""
    timed = mark_valid(collectives["start_ns"]) & mark_valid(collectives["end_ns"])
    return collectives.select(_SPAN).filter(pa.array(timed))


def _union_length(spans: Ints) -> int:
    """Return the time that spans (rows: rank, start, end) cover, ranks added up."""
    ranks, start, end = spans
    group = np.unique(ranks, return_inverse=True)[1]
    return int(union_lengths(group, start, end, int(group.max(initial=-1)) + 1).sum())


def _added_length(spans: Ints, more: Ints, windows: Ints) -> int:
    """Return the time that `more` covers within windows, where `spans` do not; without windows,
    anywhere."""
    both = np.hstack([spans, more])
    added = _union_length(both) - _union_length(spans)
    if not windows.size:
        return added
    outside = _union_length(np.hstack([both, windows])) - _union_length(np.hstack([spans, windows]))
    return added - outside


def host_extent(operators: pa.Table, step_marks: pa.Table) -> int:
    """Return the time that operators (or their extents) or steps of the host span, added up over
    recordings."""
    steps = host_steps(step_marks).keys
    return max(_sum_extents(operators), int((steps[:, 4] - steps[:, 3]).sum()))


def has_next_to_no_gpu_work(gpu_ns: int, op_extents: pa.Table, step_marks: pa.Table) -> bool:
    """Return whether the GPU's recorded windows are a sliver of what the host did, or nothing."""
    return gpu_ns < SLIVER * host_extent(op_extents, step_marks)


def _sum_extents(ops: pa.Table) -> int:
    """First start to last end of each recording, added up."""
    if not ops.num_rows:
        return 0
    columns = [read_numbers(ops[name], 0).astype(np.int64) for name in ("rank", "cycle")]
    recordings = Groups.by_keys(columns)
    start, end = read_times(ops)
    return int((recordings.max(end) - recordings.min(start)).sum())
