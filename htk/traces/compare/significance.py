"""What chance explains of a change between two recordings: its standard error.

Chance is told from two sides: how the steps of each recording differ among themselves, and what
two runs of the same thing differ by though no step shows it. A base of several runs shows the
latter: a further run of the same thing differs from their mean as they do among themselves.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from htk.base.columns.types import Floats
from htk.quantities.measures.chance import find_student_quantile
from htk.traces.compare.baseline import (
    MOST_RANKS,
    MOST_STEPS,
    RecordedBaseline,
    Series,
    fold_values,
)

# Standard deviation of a run of the same thing, which its steps do not show.
RUN_NOISE_PCT = 0.3  # of a GPU
OTHER_NODES_PCT = 1.5  # of other GPUs of the same kind than before
HOST_RUN_NOISE_PCT = 3.0  # of a host: what else it does, where memory lies, what was compiled
_LEAST_PART = 0.5  # of the change of compute, or the other way round: then it is the step's
_LARGE = 1e4  # degrees of freedom of what is not estimated from the recording


def run_noise_pct(kind: str, *sides: RecordedBaseline) -> float:
    """Noise of a run in times of this kind."""
    on_host = kind == "op" or any(side.on_host for side in sides)
    usual = HOST_RUN_NOISE_PCT if on_host else RUN_NOISE_PCT
    nodes = {side.facts["hosts"] for side in sides if side.facts.get("hosts")}
    return max(usual, OTHER_NODES_PCT) if len(nodes) > 1 else usual


class Spread(NamedTuple):
    """Standard error of a change of means, and its degrees of freedom (Welch, Satterthwaite)."""

    error: float
    free: float


Pair = tuple[Series, Series]


class Chance:
    """What changes of one kind vary by between two recordings though nothing changed.

    Steps tell it, as means over ranks: ranks of one job that change unlike are no noise, one of
    them may have become slower. Where other ranks were recorded, they are two samples.
    """

    def __init__(
        self, base: RecordedBaseline, new: RecordedBaseline, kind: str, run_pct: float | None
    ) -> None:
        self._alike = base.ranks == new.ranks
        self._runs = base.runs
        usual_pct = 0.0 if base.runs else run_noise_pct(kind, base, new)
        self._run = (usual_pct if run_pct is None else run_pct) / 100

    def compute_spread(self, was: Series, now: Series) -> Spread:
        """By how much a change of means varies by chance."""
        size = min(was.mean, now.mean)
        parts = [_of_mean(fold_values(s.by_step, MOST_STEPS)) for s in (was, now)]
        if self._runs:  # the same again: how runs differ holds how their steps do
            (variance, free) = parts[0]
            among = self._runs + 1
            parts = max([(variance * among, free)], parts[1:], key=lambda pairs: pairs[0][0])
        elif not self._alike:
            ranks = [_of_mean(fold_values(s.by_rank, MOST_RANKS)) for s in (was, now)]
            # Both hold what differs from step to step and from rank to rank.
            parts = max(parts, ranks, key=lambda pairs: sum(variance for variance, _ in pairs))
        parts = [*parts, (2 * (self._run * size) ** 2, _LARGE)]
        total = sum(variance for variance, _ in parts)
        uncertain = sum(variance**2 / free for variance, free in parts)
        return Spread(math.sqrt(total), total**2 / uncertain if uncertain else _LARGE)


def compute_of(base: RecordedBaseline, new: RecordedBaseline) -> Pair | None:
    """Return the time of compute in a step on both sides; None: it was not recorded."""
    parts = [side.kinds.get("time", {}).get("compute") for side in (base, new)]
    was, now = parts
    return None if was is None or now is None else (was, now)


def surer_by_compute(chance: Chance, step: Pair, compute: Pair, level: float) -> Spread:
    """Return by how much the step's change varies by chance, as compute tells it where it is surer.

    A slower GPU takes longer for all kernels by a common factor, which their time together shows
    more surely than a step, in which ranks wait for each other. Compute stands for the step where
    it changed beyond chance (at half of the level, as either may alarm) and the step by as much.
    """
    own = chance.compute_spread(*step)
    together = chance.compute_spread(*compute)
    changes = [now.mean - was.mean for was, now in (step, compute)]
    if not together.error or together.error >= own.error or changes[0] * changes[1] <= 0:
        return own
    free = np.array([together.free])
    is_sure = abs(changes[1]) > together.error * float(
        find_student_quantile(np.array([level / 2]), free)[0]
    )
    return (
        together if is_sure and _LEAST_PART <= changes[0] / changes[1] <= 1 / _LEAST_PART else own
    )


def _of_mean(values: Floats) -> tuple[float, float]:
    """Variance of a mean, and its degrees of freedom."""
    if len(values) < 2:
        return 0.0, _LARGE
    return float(values.var(ddof=1)) / len(values), len(values) - 1.0


def stack_spreads(spreads: Sequence[Spread]) -> tuple[Floats, Floats]:
    """Errors and degrees of freedom as columns."""
    pairs = np.array(spreads, np.float64).reshape(len(spreads), 2)
    return pairs[:, 0], pairs[:, 1]
