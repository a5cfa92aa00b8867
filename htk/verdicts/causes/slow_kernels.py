"""Products and attention that take far longer than kernels measured at their size on this GPU."""

import numpy as np

from htk.base.columns.types import Floats, take_or
from htk.base.core.humanize import pluralize_count
from htk.physics.op_costs import CostOrReason
from htk.verdicts.causes.cause import Cause, Example, find_costliest
from htk.verdicts.causes.changes import CauseEdit
from htk.verdicts.causes.recorded import CauseEvidence
from htk.whatif.measured_calls import MeasuredPace, find_measured_calls, mean_sigma
from htk.whatif.step_model import StepModel

FINDING = "kernels take far longer than those measured at their size"
_FAR = 1.5  # of the typical time: libraries differ by less


def find_causes(recorded: CauseEvidence) -> list[Cause]:
    """Return the cause where the steps replay and shapes were recorded."""
    if recorded.replayed is None:
        return []
    model = recorded.replayed.model
    length = model.lengths().astype(np.float64)
    pace = measure_pace(model)
    slow = pace.find_slower(length, _FAR)
    if not slow.any():
        return []
    acts = model.graph.activities
    lost = np.where(slow, length - pace.typical_lengths(length), 0.0)
    of_all_gpus = recorded.gpus / len(model.graph.ranks) / recorded.replayed.steps * recorded.steps
    took = float(length[slow].sum())
    worst = int(lost.argmax())
    kernels = model.facts.tables["kernels"]
    row = int(model.facts.rows[worst])
    rank = kernels["rank"][row].as_py()
    start = kernels["start_ns"][row].as_py()
    end = kernels["end_ns"][row].as_py()
    cause = Cause(
        FINDING,
        f"{pluralize_count(int(slow.sum()), 'kernel')}, {recorded.spent(of_all_gpus * took)}, "
        f"{took / (took - float(lost.sum())):.1f}x as long as the median library's",
        "htk kernel-gap shows which; "
        + recorded.program.advise(
            "sizes that are multiples of 64, contiguous inputs, another library "
            "(torch.backends.cuda.preferred_blas_library, sdpa_kernel), max-autotune",
            "sizes that are multiples of 64, another library or algorithm",
        ),
        round(of_all_gpus * float(lost.sum())),
        "kernel_gap",
        find_costliest(acts.names, acts.name, lost.astype(np.int64)),
        Example(rank, start, end),
        change=at_measured_pace(_FAR),
        is_bound=True,
    )
    return [cause]


def measure_pace(model: StepModel) -> MeasuredPace:
    """Return how long the calls of a step take by kernels measured on its GPU."""
    return find_measured_calls(model).measure(model.device)


def at_measured_pace(least: float = 1.0, of: CostOrReason | None = None) -> CauseEdit:
    """Return the edit in which calls take the typical time that take at least so many times it;
    `of`: those of this work."""

    def speed_up_slow(model: StepModel) -> StepModel:
        calls = find_measured_calls(model)
        pace = calls.measure(model.device)
        length = model.lengths().astype(np.float64)
        slow = pace.find_slower(length, least)
        if of is not None:
            slow &= take_or(np.array([cost == of for cost in calls.costs], bool), calls.kind, False)
        measured: Floats = np.where(slow, pace.typical_lengths(length), 0.0)
        changed = model.with_lengths(slow, measured)
        less = float((length - measured)[slow].sum())
        unsure = mean_sigma(np.where(slow, pace.sigma, 0.0), measured) * float(measured.sum())
        return changed.with_uncertainty("compute", unsure / max(less, 1.0))

    return CauseEdit("replace", speed_up_slow)
