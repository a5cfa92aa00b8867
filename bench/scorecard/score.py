"""Predictions beside outcomes, summed by kind: error, coverage, and what naive answers would do."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil, exp, log

import numpy as np

from htk.analyses.whatif.answer import Answer

_TURNED = 0.01  # a change that is smaller has no direction


@dataclass(frozen=True)
class Prediction:
    """One prediction, and what came of it."""

    road: str  # trace: of a simulated job; described: a stand-in for a measured one; plan: none
    kind: str
    label: str
    group: str  # what is left out as one: a model, a source
    verdict: str
    base_ns: float
    truth_ns: float
    linear_ns: float  # the base, times the work of a GPU
    predicted_ns: float | None
    sigma: float

    @property
    def error(self) -> float | None:
        """Logarithm of predicted over true."""
        return None if self.predicted_ns is None else log(self.predicted_ns / self.truth_ns)

    @property
    def wrong_way(self) -> bool:
        """Faster was said and it became slower, or the other way round."""
        if self.predicted_ns is None or self.road == "plan":
            return False
        said, came = log(self.predicted_ns / self.base_ns), log(self.truth_ns / self.base_ns)
        return said * came < 0 and min(abs(said), abs(came)) > _TURNED


def predicted(
    road: str, kind: str, label: str, group: str, found: Answer, truth_ns: float
) -> Prediction:
    base = float(found.measured_ns)
    step = None if found.step_ns is None else float(found.step_ns)
    each = found.samples_ratio / found.devices_ratio
    return Prediction(
        road, kind, label, group, found.verdict, base, truth_ns, base * each, step, found.sigma
    )


def quantile(scores: Sequence[float], share: float) -> float:
    """The split-conformal quantile: of n scores the ⌈share · (n + 1)⌉-th, at most the largest."""
    ordered = sorted(scores)
    return ordered[min(ceil(share * (len(ordered) + 1)), len(ordered)) - 1]


def scores(rows: Iterable[Prediction]) -> list[float]:
    """Errors over the doubt that was stated."""
    return [abs(r.error) / r.sigma for r in rows if r.error is not None and r.sigma]


def covered_pct(rows: Sequence[Prediction], share: float = 0.9) -> float | None:
    """How often the band held, each group judged by a band made from the other groups."""
    held: list[bool] = []
    for group in {r.group for r in rows}:
        others = scores(r for r in rows if r.group != group)
        if others:
            wide = quantile(others, share)
            held += [score <= wide for score in scores(r for r in rows if r.group == group)]
    return 100 * float(np.mean(held)) if held else None


def stated_pct(rows: Sequence[Prediction]) -> float | None:
    """How often the band held that the answers themselves stated, uncalibrated."""
    found = scores(rows)
    return 100 * float(np.mean(np.array(found) <= 1.645)) if found else None


def summary(rows: Sequence[Prediction]) -> dict[str, float | int | None]:
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
        "coverage_pct": covered_pct(answered),
        "no_change_median_pct": _at(_off(answered, "base_ns"), 0.5),
        "no_change_mean_pct": _mean(_off(answered, "base_ns")),
        "linear_median_pct": _at(_off(answered, "linear_ns"), 0.5),
        "linear_mean_pct": _mean(_off(answered, "linear_ns")),
    }


def by_kind(rows: Iterable[Prediction]) -> dict[str, list[Prediction]]:
    found: dict[str, list[Prediction]] = {}
    for row in rows:
        found.setdefault(row.kind, []).append(row)
    return dict(sorted(found.items()))


def _off(rows: Sequence[Prediction], column: str) -> list[float]:
    return [100 * abs(getattr(r, column) / r.truth_ns - 1) for r in rows]


def _at(values: Sequence[float], share: float) -> float | None:
    return float(np.quantile(values, share)) if values else None


def _mean(values: Sequence[float]) -> float | None:
    return float(np.mean(values)) if values else None
