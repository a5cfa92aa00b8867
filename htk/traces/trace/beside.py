"""Files that say more of what the profiler's file of their rank holds."""

from dataclasses import replace

from htk.traces.trace.execution import FORMAT as EXECUTION_TRACE
from htk.traces.trace.file import TraceFile
from htk.traces.trace.kernel_stacks import FORMAT as KERNEL_STACKS
from htk.traces.trace.kernel_stacks import OF_FORMATS


def with_files_beside(files: list[TraceFile]) -> list[TraceFile]:
    """Give the profiler's files the execution trace of their rank and cycle; where there is one
    rank and one execution trace that says none, that. And the stacks of their rank's kernels, or
    of any rank's."""
    stacks = [f for f in files if f.format == KERNEL_STACKS]
    observed = {(f.rank, f.cycle): f.entry for f in files if f.format == EXECUTION_TRACE}
    profiled = {(f.rank, f.cycle) for f in files if f.format == "kineto"}
    if len(profiled) == 1 and [*observed] == [(None, 0)]:
        observed = dict.fromkeys(profiled, observed[None, 0])
    return [
        replace(
            f,
            execution=observed.get((f.rank, f.cycle)) if f.format == "kineto" else None,
            stacks=tuple(s.entry for s in stacks if s.rank in (None, f.rank)),
        )
        if f.format in OF_FORMATS
        else f
        for f in files
    ]
