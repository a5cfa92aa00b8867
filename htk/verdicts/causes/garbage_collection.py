"""Python collects garbage in the step."""

from htk.quantities.derived.host_states import GC
from htk.verdicts.causes.cause import Cause
from htk.verdicts.causes.changes import without_stalls
from htk.verdicts.causes.idle_cause import idle_cause
from htk.verdicts.causes.recorded import CauseEvidence

FINDING = "Python collects garbage in the step"


def find_causes(recorded: CauseEvidence) -> list[Cause]:
    advice = "gc.disable(), and collect between steps"
    cost = recorded.idle.own_cost("host_gc")
    return idle_cause(recorded, FINDING, cost, advice, without_stalls(GC))
