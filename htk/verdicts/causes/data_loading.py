"""The GPU waits for data."""

from htk.verdicts.causes.cause import Cause
from htk.verdicts.causes.changes import whatif_change
from htk.verdicts.causes.idle_cause import idle_cause
from htk.verdicts.causes.recorded import CauseEvidence

FINDING = "the GPU waits for data"


def find_causes(recorded: CauseEvidence) -> list[Cause]:
    advice = recorded.program.advise(
        "more DataLoader workers, prefetch_factor, pin_memory, persistent_workers; move decoding "
        "off the main thread",
        "read and decode ahead, in threads or processes of their own",
    )
    cost = recorded.idle.own_cost("host_data_loading")
    return idle_cause(recorded, FINDING, cost, advice, whatif_change("no_data_wait"))
