"""How the host's time divides into phases: in complete steps, without steps in all recorded."""

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import numbers, read_times
from htk.base.columns.groups import Groups, row_of
from htk.base.columns.intervals import union_lengths
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
REST = "outside operators"


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
) -> HostTime:
    """Return the time of each phase, no instant of a rank counted twice, and of the window."""
    keys, start, end = host_phase_spans(cpu_ops, op_links, op_passes, annotations)
    steps, complete = host_steps(step_marks)
    steps = steps[complete]
    if len(steps):
        of_step = row_of(steps[:, :3], keys[:, [0, 3, 1]])  # rank, cycle, step
        chosen = (keys[:, 1] != NO_STEP) & (of_step >= 0)
        window = int((steps[:, 4] - steps[:, 3]).sum())
    else:
        chosen, window = np.ones(len(keys), bool), host_extent(cpu_ops, step_marks)
    keys = keys[chosen]
    start = start[chosen]
    end = end[chosen]
    rank = Groups.by_keys(keys[:, 0]).group_ids if len(keys) else keys[:, 0]
    many = int(rank.max(initial=-1)) + 1
    before, spent = 0, {}
    for k, (_, name) in enumerate(_PHASES):
        rows = np.isin(keys[:, 2], [phase for phase, _ in _PHASES[: k + 1]])
        covered = int(union_lengths(rank[rows], start[rows], end[rows], many).sum())
        spent[name] = covered - before
        before = covered
    window = max(window, before, 1)
    return HostTime(window, spent | {REST: window - before})


def host_extent(operators: pa.Table, step_marks: pa.Table) -> int:
    """Return the time that operators (or their extents) or steps of the host span, added up over
    recordings."""
    steps = host_steps(step_marks).keys
    return max(_extent(operators), int((steps[:, 4] - steps[:, 3]).sum()))


def has_next_to_no_gpu_work(gpu_ns: int, op_extents: pa.Table, step_marks: pa.Table) -> bool:
    """Return whether the GPU's recorded windows are a sliver of what the host did, or nothing."""
    return gpu_ns < SLIVER * host_extent(op_extents, step_marks)


def _extent(ops: pa.Table) -> int:
    """First start to last end of each recording, added up."""
    if not ops.num_rows:
        return 0
    columns = [numbers(ops[name], 0).astype(np.int64) for name in ("rank", "cycle")]
    recordings = Groups.by_keys(columns)
    start, end = read_times(ops)
    return int((recordings.max(end) - recordings.min(start)).sum())
