"""The causes that are looked for: one module each, in one list. Each has find_causes(recorded).

A kernel's recorded time goes to the first cause in the list that it shows."""

from typing import Protocol, cast

from htk.verdicts.causes import (
    blocking_calls,
    busy_host,
    compilation,
    copies,
    data_loading,
    exposed_communication,
    full_memory,
    garbage_collection,
    late_ranks,
    launching,
    memory_allocation,
    plain_cores,
    recomputation,
    regressed_kernel,
    sixteen_bit,
    slow_gpu,
    slow_host,
    slow_link,
    small_kernels,
    start_up,
    uneven_work,
    unreplayed_idle,
)
from htk.verdicts.causes.cause import Cause
from htk.verdicts.causes.recorded import CauseEvidence


class CauseFinder(Protocol):
    """A module that looks for a cause."""

    def find_causes(self, recorded: CauseEvidence) -> list[Cause]: ...


CAUSES: tuple[CauseFinder, ...] = cast(
    "tuple[CauseFinder, ...]",
    (
        data_loading,
        memory_allocation,
        start_up,
        garbage_collection,
        compilation,
        slow_host,
        busy_host,
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
        small_kernels,
        copies,
        sixteen_bit,
        full_memory,
        unreplayed_idle,
    ),
)


def find_all_causes(recorded: CauseEvidence) -> list[Cause]:
    """Return what every module finds."""
    return [cause for module in CAUSES for cause in module.find_causes(recorded)]
