"""What would change if: edits of the execution graph, replayed, with their uncertainty.

In: a trace and edits. Out: the predicted step with its prediction interval. May import all up to
answers and planning.
`htk.whatif(trace)` collects edits: the package is callable, as its name is also the function's.
"""

import sys
from types import ModuleType
from typing import Any


class _Callable(ModuleType):
    def __call__(self, trace: Any) -> Any:
        from htk.whatif.api import whatif

        return whatif(trace)


sys.modules[__name__].__class__ = _Callable
