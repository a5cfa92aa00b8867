"""The recording holds the start-up of the job."""

from htk.quantities.derived.host_states import LAZY, START_UP
from htk.verdicts.causes.cause import Cause
from htk.verdicts.causes.changes import without_stalls
from htk.verdicts.causes.idle_cause import idle_cause
from htk.verdicts.causes.recorded import CauseEvidence

FINDING = "the recording holds the start-up of the job"


def find_causes(recorded: CauseEvidence) -> list[Cause]:
    schedule = recorded.program.advise(" (schedule(wait=…, warmup=…))", "")
    advice = (
        f"record after warm-up{schedule}: contexts, streams, handles, modules and first launches "
        "cost this once, not in every step"
    )
    cost = recorded.idle.own_cost("host_start_up", "host_lazy_loading")
    return idle_cause(recorded, FINDING, cost, advice, without_stalls(START_UP, LAZY))
