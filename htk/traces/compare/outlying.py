"""Steps that take far longer or shorter than the others of a recording.

A step that waits once for data, or whose beginning was not recorded, says nothing of the others: it
is left out of means and said. A third of the steps at most is outlying, more are another kind of
step; and three at least are kept.
"""

import numpy as np

from htk.base.columns.types import Floats, Mask

_FAR = 5.0  # standard deviations, as the median distance from the median tells them
_LEAST = 0.02  # of the median: nearer ones are left in, however alike the others are
_SIGMA = 1.4826  # standard deviations in a median distance
_MOST = 1 / 3
_LEAST_STEPS = 3


def usual_steps(step_ns: Floats) -> Mask:
    """Return which steps are not outlying."""
    if not len(step_ns):
        return np.ones(0, bool)
    middle = float(np.median(step_ns))
    distance = np.abs(step_ns - middle)
    limit = max(_FAR * _SIGMA * float(np.median(distance)), _LEAST * middle)
    usual = distance <= limit
    few = usual.sum() < min(_LEAST_STEPS, len(step_ns))
    if few or (~usual).sum() > _MOST * len(step_ns):
        return np.ones(len(step_ns), bool)
    return np.asarray(usual)
