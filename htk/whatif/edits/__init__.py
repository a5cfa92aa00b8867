"""The edits: one module each, in one list. Each has NAME, HELP and apply(model, value)."""

from functools import cache
from importlib import import_module
from typing import Protocol, cast

from htk.base import plugins
from htk.base.errors import UsageError
from htk.whatif.step_model import StepModel


class Edit(Protocol):
    @property
    def NAME(self) -> str: ...
    @property
    def HELP(self) -> str: ...
    def apply(self, model: StepModel, value: str) -> StepModel: ...


# Modules, called as their edits, in the order in which these are applied, whichever order they are
# given in. Each is imported when it is asked for: a summary needs few of them.
_MODULES = (
    "replace",
    "hardware",
    "precision",
    "batch",
    "seq",
    "serving",
    "attention",
    "loss",
    "optimizer",
    "lora",
    "checkpointing",
    "tp",
    "sp",
    "cp",
    "ep",
    "world",
    "sharding",
    "bucket",
    "prefetch_depth",
    "network",
    "gradients",
    "fix_rank",
    "balanced_experts",
    "no_skew",
    "split",
    "overlap",
    "remove_syncs",
    "no_data_wait",
    "workers",
    "host",
    "graphs",
    "compile",
    "no_sync",
    "accumulation",
    "pp",
)

# Each of these may be given several times, for different kernels or ranks.
REPEATABLE = ("replace", "fix_rank")


@cache
def all_edits() -> tuple[Edit, ...]:
    """Return every edit in the order in which they are applied, those of other packages last."""
    return (*(_edit_of(module) for module in _MODULES), *plugins.load_added("htk.edits"))


def find_edit(name: str) -> Edit:
    if name in _MODULES:
        return _edit_of(name)
    for candidate in all_edits():
        if name == candidate.NAME:
            return candidate
    raise UsageError(f"no what-if {name!r}; there are {', '.join(e.NAME for e in all_edits())}")


def _edit_of(module: str) -> Edit:
    return cast("Edit", import_module(f"htk.whatif.edits.{module}"))
