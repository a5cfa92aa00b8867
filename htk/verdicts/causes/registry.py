"""The causes that are looked for: a module each, in one list. Each has find_causes(recorded).

A kernel's recorded time goes to the first cause in the list that it shows."""

from typing import Protocol, cast

from htk.verdicts.causes import (
    blocking_calls,
    copies,
    exposed_communication,
    full_memory,
    late_ranks,
    launching,
    memory_allocation,
    plain_cores,
    recomputation,
    regressed_kernel,
    sixteen_bit,
    slow_gpu,
    slow_host,
    slow_kernels,
    slow_link,
    small_kernels,
    stalled_host,
    uneven_work,
    unfused_attention,
    unfused_kernels,
)
from htk.verdicts.causes.cause import Cause
from htk.verdicts.causes.recorded import CauseEvidence


class CauseFinder(Protocol):
    """A module that looks for a cause."""

    def find_causes(self, recorded: CauseEvidence) -> list[Cause]: ...


CAUSES: tuple[CauseFinder, ...] = cast(
    "tuple[CauseFinder, ...]",
    (
        stalled_host,
        memory_allocation,
        slow_host,
        slow_gpu,
        slow_link,
        regressed_kernel,
        uneven_work,
        late_ranks,
        blocking_calls,
        launching,
        exposed_communication,
        recomputation,
        plain_cores,
        slow_kernels,
        unfused_attention,
        unfused_kernels,
        small_kernels,
        copies,
        sixteen_bit,
        full_memory,
    ),
)


def find_all_causes(recorded: CauseEvidence) -> list[Cause]:
    """Return what every module finds."""
    return [cause for module in CAUSES for cause in module.find_causes(recorded)]
