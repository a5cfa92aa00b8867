"""The menu: every analysis of this folder, its module and the question it answers.

`python -m htk.menu` writes it anew from the modules; nothing is imported to print it.
"""

import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from htk.errors import UnknownAnalysis

if TYPE_CHECKING:
    from htk.analysis import Analysis


@dataclass(frozen=True)
class Entry:
    """One line of the menu."""

    module: str
    question: str

    def load(self, name: str) -> "Analysis[...]":
        found: Analysis[...] = getattr(importlib.import_module(f"{__name__}.{self.module}"), name)
        return found


# fmt: off
ANALYSES: dict[str, Entry] = {
    "comm_compute_overlap": Entry("time.comm_compute_overlap", "How much of the communication is hidden behind compute?"),
    "kernel_top": Entry("kernels.kernel_top", "Which kernels cost most GPU time?"),
    "time_breakdown": Entry("time.time_breakdown", "Where does each GPU's time go: compute, communication, copies or idle?"),
}
# fmt: on


def find(name: str) -> "Analysis[...]":
    """The analysis of that name, with hyphens or underscores."""
    known = name.replace("-", "_")
    if known not in ANALYSES:
        raise UnknownAnalysis(f"no analysis {name!r}; `htk analyses` lists them")
    return ANALYSES[known].load(known)
