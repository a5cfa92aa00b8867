"""Notebooks written for Holistic Trace Analysis (HTA), with htk's numbers.

from htk.hta import TraceAnalysis     # instead of: from hta.trace_analysis import TraceAnalysis

`htk.hta(trace)` gives the same of a trace that is open already, `for_hta(trace)` hands htk's tables
to the real HTA. Methods, arguments, columns and the choice of steps are HTA's; the figures are not
rounded to microseconds, and docs/differences.md says where they differ and why.
"""

import sys
from types import ModuleType
from typing import Any

from htk.core.extras import require

require("pandas", "htk.hta")  # before the modules that import it

from htk.hta.analysis import TimeSeriesTypes, TraceAnalysis  # noqa: E402
from htk.hta.handover import for_hta  # noqa: E402
from htk.trace.trace import Trace  # noqa: E402

__all__ = ["TimeSeriesTypes", "TraceAnalysis", "for_hta"]


class _Callable(ModuleType):
    """So that `htk.hta(trace)` works beside `from htk.hta import TraceAnalysis`."""

    def __call__(self, trace: Trace, *, include_last_profiler_step: bool = False) -> Any:
        return TraceAnalysis.of(trace, include_last_profiler_step)


sys.modules[__name__].__class__ = _Callable
