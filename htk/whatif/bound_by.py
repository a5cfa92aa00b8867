"""Whether a step is as long as its host takes, and whether its products fill a GPU."""

import numpy as np

from htk.base.columns.types import Ints
from htk.quantities.graph.replay import replayed_period
from htk.whatif.step_model import StepModel

SLOWER_HOST = 0.1  # tried, to see whether the step follows
LAUNCH_BOUND = 0.5  # of that followed: the host is the slower side
_MATRIX = ("gemm", "attention", "convolution")


def launch_bound(edited: StepModel, here: int) -> bool:
    """Does the step get longer when the host is slower?"""
    return find_host_share(edited, here) > LAUNCH_BOUND


def find_host_share(edited: StepModel, here: int) -> float:
    """Return how much of a slowdown of the host the step follows, from 0 to 1.

    Time that edits add to the step as a whole is taken to follow as the rest does.
    """
    added = sum(edited.added.values())
    moved = replayed_period(edited.graph, *slow_host_down(edited)) - here
    return float(np.clip(moved / max(SLOWER_HOST * (here - added), 1.0), 0.0, 1.0))


def slow_host_down(edited: StepModel) -> tuple[Ints, Ints]:
    """Return the weights of edges, and of those into the next step, with a slower host."""
    added = sum(edited.added.values())
    on_cpu = edited.graph.rows_of("call", "host_gap", "handover")
    slower = edited.weight.copy()
    now = slower[on_cpu]
    more = np.maximum(now, 0) * SLOWER_HOST
    now += np.rint(more, out=more).astype(np.int64)
    slower[on_cpu] = now
    wraps = edited.wrap_weight.copy()
    between = edited.graph.wraps_into_calls
    wraps[between] += np.rint((wraps[between] - added) * SLOWER_HOST).astype(np.int64)
    return slower, wraps


def under_a_wave(edited: StepModel, each: float) -> bool:
    """Is most time of matrix products in ones that do not fill the GPU once?"""
    matrix = edited.facts.family.isin(*_MATRIX)
    with_blocks = matrix & ~np.isnan(edited.facts.blocks)
    if not with_blocks.any():
        return False
    length = edited.lengths()[with_blocks]
    few = edited.facts.blocks[with_blocks] * each < 1
    return bool(length[few].sum() > 0.5 * length.sum())
