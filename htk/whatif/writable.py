"""Whether an edited step can be written as events: it can if these are the recorded ones."""

import numpy as np

from htk.base.errors import UsageError
from htk.whatif.composed_edits import Edit
from htk.whatif.micro_batches import MICRO_BATCHES
from htk.whatif.recorded_step import Baseline
from htk.whatif.step_model import StepModel

_OTHER_KERNELS = {
    "checkpointing": ("on", "selective"),
    "precision": None,
    "lora": None,
    "ep": None,
    "sp": None,
}  # None: whatever they ask for


def check_writable(start: Baseline, edited: StepModel, edits: tuple[Edit, ...]) -> None:
    """Refuse a step of which a recording would show another job than the edited one."""
    missing = _not_recorded(start, edited, edits)
    if missing:
        words = " ".join(f"--{name.replace('_', '-')} {value}" for name, value in edits)
        raise UsageError(
            f"nothing to write: {missing}, which no recorded event shows; give further edits beside"
            f" these, of the recording: htk whatif RECORDING {words} …"
        )


def _not_recorded(start: Baseline, edited: StepModel, edits: tuple[Edit, ...]) -> str | None:
    """Return what of the edited job was not recorded; None: nothing."""
    if MICRO_BATCHES in edited.added or "pp" in edited.touched:
        return "the edited step has other passes"
    if len(edited.graph.activities.start) > len(start.graph.activities.start):
        return "the edited step has further collectives"
    for name, value in edits:
        kinds = _OTHER_KERNELS.get(name, ())
        if name in edited.touched and (kinds is None or value in kinds):
            return f"{name} {value} runs other kernels"
    many = len(start.graph.activities.start)
    left = edited.lengths()[:many] > 0
    groups = edited.facts.group_size[:many] != start.model.facts.group_size
    if (left & groups).any() or not np.isclose(edited.devices, 1.0):
        return "the edited job has other ranks or groups"
    return None
