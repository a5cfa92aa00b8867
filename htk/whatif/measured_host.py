"""How fast the host is without the profiler, as far as a step tells.

The profiler slows down the host, not the GPU. A step that was recorded as long as its host took is
shorter without it, and an edit that leaves the GPU more to do than the host takes as long as the
GPU takes, with or without: so the host is made as much faster as a step measured without the
profiler tells. Steps may also be shorter than their host took: then the GPU still had to do what
was launched before the recording, when the host, without the profiler, was ahead of it. In such
steps it takes as long as the step at most.
"""

import numpy as np

from htk.quantities.graph.replay import replayed_period
from htk.whatif.edits.host import speed_host_up
from htk.whatif.step_model import StepModel

_FASTEST = 4.0  # times: the profiler slows hosts down by less, whatever it records
_CLOSE = 0.002  # of the measured step
_BEHIND = 0.01  # of the step: the host took longer, and did not catch up
_ROUNDS = 12


def match_measured_step(model: StepModel, recorded_ns: int, measured_ns: int) -> StepModel:
    """Return the step with a host as fast as the measured step tells, as far as its host bounds it.

    `recorded_ns`: what the step takes in its replay.
    """
    behind = _host_period(model) / measured_ns
    slowest = min(behind, _FASTEST) if behind > 1 + _BEHIND else 1.0
    if measured_ns >= recorded_ns * (1 - _CLOSE):
        return model if slowest == 1 else speed_host_up(model, slowest)
    fastest = _FASTEST
    times = slowest
    for _ in range(_ROUNDS):
        times = (slowest * fastest) ** 0.5
        tried = speed_host_up(model, times)
        period_ns = replayed_period(tried.graph, tried.weight, tried.wrap_weight)
        if abs(period_ns - measured_ns) <= _CLOSE * measured_ns:
            break
        if period_ns > measured_ns:
            slowest = times
        else:
            fastest = times
    return speed_host_up(model, times)


def _host_period(model: StepModel) -> int:
    """Return how long a step takes whose GPUs have nothing to do."""
    everything = np.ones(len(model.graph.start), bool)
    idle = model.with_lengths(everything, 0)
    return replayed_period(idle.graph, idle.weight, idle.wrap_weight)
