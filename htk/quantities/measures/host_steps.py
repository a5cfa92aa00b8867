"""Steps on the host, and which of them the recording's end cut off.

A profiler that is left between two calls of `step()` closes the step that the last call opened: a
piece that holds little of a step's work, or nothing.
"""

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import build_booleans, read_booleans, read_keys
from htk.base.columns.groups import Groups
from htk.base.columns.order import order_by
from htk.base.columns.types import Ints, Mask

_COLUMNS = ("rank", "cycle", "step", "start_ns", "end_ns")


class HostSteps(NamedTuple):
    """A row for each step of each rank and cycle."""

    keys: Ints  # rank, cycle, step, start and end
    complete: Mask


def host_steps(step_marks: pa.Table) -> HostSteps:
    """Steps in order of time; a piece is one that was cut, and a last one less than half as long
    as the others."""
    on_host = step_marks.filter(build_booleans(~read_booleans(step_marks["on_gpu"])))
    keys = step_keys(on_host)
    order = order_by(keys[:, 3])
    order = order[Groups.by_keys(keys[order, :3]).first_row]
    keys = keys[order]
    return HostSteps(keys, read_booleans(on_host["complete"])[order] & ~_mark_pieces(keys))


def step_keys(table: pa.Table) -> Ints:
    """Return rank, cycle, step, start and end of each row."""
    return np.stack([read_keys(table[n]) for n in _COLUMNS], axis=1)


def _mark_pieces(keys: Ints) -> Mask:
    recordings = Groups.by_keys(keys[:, :2])
    length = keys[:, 4] - keys[:, 3]
    if not len(keys):
        return np.zeros(0, bool)
    last = recordings.rank_within(-keys[:, 3], -keys[:, 4]) == 0
    others = Groups.by_keys(keys[~last, :2]) if (~last).any() else None
    if others is None:
        return np.zeros(len(keys), bool)
    median = np.zeros(len(recordings))
    of_others = recordings.group_ids[~last][others.first_row]
    median[of_others] = others.quantiles(length[~last], [0.5])[0]
    return np.asarray(last & (2 * length < median[recordings.group_ids]))
