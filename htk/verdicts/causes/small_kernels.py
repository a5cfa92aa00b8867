"""Kernels too small for the GPU: they leave it partly empty."""

import numpy as np

from htk.base.columns.arrow import read_numbers
from htk.base.columns.types import Floats
from htk.base.core.humanize import pluralize_count
from htk.verdicts.causes.cause import Cause
from htk.verdicts.causes.changes import shorter_activities
from htk.verdicts.causes.recorded import CauseEvidence
from htk.whatif.step_model import StepModel

FINDING = "kernels too small for the GPU"
_FEW_BLOCKS = 1.0  # blocks for each multiprocessor: below it some have none


def find_causes(recorded: CauseEvidence) -> list[Cause]:
    work = recorded.work
    blocks = read_numbers(work.totals["blocks_per_sm"], -1.0)
    few = work.compute & (blocks >= 0) & (blocks < _FEW_BLOCKS)
    recorded_ns = work.take(few, 1 - np.clip(blocks, 0, 1))
    if not recorded_ns:
        return []
    cause = work.cause(
        few,
        recorded_ns,
        FINDING,
        f"{pluralize_count(work.count(few), 'kernel')} with less than a block for each "
        f"multiprocessor, {recorded.spent(int(work.length[few].sum()))}",
        "larger batches, fused kernels (htk fusible-chains), independent work on a second stream",
        "kernel_occupancy",
        shorter_activities("replace", _as_full_as_they_are),
    )
    return [cause]


def _as_full_as_they_are(model: StepModel) -> Floats:
    """Return lengths in which a kernel takes as much of its time as it fills of the GPU."""
    blocks = read_numbers(model.facts.tables["kernels"]["blocks_per_sm"], -1.0)[model.facts.rows]
    few = model.is_compute & (blocks >= 0) & (blocks < _FEW_BLOCKS)
    return np.asarray(np.where(few, blocks, 1.0) * model.lengths(), np.float64)
