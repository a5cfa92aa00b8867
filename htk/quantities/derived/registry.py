"""Tables made from tables: which maker makes which, and whether file by file or over all ranks.

A maker's parameter names are the tables it reads, as an analysis's are.
"""

import importlib
import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache, cached_property

import pyarrow as pa


@dataclass(frozen=True)
class Maker:
    function: Callable[..., pa.Table]

    @cached_property
    def reads(self) -> tuple[str, ...]:
        return tuple(inspect.signature(self.function).parameters)


PER_FILE: dict[str, str] = {  # cached beside the tables of the file, but for those below
    "kernel_links": "htk.quantities.derived.links",
    "op_links": "htk.quantities.derived.links",
    "launch_links": "htk.quantities.derived.links",
    "annotation_links": "htk.quantities.derived.user_ranges",
    "op_passes": "htk.quantities.derived.passes",
    "kernel_passes": "htk.quantities.derived.passes",
    "op_callers": "htk.quantities.derived.op_ancestors",
    "launch_callers": "htk.quantities.derived.op_ancestors",
    "python_links": "htk.quantities.derived.op_ancestors",
    "kernel_totals": "htk.quantities.derived.totals",
    "op_totals": "htk.quantities.derived.totals",
    "launch_totals": "htk.quantities.derived.totals",
    "op_extents": "htk.quantities.derived.totals",
    "gpu_work": "htk.quantities.derived.totals",
    "activities": "htk.quantities.derived.windows",
    "rank_windows": "htk.quantities.derived.windows",
    "step_windows": "htk.quantities.derived.windows",
    "rank_window_times": "htk.quantities.derived.window_times",
    "step_window_times": "htk.quantities.derived.window_times",
    "idle_causes": "htk.quantities.derived.idle",
    "stalls": "htk.quantities.derived.stalls",
    "rank_idle_times": "htk.quantities.derived.idle_totals",
    "step_idle_times": "htk.quantities.derived.idle_totals",
    "idle_costs": "htk.quantities.derived.idle_totals",
    "memory_extents": "htk.quantities.derived.totals",
    "step_marks": "htk.quantities.derived.totals",
    "server_marks": "htk.quantities.derived.totals",
}
OVER_RANKS: dict[str, str] = {  # read all ranks at once
    "collective_matches": "htk.quantities.derived.match",
    "rank_clocks": "htk.quantities.derived.clocks",
    "aligned_matches": "htk.quantities.derived.clocks",
    "collective_facts": "htk.quantities.derived.nccl_facts",
    "collective_shares": "htk.quantities.derived.exposure",
    "own_times": "htk.quantities.derived.own_time",
}

# Of these, tables whose rows of a rank read no other rank's events (`trace.by_rank`).
BY_RANK = ("collective_shares", "own_times")

# Columns of another table: to make them takes no time and no memory, to keep them does.
VIEWS = ("activities",)
# Made by one look at the kernels: of few of them in less time than is needed to keep or to find it.
EXTENTS = ("rank_windows",)

# Of these, totals: rows of several files, one file after the other, make what the files would make
# each for itself.
TOTALS = (
    "kernel_totals",
    "op_totals",
    "launch_totals",
    "op_extents",
    "gpu_work",
    "rank_window_times",
    "step_window_times",
    "rank_idle_times",
    "step_idle_times",
    "idle_costs",
    "memory_extents",
    "step_marks",
)
NAMES = (*PER_FILE, *OVER_RANKS)


@cache
def find_maker(name: str) -> Maker:
    """Return who makes a table of that name; its module is imported only then."""
    module = PER_FILE.get(name) or OVER_RANKS[name]
    return Maker(getattr(importlib.import_module(module), name))


def base_tables(names: Iterable[str]) -> set[str]:
    """Return the tables of files that these are made of; those that no maker makes are such."""
    base: set[str] = set()
    for name in names:
        is_derived = name in PER_FILE or name in OVER_RANKS
        base |= base_tables(find_maker(name).reads) if is_derived else {name}
    return base
