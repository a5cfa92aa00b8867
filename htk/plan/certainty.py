"""How far a plan may miss: by what of it was ever held against a measured job, and what was not."""

import math
from dataclasses import dataclass

from htk.plan.job import PlannedJob

NORMAL = {50: 0.6745, 90: 1.6449}  # quantiles of a normal distribution


@dataclass(frozen=True)
class Certainty:
    sigma: float  # of the step's logarithm
    checked: tuple[str, ...]  # what measured jobs were held against
    unchecked: tuple[str, ...]  # what of this job none had

    def factor(self, percent: int) -> float:
        """Return what the step is multiplied and divided by, for its interval."""
        return math.exp(NORMAL[percent] * self.sigma)


def certainty(job: PlannedJob) -> Certainty:
    return Certainty(0.2, (), ())
