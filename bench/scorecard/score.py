"""Predictions beside outcomes, summed by kind: error, and what naive answers would do."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import exp, log

import numpy as np

from htk.whatif.answer import Answer
from htk.whatif.calibration import state_sigma

_TURNED = 0.01  # a change that is smaller has no direction


@dataclass(frozen=True)
class Prediction:
    """One prediction, and what came of it."""

    road: str  # trace: of a simulated job; described: a stand-in for a measured one
    kind: str
    label: str
    group: str  # what is left out as one: a model, a source
    verdict: str
    base_ns: float
    truth_ns: float
    linear_ns: float  # the base, times the work of a GPU
    predicted_ns: float | None
    sigma: float
    edits: tuple[str, ...] = ()  # names of those that change something
    source: str = ""  # whose measurement came of it
    planned_ns: float | None = None  # the base, times plan(after) over plan(before)

    @property
    def error(self) -> float | None:
        """Logarithm of predicted over true."""
        return None if self.predicted_ns is None else log(self.predicted_ns / self.truth_ns)

    @property
    def score(self) -> float | None:
        """The error over the uncertainty that was stated."""
        sigma = state_sigma(self.sigma, self.edits)
        return abs(self.error) / sigma if self.error is not None and sigma else None

    @property
    def wrong_way(self) -> bool:
        """Faster was said and it became slower, or the other way round."""
        if self.predicted_ns is None:
            return False
        predicted, came = log(self.predicted_ns / self.base_ns), log(self.truth_ns / self.base_ns)
        return predicted * came < 0 and min(abs(predicted), abs(came)) > _TURNED


def predicted(
    road: str, kind: str, label: str, group: str, answer: Answer, truth_ns: float
) -> Prediction:
    base = float(answer.measured_ns)
    step = None if answer.step_ns is None else float(answer.step_ns)
    each = answer.samples_ratio / answer.devices_ratio
    return Prediction(
        road, kind, label, group, answer.verdict, base, truth_ns, base * each, step, answer.sigma,
        answer.effective or (),
    )  # fmt: skip


def summary(
    rows: Sequence[Prediction],
) -> dict[str, float | int | None]:
    """Of one kind. Errors in percent of what came."""
    errors = [100 * abs(exp(r.error) - 1) for r in rows if r.error is not None]
    answered = [r for r in rows if r.error is not None]
    return {
        "n": len(rows),
        "refused": len(rows) - len(errors),
        "median_pct": _at(errors, 0.5),
        "mean_pct": float(np.mean(errors)) if errors else None,
        "p90_pct": _at(errors, 0.9),
        "wrong_way": sum(r.wrong_way for r in rows),
        "no_change_median_pct": _at(_off(answered, "base_ns"), 0.5),
        "no_change_mean_pct": _mean(_off(answered, "base_ns")),
        "linear_median_pct": _at(_off(answered, "linear_ns"), 0.5),
        "linear_mean_pct": _mean(_off(answered, "linear_ns")),
        "planned_median_pct": _at(_off(answered, "planned_ns"), 0.5),
        "planned_mean_pct": _mean(_off(answered, "planned_ns")),
    }


def by_kind(rows: Iterable[Prediction]) -> dict[str, list[Prediction]]:
    groups: dict[str, list[Prediction]] = {}
    for row in rows:
        groups.setdefault(row.kind, []).append(row)
    return dict(sorted(groups.items()))


def _off(rows: Sequence[Prediction], column: str) -> list[float]:
    naive = ((getattr(r, column), r.truth_ns) for r in rows)
    return [100 * abs(predicted / came - 1) for predicted, came in naive if predicted is not None]


def _at(values: Sequence[float], share: float) -> float | None:
    return float(np.quantile(values, share)) if values else None


def _mean(values: Sequence[float]) -> float | None:
    return float(np.mean(values)) if values else None
