"""What chance explains of a change between two recordings: its standard error.

Chance is told from three sides: how the steps of each recording differ among themselves, how the
change differs from rank to rank (other GPUs run the same kernels a little faster), and what two
runs of the same thing differ by though neither steps nor ranks show it. A base of several runs
shows the last: a further run of the same thing differs from their mean as they do among themselves.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from htk.base.columns.types import Floats
from htk.traces.compare.baseline import MOST_RANKS, MOST_STEPS, RecordedBaseline, Series, folded

# Standard deviation of a run of the same thing, which its steps do not show.
RUN_NOISE_PCT = 0.3  # of a GPU
HOST_RUN_NOISE_PCT = 3.0  # of a host: what else it does, where memory lies, what was compiled
# Kinds whose things vary alike; of others idle time and waiting swing between ranks, steps do not.
_FAMILIES = ("phase", "kernel", "op", "module")
_PRIOR, _FAMILY = 10, 4  # ranks' worth of the kind's usual variance; things that tell it
_LARGE = 1e4  # degrees of freedom of what is not estimated from the recording


def run_noise_pct(kind: str, *sides: RecordedBaseline) -> float:
    """Noise of a run in times of this kind."""
    on_host = kind == "op" or any(side.on_host for side in sides)
    return HOST_RUN_NOISE_PCT if on_host else RUN_NOISE_PCT


class Spread(NamedTuple):
    """Standard error of a change of means, and its degrees of freedom (Welch, Satterthwaite)."""

    error: float
    free: float


class Chance:
    """What changes of one kind vary by between two recordings though nothing changed.

    Two or four ranks tell little of how ranks differ in the change of one kernel; all things of
    the kind together tell it well. Each therefore takes the kind's usual (relative) variance as if
    it were known from _PRIOR more ranks.
    """

    def __init__(
        self, base: RecordedBaseline, new: RecordedBaseline, kind: str, run_pct: float | None
    ) -> None:
        self._alike = base.ranks == new.ranks
        self._runs = base.runs
        usual_pct = 0.0 if base.runs else run_noise_pct(kind, base, new)
        self._run = (usual_pct if run_pct is None else run_pct) / 100
        things = base.kinds.get(kind, {}), new.kinds.get(kind, {})
        pairs = [(was, things[1][name]) for name, was in things[0].items() if name in things[1]]
        pairs = [pair for pair in pairs if min(s.mean for s in pair) > 0]
        free = len(base.ranks) - 1
        self._usual = 0.0
        alike = kind in _FAMILIES
        if alike and self._alike and free and len(pairs) >= _FAMILY:
            between = [_between(*pair) / min(s.mean for s in pair) ** 2 for pair in pairs]
            self._usual = float(np.median(between)) / (1 - 2 / (9 * free)) ** 3

    def of(self, was: Series, now: Series) -> Spread:
        """By how much a change of means varies by chance."""
        size = min(was.mean, now.mean)
        steps = [_of_mean(folded(s.by_step, MOST_STEPS)) for s in (was, now)]
        ranks = self._ranks(was, now, size)
        # Both hold what differs from step to step and from rank to rank: not to be counted twice.
        parts = max(steps, ranks, key=lambda pairs: sum(variance for variance, _ in pairs))
        if self._runs:  # the same again: how runs differ holds how their steps and ranks do
            (variance, free), runs = steps[0], self._runs
            among = [(variance * (runs + 1), free)]
            parts = max(among, ranks, steps[1:], key=lambda pairs: sum(v for v, _ in pairs))
        parts = [*parts, (2 * (self._run * size) ** 2, _LARGE)]
        total = sum(variance for variance, _ in parts)
        uncertain = sum(variance**2 / free for variance, free in parts)
        return Spread(math.sqrt(total), total**2 / uncertain if uncertain else _LARGE)

    def _ranks(self, was: Series, now: Series, size: float) -> list[tuple[float, float]]:
        """Variance of the mean change, as ranks differ in it."""
        if not self._alike:
            return [_of_mean(folded(s.by_rank, MOST_RANKS)) for s in (was, now)]
        ranks = len(folded(was.by_rank, MOST_RANKS))
        if ranks < 2:
            return []
        prior = _PRIOR if self._usual else 0
        free = ranks - 1 + prior
        variance = (prior * self._usual * size**2 + (ranks - 1) * _between(was, now)) / free
        return [(variance / ranks, free)]


def _between(was: Series, now: Series) -> float:
    """Variance over ranks of their change."""
    return float((folded(now.by_rank, MOST_RANKS) - folded(was.by_rank, MOST_RANKS)).var(ddof=1))


def _of_mean(values: Floats) -> tuple[float, float]:
    """Variance of a mean, and its degrees of freedom."""
    if len(values) < 2:
        return 0.0, _LARGE
    return float(values.var(ddof=1)) / len(values), len(values) - 1.0


def stacked(spreads: Sequence[Spread]) -> tuple[Floats, Floats]:
    """Errors and degrees of freedom as columns."""
    pairs = np.array(spreads, np.float64).reshape(len(spreads), 2)
    return pairs[:, 0], pairs[:, 1]
