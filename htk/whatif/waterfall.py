"""The change of a step by cause."""

import numpy as np

from htk.graph.replay import replay
from htk.whatif.step_model import CATEGORIES, StepModel


def waterfall(edited: StepModel, untouched: int, change: int, scale: float) -> dict[str, int]:
    """By cause, which sums to the whole. `scale`: ns of the answer for one of the replay."""
    found = _by_substitution(edited, untouched)
    for cause, ns in edited.added.items():
        found[cause] = found.get(cause, 0) + ns
    rest = change - sum(found.values())
    if rest:
        found["host"] = found.get("host", 0) + rest  # from step to step
    scaled = {cause: round(ns * scale) for cause, ns in found.items()}
    left = round(change * scale) - sum(scaled.values())
    if left:  # of rounding
        largest = max(scaled, key=lambda cause: abs(scaled[cause]))
        scaled[largest] += left
    return {cause: ns for cause, ns in scaled.items() if ns}


def _by_substitution(edited: StepModel, untouched: int) -> dict[str, int]:
    """One cause after the other takes its new lengths; the graph's own are the untouched ones."""
    weight = edited.graph.weight
    before, found = untouched, {}
    for code, cause in enumerate(CATEGORIES):
        mine = edited.categories == code
        if not (edited.weight[mine] != edited.graph.weight[mine]).any():
            continue
        weight = np.where(mine, edited.weight, weight)
        now = replay(edited.graph, weight).period_ns
        found[cause] = now - before
        before = now
    return found
