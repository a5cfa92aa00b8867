"""Notebooks written for Holistic Trace Analysis (HTA), with htk's numbers.

from htk.hta import TraceAnalysis     # instead of: from hta.trace_analysis import TraceAnalysis

In: files, as HTA takes them. Out: HTA's frames. May import all up to answers.
`htk.hta(trace)` gives the same of a trace that is open already, `for_hta(trace)` hands htk's tables
to the real HTA. Methods, arguments, columns and the choice of steps are HTA's; the figures are not
rounded to microseconds, and docs/differences.md says where they differ and why.
"""

import sys
from types import ModuleType
from typing import Any

from htk.base.core.extras import require_extra

require_extra("pandas", "htk.hta")  # before the modules that import it

from htk.hta import elsewhere  # noqa: E402
from htk.hta.frames import short_name as shorten_name  # noqa: E402
from htk.hta.handover import for_hta  # noqa: E402
from htk.hta.kernels import CUDA_SASS_INSTRUCTION_COUNTER_FLOPS  # noqa: E402
from htk.hta.trace_analysis import TimeSeriesTypes, TraceAnalysis  # noqa: E402
from htk.hta.trace_diff import DeviceType, LabeledTrace, TraceDiff  # noqa: E402
from htk.traces.trace.trace import Trace  # noqa: E402

__all__ = [
    "CUDA_SASS_INSTRUCTION_COUNTER_FLOPS",
    "DeviceType",
    "LabeledTrace",
    "TimeSeriesTypes",
    "TraceAnalysis",
    "TraceDiff",
    "for_hta",
    "shorten_name",
]


class _Callable(ModuleType):
    """So that `htk.hta(trace)` works beside `from htk.hta import TraceAnalysis`."""

    def __call__(self, trace: Trace, *, include_last_profiler_step: bool = False) -> Any:
        return TraceAnalysis.of(trace, include_last_profiler_step)

    def __getattr__(self, name: str) -> Any:
        elsewhere.refuse_hta_name(name)


sys.modules[__name__].__class__ = _Callable
elsewhere.register_hta_finder()
