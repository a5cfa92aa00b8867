"""Tables made from tables: which maker makes which, and whether file by file or over all ranks.

A maker's parameter names are the tables it reads, as an analysis's are.
"""

import importlib
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import pyarrow as pa


@dataclass(frozen=True)
class Maker:
    function: Callable[..., pa.Table]

    @property
    def reads(self) -> tuple[str, ...]:
        return tuple(inspect.signature(self.function).parameters)


_PER_FILE = {  # cached beside the tables of the file
    "kernel_links": "htk.links",
    "op_links": "htk.links",
    "launch_links": "htk.links",
    "op_callers": "htk.callers",
    "python_links": "htk.callers",
    "activities": "htk.windows",
    "rank_windows": "htk.windows",
    "step_windows": "htk.windows",
    "idle_causes": "htk.idle",
}
OVER_RANKS: dict[str, str] = {  # read all ranks at once
    "collective_matches": "htk.match",
    "rank_clocks": "htk.clocks",
    "aligned_matches": "htk.clocks",
    "collective_facts": "htk.joins",
}

NAMES = (*_PER_FILE, *OVER_RANKS)


@cache
def maker(name: str) -> Maker:
    """Who makes a table of that name; its module is imported only then."""
    module = _PER_FILE.get(name) or OVER_RANKS[name]
    return Maker(getattr(importlib.import_module(module), name))
