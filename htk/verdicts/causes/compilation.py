"""Code is compiled in the recorded steps."""

from htk.quantities.derived.host_states import COMPILATION
from htk.verdicts.causes.cause import Cause
from htk.verdicts.causes.changes import without_stalls
from htk.verdicts.causes.idle_cause import idle_cause
from htk.verdicts.causes.recorded import CauseEvidence

FINDING = "code is compiled in the recorded steps"


def find_causes(recorded: CauseEvidence) -> list[Cause]:
    advice = recorded.program.advise(
        "record after warm-up; mark dynamic shapes, look at recompiles (TORCH_LOGS=recompiles)",
        "record after warm-up; compile once for each shape",
    )
    cost = recorded.idle.own_cost("host_compilation")
    return idle_cause(recorded, FINDING, cost, advice, without_stalls(COMPILATION))
