"""Widths of prediction intervals by kind of what-if, learned from measured jobs alone.

A prediction's error is counted in units of the uncertainty that was stated, and of what models miss
of any measured job (`UNMODELLED`) beside it. The 50th and 90th percentile of those of one kind make
its intervals, split conformal: judged on jobs that taught nothing. Kinds of which few measured jobs
are known lean on all kinds, which count as much as ten jobs beside their own. Simulated jobs hold
no surprises; they only widen the intervals of kinds that nobody has measured.

The table is written by the scorecard. It says of each kind how often the 90 % interval held, of
measured jobs each judged by what other sources taught.
"""

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from math import ceil, hypot

from htk.base.mappings import Facts

NORMAL = (0.674, 1.645)
UNMODELLED = 0.02  # of the step, one sigma
_SHARES = (0.5, 0.9)
_BORROWED = 10  # jobs of all kinds that count beside those of one
_POOLED = "pooled"


@dataclass(frozen=True)
class HoldCount:
    """How often the 90 % interval held."""

    held: int
    n: int

    def __str__(self) -> str:
        return f"{self.held} of {self.n}" if self.n else "none"


@dataclass(frozen=True)
class EditIntervals:
    """What is known of the intervals of one edit."""

    edit: str
    factors: tuple[float, float]  # of the stated uncertainty, for 50 and 90 %
    measured: HoldCount
    simulated: HoldCount

    @property
    def words(self) -> str:
        return f"{self.edit}: held {self.measured} measured, {self.simulated} simulated"


def state_sigma(sigma: float, edits: Sequence[str]) -> float:
    """Return one standard deviation of the logarithm of the step, with what models miss.

    `edits`: names of those that change something; where none does, nothing is missed.
    """
    return hypot(sigma, UNMODELLED) if edits else sigma


def find_conformal_quantile(scores: Sequence[float], share: float) -> float:
    """The split-conformal quantile: of n scores the ⌈share · (n + 1)⌉-th, at most the largest."""
    ordered = sorted(scores)
    nth = ceil(round(share * (len(ordered) + 1), 9))  # 0.55 · 100 is a little more than 55
    return ordered[min(nth, len(ordered)) - 1]


def fit_factors(
    measured: Sequence[float], pooled: Sequence[float], simulated: Sequence[float] = ()
) -> tuple[float, float]:
    """Multiples of the stated uncertainty for the 50 % and the 90 % interval of a kind.

    `measured`, `simulated`: its errors over the uncertainty that was stated; `pooled`: those of
    all kinds on measured jobs.
    """
    if not pooled:
        return NORMAL
    weighted = [(score, 1.0) for score in measured]
    weighted += [(score, _BORROWED / len(pooled)) for score in pooled]
    half, most = (_weighted_quantile(weighted, share) for share in _SHARES)
    if not measured and simulated:
        half, most = (
            max(factor, find_conformal_quantile(simulated, share))
            for factor, share in zip((half, most), _SHARES, strict=True)
        )
    return half, most


def _weighted_quantile(weighted: Sequence[tuple[float, float]], share: float) -> float:
    """Return the smallest score that, with those below it, has this share of all weight."""
    wanted = share * sum(weight for _, weight in weighted) - 1e-9
    below = 0.0
    for score, weight in sorted(weighted):
        below += weight
        if below >= wanted:
            return score
    return max(score for score, _ in weighted)


def find_calibration(edits: Sequence[str]) -> tuple[float, float]:
    """Multiples of the stated uncertainty that 50 % and 90 % of such predictions stayed within.

    Of several edits the widest counts.
    """
    each = [kind.factors for kind in edit_intervals(edits)] or [NORMAL]
    return max(half for half, _ in each), max(most for _, most in each)


def edit_intervals(edits: Sequence[str]) -> list[EditIntervals]:
    """Return what is known of the intervals of each of these edits."""
    return [_intervals_of(name) for name in dict.fromkeys(edits)]


def describe_record(edits: Sequence[str]) -> str:
    """Return how often 90 % intervals of these edits held, in words; "": no edit."""
    return "; ".join(kind.words for kind in edit_intervals(edits))


def _intervals_of(name: str) -> EditIntervals:
    table = _load_table()
    entry = table.get(name) or {}
    factor = entry or table.get(_POOLED) or {"half": NORMAL[0], "most": NORMAL[1]}
    return EditIntervals(
        name,
        (factor["half"], factor["most"]),
        HoldCount(**entry.get("measured", {"held": 0, "n": 0})),
        HoldCount(**entry.get("simulated", {"held": 0, "n": 0})),
    )


@cache
def _load_table() -> Facts:
    text = files("htk.whatif").joinpath("calibration.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)
