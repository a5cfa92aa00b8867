"""Times that no step can take after an edit, however little is known of it.

No GPU computes faster than it can, what makes nothing longer makes no step longer, and what makes
nothing shorter makes none shorter. Twice the tokens take at most twice as long, half of them no
less than half; ranks that share a layer or a sequence save no more than their share, and lose no
more than what they send. Intervals end there.
"""

import math
from collections.abc import Collection, Sequence

import numpy as np

from htk.physics.training_job import TrainingJob
from htk.whatif.step_model import StepModel

_NEVER_LONGER = frozenset(
    {"no_skew", "remove_syncs", "no_data_wait", "fix_rank", "balanced_experts", "compile"}
)
_RUN_TO_RUN = 0.01  # how far steps of one job differ
_NEXT_TO_NOTHING = 0.01  # of what an edit changes: contention settles a little otherwise
_OF_WORK = frozenset({"batch", "accumulation", "seq", "tp", "cp", "sp"})
_POWERS = {"micro_batch": 1, "micro_batches": 1, "seq": 2, "tensor": -1, "context": -1}
_CACHES = 0.1  # how much quicker the same work is in smaller parts, or slower in larger ones
_SENT = 3.0  # times what is predicted of communication
Limits = tuple[float, float]


def step_limits(
    start: StepModel,
    edited: StepModel,
    asked: Sequence[tuple[str, str]],
    steps: tuple[int, int],
    mfu_pct: float | None,
) -> Limits:
    """Return the least and the most ns that the step can take.

    `steps`: measured, and predicted; `mfu_pct`: of the predicted one.
    """
    measured, predicted = steps
    least = predicted * (mfu_pct or 0.0) / 100
    most = math.inf
    longer, shorter = _sum_changes(start, edited)
    if longer <= _NEXT_TO_NOTHING * shorter or all(
        name in _NEVER_LONGER or (name, value) == ("overlap", "perfect") for name, value in asked
    ):
        most = measured * (1 + _RUN_TO_RUN)
    elif shorter <= _NEXT_TO_NOTHING * longer:
        least = max(least, measured * (1 - _RUN_TO_RUN))
    return least, most


def work_limits(
    before: TrainingJob, after: TrainingJob, names: Collection[str], measured: int, exposed: int
) -> Limits:
    """Return the least and the most ns by a GPU's work, of edits that change nothing else.

    `exposed`: ns of predicted communication that no compute hides.
    """
    if not _OF_WORK.issuperset(names):
        return 0.0, math.inf
    ratios = []
    for field, power in _POWERS.items():
        now = getattr(before, field)
        then = getattr(after, field)
        if not now or not then:
            return 0.0, math.inf
        ratios.append((then / now) ** power)
    if "sp" in names:
        ratios += [1 / (after.tensor or 1), before.tensor or 1]
    least = math.prod(min(ratio, 1.0) for ratio in ratios)
    most = math.prod(max(ratio, 1.0) for ratio in ratios)
    least *= 1 - (_CACHES if least < 1 else _RUN_TO_RUN)
    return least * measured, (1 + _CACHES) * most * measured + _SENT * exposed


def _sum_changes(start: StepModel, edited: StepModel) -> tuple[float, float]:
    """Return by how many ns activities and waits became longer, and shorter; NaN: the edited step
    has others."""
    if edited.graph is not start.graph:
        return math.nan, math.nan
    of_host = start.changed_edges  # where it is as fast as without the profiler
    rows = np.union1d(edited.changed_edges, of_host) if len(of_host) else edited.changed_edges
    waits = edited.wrap_weight - start.wrap_weight
    more = np.append(edited.weight[rows] - start.weight[rows], waits)
    return float(np.maximum(more, 0).sum()), float(np.maximum(-more, 0).sum())
