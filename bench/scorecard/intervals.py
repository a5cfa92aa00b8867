"""Intervals that answers state: learned on measured rows, judged on sources that taught nothing."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import ceil, expm1

import numpy as np

from bench.scorecard.score import Prediction, by_kind
from htk.whatif.calibration import NORMAL, HoldCount, fit_factors, state_sigma

MEASURED, SIMULATED = "described", "trace"


@dataclass(frozen=True)
class Learned:
    """What predictions and their outcomes tell of intervals."""

    predictions: Sequence[Prediction]
    _factors: dict[tuple[str, str], tuple[float, float]] = field(default_factory=dict)

    @property
    def edits(self) -> list[str]:
        """Names of edits that outcomes of either road tell of."""
        return sorted({r.edits[0] for r in self.predictions if _alone(r)})

    def of(self, edit: str, road: str) -> list[Prediction]:
        """Return answers to this edit alone."""
        return [r for r in self._on(road) if _alone(r) and r.edits[0] == edit]

    def factors(self, edit: str, without: str = "") -> tuple[float, float]:
        """Return the multiples of the stated uncertainty, learned without a source or cluster."""
        if (edit, without) not in self._factors:
            simulated = [r for r in self.of(edit, SIMULATED) if r.group != without]
            self._factors[edit, without] = fit_factors(
                _scores(r for r in self.of(edit, MEASURED) if r.source != without),
                _scores(r for r in self._on(MEASURED) if r.source != without),
                _scores(simulated),
            )
        return self._factors[edit, without]

    def multiple(self, row: Prediction, level: int = 1) -> float:
        """Return how many times its uncertainty the interval of a row is wide, without its source.

        `which`: 0 for 50 %, 1 for 90 %.
        """
        without = row.source if row.road == MEASURED else row.group
        return max([self.factors(edit, without)[level] for edit in row.edits] or [NORMAL[level]])

    def held(self, rows: Iterable[Prediction], level: int = 1) -> HoldCount:
        """Count the rows whose interval held."""
        inside = [r.score <= self.multiple(r, level) for r in rows if r.score is not None]
        return HoldCount(sum(inside), len(inside))

    def widths(self) -> tuple[float, float]:
        """Return the mean half width of 90 % intervals of measured rows, in percent of the step,
        and that of the smallest multiples, one for each kind, that would have held nine of ten of
        these very rows."""
        rows = [r for r in self._on(MEASURED) if r.edits]
        wide, least = [], []
        for members in by_kind(rows).values():
            smallest = sorted(_scores(members))[ceil(0.9 * len(members)) - 1]
            for row in members:
                sigma = state_sigma(row.sigma, row.edits)
                wide.append(100 * expm1(sigma * self.multiple(row)))
                least.append(100 * expm1(sigma * smallest))
        return float(np.mean(wide)), float(np.mean(least))

    def _on(self, road: str) -> list[Prediction]:
        return [r for r in self.predictions if r.road == road and r.score is not None]


def held_pct(rows: Sequence[Prediction], learned: Learned) -> float | None:
    """Return how often 90 % intervals held, in percent."""
    held = learned.held(rows)
    return 100 * held.held / held.n if held.n else None


def table(learned: Learned) -> str:
    """Return what answers read, as TOML."""
    lines = [
        "# Written by bench/scorecard: multiples of the stated uncertainty by edit, and how often\n"
        "# intervals of 90 % held.\n"
    ]
    for edit in learned.edits:
        half, most = learned.factors(edit)
        measured, simulated = (
            learned.held(learned.of(edit, road)) for road in (MEASURED, SIMULATED)
        )
        lines.append(
            f"[{edit}]\nhalf = {half:.3f}\nmost = {most:.3f}\n"
            f"measured = {{ held = {measured.held}, n = {measured.n} }}\n"
            f"simulated = {{ held = {simulated.held}, n = {simulated.n} }}\n"
        )
    half, most = learned.factors("pooled")
    lines.append(f"[pooled]\nhalf = {half:.3f}\nmost = {most:.3f}\n")
    return "\n".join(lines)


def _alone(row: Prediction) -> bool:
    return len(row.edits) == 1 and row.score is not None


def _scores(rows: Iterable[Prediction]) -> list[float]:
    """Errors over the uncertainty that was stated."""
    return [row.score for row in rows if row.score is not None]
