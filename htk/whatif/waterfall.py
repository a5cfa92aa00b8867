"""The change of a step by cause."""

import numpy as np

from htk.graph.replay import replay
from htk.whatif.step_model import CATEGORIES, StepModel


def waterfall(edited: StepModel, untouched: int, change: int, scale: float) -> dict[str, int]:
    """By cause, which sums to the whole. `scale`: ns of the answer for one of the replay."""
    by_cause = _by_substitution(edited, untouched)
    for cause, ns in edited.added.items():
        by_cause[cause] = by_cause.get(cause, 0) + ns
    rest = change - sum(by_cause.values())
    if rest:
        by_cause["host"] = by_cause.get("host", 0) + rest  # from step to step
    scaled = {cause: round(ns * scale) for cause, ns in by_cause.items()}
    left = round(change * scale) - sum(scaled.values())
    if left:  # of rounding
        largest = max(scaled, key=lambda cause: abs(scaled[cause]))
        scaled[largest] += left
    return {cause: ns for cause, ns in scaled.items() if ns}


def _by_substitution(edited: StepModel, untouched: int) -> dict[str, int]:
    """One cause after the other takes its new lengths; the graph's own are the untouched ones."""
    weight = edited.graph.weight
    before, by_cause = untouched, {}
    for code, cause in enumerate(CATEGORIES):
        of_cause = edited.categories == code
        if not (edited.weight[of_cause] != edited.graph.weight[of_cause]).any():
            continue
        weight = np.where(of_cause, edited.weight, weight)
        now = replay(edited.graph, weight).period_ns
        by_cause[cause] = now - before
        before = now
    return by_cause
