"""Predictions beside outcomes, summed by kind: error, coverage, and what naive answers would do."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import exp, log

import numpy as np

from htk.whatif.calibration import NORMAL, factors
from htk.whatif.predict import Answer

_TURNED = 0.01  # a change that is smaller has no direction
_WIDE = NORMAL[1]


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
    edits: tuple[str, ...] = ()  # names

    @property
    def error(self) -> float | None:
        """Logarithm of predicted over true."""
        return None if self.predicted_ns is None else log(self.predicted_ns / self.truth_ns)

    @property
    def score(self) -> float | None:
        """The error over the doubt that was stated."""
        return abs(self.error) / self.sigma if self.error is not None and self.sigma else None

    @property
    def wrong_way(self) -> bool:
        """Faster was said and it became slower, or the other way round."""
        if self.predicted_ns is None:
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
        road, kind, label, group, found.verdict, base, truth_ns, base * each, step, found.sigma,
        tuple(name for name, _ in found.edits),
    )  # fmt: skip


def scores(rows: Iterable[Prediction]) -> list[float]:
    """Errors over the doubt that was stated."""
    return [score for row in rows if (score := row.score) is not None]


def evidence(found: Iterable[Prediction]) -> dict[str, list[Prediction]]:
    """What the bands of an edit are learned from: answers to it alone, whatever the road."""
    by_edit: dict[str, list[Prediction]] = {}
    for row in found:
        if len(row.edits) == 1 and row.score is not None:
            by_edit.setdefault(row.edits[0], []).append(row)
    return dict(sorted(by_edit.items()))


def held_pct(rows: Sequence[Prediction], found: Iterable[Prediction]) -> float | None:
    """How often the 90 % band held that answers state, learned from `found` without the group of
    what is judged."""
    known = evidence(found)
    held = [
        row.score <= max([_wide(known.get(edit, ()), row.group) for edit in row.edits] or [_WIDE])
        for row in rows
        if row.score is not None
    ]
    return 100 * float(np.mean(held)) if held else None


def _wide(known: Sequence[Prediction], group: str) -> float:
    return factors(scores(r for r in known if r.group != group), len(known))[1]


def summary(
    rows: Sequence[Prediction], found: Sequence[Prediction] | None = None
) -> dict[str, float | int | None]:
    """Of one kind. Errors in percent of what came. `found`: all that bands are learned from."""
    errors = [100 * abs(exp(r.error) - 1) for r in rows if r.error is not None]
    answered = [r for r in rows if r.error is not None]
    return {
        "n": len(rows),
        "refused": len(rows) - len(errors),
        "median_pct": _at(errors, 0.5),
        "mean_pct": float(np.mean(errors)) if errors else None,
        "p90_pct": _at(errors, 0.9),
        "wrong_way": sum(r.wrong_way for r in rows),
        "held_pct": held_pct(answered, rows if found is None else found),
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
