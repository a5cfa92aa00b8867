"""GPUs are idle while hosts load data, collect garbage, compile or start up; and idle time that
says less of the program than of the recording, or of streams."""

from typing import NamedTuple

from htk.quantities.derived.host_states import COMPILATION, GC, LAZY, PROFILER, START_UP
from htk.verdicts.causes.cause import Cause
from htk.verdicts.causes.changes import CauseEdit, whatif_change, without_stalls
from htk.verdicts.causes.idle_cause import idle_cause
from htk.verdicts.causes.recorded import CauseEvidence


class _IdleRule(NamedTuple):
    """A cause of idle time: what it is called, what to try, and the edit without it."""

    causes: tuple[str, ...]  # of `idle_costs`
    finding: str
    advice: str
    change: CauseEdit | None = None
    advice_for_torch: str = ""  # where that is another


_RULES = (
    _IdleRule(
        ("host_data_loading",),
        "the GPU waits for data",
        "read and decode ahead, in threads or processes of their own",
        whatif_change("no_data_wait"),
        "more DataLoader workers, prefetch_factor, pin_memory, persistent_workers; move decoding "
        "off the main thread",
    ),
    _IdleRule(
        ("host_start_up", "host_lazy_loading"),
        "the recording holds the start-up of the job",
        "record after warm-up: contexts, streams, handles, modules and first launches cost this "
        "once, not in every step",
        without_stalls(START_UP, LAZY),
        "record after warm-up (schedule(wait=…, warmup=…)): contexts, streams, handles, modules "
        "and first launches cost this once, not in every step",
    ),
    _IdleRule(
        ("host_gc",),
        "Python collects garbage in the step",
        "gc.disable(), and collect between steps",
        without_stalls(GC),
    ),
    _IdleRule(
        ("host_compilation",),
        "code is compiled in the recorded steps",
        "record after warm-up; compile once for each shape",
        without_stalls(COMPILATION),
        "record after warm-up; mark dynamic shapes, look at recompiles (TORCH_LOGS=recompiles)",
    ),
    _IdleRule(
        ("profiler_overhead",),
        "the profiler itself holds the GPU up",
        "record fewer steps, without stacks and memory",
        without_stalls(PROFILER),
    ),
    _IdleRule(
        ("stream_event_wait",),
        "streams wait for events while the device is idle",
        "look at what records the event late; fewer streams, or events recorded sooner",
    ),
    _IdleRule(
        ("unrecorded_gpu_work_suspected",),
        "a call blocks while nothing recorded runs: the recording lacks GPU work",
        "do not read this as idle time: see whether another process or an unprofiled library uses "
        "the GPU, and record a longer window",
    ),
)


def find_causes(recorded: CauseEvidence) -> list[Cause]:
    causes = []
    for rule in _RULES:
        advice = recorded.program.advise(rule.advice_for_torch or rule.advice, rule.advice)
        cost = recorded.idle.own_cost(*rule.causes)
        causes += idle_cause(recorded, rule.finding, cost, advice, rule.change)
    return causes
