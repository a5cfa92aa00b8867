"""How fast the host is without the profiler, where a step was measured without it.

The profiler slows down the host, not the GPU: a step that was recorded as long as its host took is
shorter without it, and an edit that leaves the GPU more to do than the host takes as long as the
GPU takes, with or without. So the host is made as much faster as the measured step tells.
"""

from htk.quantities.graph.replay import replayed_period
from htk.whatif.edits.host import speed_host_up
from htk.whatif.step_model import StepModel

_FASTEST = 4.0  # times: the profiler slows hosts down by less, whatever it records
_CLOSE = 0.002  # of the measured step
_ROUNDS = 12


def match_measured_step(model: StepModel, recorded_ns: int, measured_ns: int) -> StepModel:
    """Return the step with a host as fast as the measured step tells, as far as its host bounds it.

    `recorded_ns`: what the step takes in its replay.
    """
    if measured_ns >= recorded_ns * (1 - _CLOSE):
        return model
    slowest = 1.0
    fastest = _FASTEST
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
