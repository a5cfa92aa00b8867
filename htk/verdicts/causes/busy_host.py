"""The GPU waits while the host works on something else than launching."""

import numpy as np

from htk.verdicts.causes.cause import Cause
from htk.verdicts.causes.changes import without_long_gaps
from htk.verdicts.causes.idle_cause import idle_cause
from htk.verdicts.causes.idle_time import HOST
from htk.verdicts.causes.recorded import CauseEvidence

FINDING = "the GPU waits while the host works on something else"


def find_causes(recorded: CauseEvidence) -> list[Cause]:
    advice = (
        "take this work out of the step: to another thread or process, to the GPU, or to once "
        "every n steps"
    )
    cost = np.where(recorded.idle.is_long, recorded.idle.own_cost(*HOST), 0)
    return idle_cause(recorded, FINDING, cost, advice, without_long_gaps())
