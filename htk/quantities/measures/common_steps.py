"""Steps that every rank recorded whole: what may be compared between ranks.

A file that ends half-way holds less of everything. Its rank did not compute less, was not idle
less, and received no fewer tokens: the rest was not recorded.
"""

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import numbers, read_keys, truths, valid
from htk.base.columns.groups import Groups, row_of
from htk.base.columns.types import NONE, Floats, Ints, Mask
from htk.base.core.analysis import Later
from htk.base.core.humanize import pluralize
from htk.quantities.derived.window_times import KindTimes

_SHORTER = 0.95  # of the longest recording: less is a recording that lacks something


class Compute(NamedTuple):
    """Compute of each GPU over a recording of mean length."""

    rank: Ints
    compute_ns: Ints
    basis: str  # what was compared, where that is not all of the recording; ends in ", "


def comparable_compute(times: pa.Table, step_window_times: Later) -> Compute:
    """Return what may be compared of `times`, the recorded windows as `time_breakdown` has them.

    Where some recordings are shorter it is the steps that all ranks hold whole; without any,
    compute in proportion to what was recorded.
    """
    rank, compute, total = (numbers(times[c], NONE) for c in ("rank", "compute_ns", "total_ns"))
    if not some_are_shorter(total):
        return Compute(rank.astype(np.int64), compute, "")
    steps_of_all = step_window_times()
    windows = steps_of_all.filter(pa.array(common_steps(steps_of_all)))
    if not windows.num_rows:
        scaled = _rounded(compute * (total.mean() / np.maximum(total, 1)))
        basis = "in proportion to what was recorded, "
        return Compute(rank.astype(np.int64), scaled, basis)
    lanes = Groups.by_keys(_columns(windows, "rank", "device"))
    in_steps = KindTimes.of(windows)
    steps = pluralize(len(np.unique(_columns(windows, "cycle", "step"), axis=0)), "step")
    share = total.mean() / max(lanes.sum(in_steps.total).mean(), 1)
    scaled = _rounded(lanes.sum(in_steps.any("compute")) * share)
    basis = f"in proportion to {steps} that all ranks recorded whole, "
    return Compute(lanes.keys[:, 0], scaled, basis)


def _rounded(values: Floats) -> Ints:
    return np.rint(values).astype(np.int64)


def some_are_shorter(length: Ints) -> bool:
    """Return whether some rank's recording lacks what others hold."""
    return bool(len(length) and length.min() < _SHORTER * length.max())


def common_steps(step_windows: pa.Table) -> Mask:
    """Return the rows of GPU steps that are complete on each device of each rank."""
    steps = _columns(step_windows, "cycle", "step")
    lanes = Groups.by_keys(_columns(step_windows, "rank", "device"))
    chosen = valid(step_windows["step"]) & truths(step_windows["complete"])
    whole_steps = Groups.by_keys(steps[chosen])
    everywhere = whole_steps.keys[whole_steps.distinct(lanes.group_ids[chosen]) == len(lanes)]
    if not len(everywhere):
        return np.zeros(len(steps), bool)
    return np.asarray(chosen & (row_of(everywhere, steps) != NONE))


def _columns(table: pa.Table, *names: str) -> Ints:
    return np.column_stack([read_keys(table[name]) for name in names])
