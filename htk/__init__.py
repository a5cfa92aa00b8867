"""htk: profiling and trace analysis for training and serving on many GPUs.

import htk
trace = htk.open("runs/latest/")
trace.kernel_top(n=20).to_pandas()
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from htk import hta
    from htk.answers.ask import catalog
    from htk.answers.output.result import Result
    from htk.answers.question import question
    from htk.base.errors import HtkError
    from htk.faces.notebook.session import Session, open, run
    from htk.recording.capture import capture
    from htk.traces.trace.trace import Trace
    from htk.verdicts.claims.kernel_question import time_kernel as kernel_time
    from htk.whatif.api import whatif

    __version__: str

# Where each public name is defined; imported at first use, so that `import htk` costs nothing.
_HOME = {
    "HtkError": "htk.base.errors:HtkError",
    "Result": "htk.answers.output.result:Result",
    "Session": "htk.faces.notebook.session:Session",
    "Trace": "htk.traces.trace.trace:Trace",
    "__version__": "htk.base.core.version:VERSION",
    "capture": "htk.recording.capture:capture",
    "catalog": "htk.answers.ask:catalog",
    "hta": "htk.hta",
    "kernel_time": "htk.verdicts.claims.kernel_question:time_kernel",
    "open": "htk.faces.notebook.session:open",
    "question": "htk.answers.question:question",
    "run": "htk.faces.notebook.session:run",
    "whatif": "htk.whatif",
}

__all__ = [
    "HtkError",
    "Result",
    "Session",
    "Trace",
    "__version__",
    "capture",
    "catalog",
    "hta",
    "kernel_time",
    "open",
    "question",
    "run",
    "whatif",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'htk' has no attribute {name!r}")
    module, _, attribute = _HOME[name].partition(":")
    home = importlib.import_module(module)
    return getattr(home, attribute) if attribute else home


def __dir__() -> list[str]:
    """Return the public names, also those that were not used yet."""
    return __all__
