"""Idle time that no edit takes away: waits between streams, and what the recording itself does."""

from htk.verdicts.causes.cause import Cause
from htk.verdicts.causes.idle_cause import idle_cause
from htk.verdicts.causes.recorded import CauseEvidence

ADVICE = {
    "stream_event_wait": (
        "streams wait for events while the device is idle",
        "look at what records the event late; fewer streams, or events recorded sooner",
    ),
    "unrecorded_gpu_work_suspected": (
        "a call blocks while nothing recorded runs: the recording lacks GPU work",
        "do not read this as idle time: see whether another process or an unprofiled library uses "
        "the GPU, and record a longer window",
    ),
    "profiler_overhead": (
        "the profiler itself holds the GPU up",
        "record fewer steps, without stacks and memory",
    ),
}


def find_causes(recorded: CauseEvidence) -> list[Cause]:
    causes = []
    for cause, (finding, advice) in ADVICE.items():
        causes += idle_cause(recorded, finding, recorded.idle.own_cost(cause), advice, None)
    return causes
