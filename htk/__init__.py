"""htk: profiling and trace analysis for training and serving on many GPUs.

import htk
trace = htk.open("runs/latest/")
trace.kernel_top(n=20).to_pandas()
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from htk import hta
    from htk.api import catalog, run
    from htk.capturing import capture
    from htk.errors import HtkError
    from htk.session import open
    from htk.trace import Trace
    from htk.whatif_api import whatif

# Where each guest's name lives; imported when first used, so that `import htk` costs nothing.
_HOME = {
    "HtkError": "htk.errors",
    "Trace": "htk.trace",
    "capture": "htk.capturing",
    "catalog": "htk.api",
    "hta": "htk.hta",
    "open": "htk.session",
    "run": "htk.api",
    "whatif": "htk.whatif_api",
}

__all__ = ["HtkError", "Trace", "capture", "catalog", "hta", "open", "run", "whatif"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'htk' has no attribute {name!r}")
    home = importlib.import_module(_HOME[name])
    return home if _HOME[name] == f"htk.{name}" else getattr(home, name)


def __dir__() -> list[str]:
    return sorted(__all__)
