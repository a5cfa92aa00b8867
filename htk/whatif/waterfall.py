"""The change of a step by cause."""

import numpy as np

from htk.quantities.graph.build import CATEGORIES
from htk.quantities.graph.exposed import BusyDevices
from htk.quantities.graph.replay import Replay, replayed_period
from htk.whatif.step_model import StepModel


def split_change(
    edited: StepModel, untouched: int, change: int, scale: float, replayed: int | None = None
) -> dict[str, int]:
    """By cause, which sums to the whole. `scale`: ns of the answer for one of the replay;
    `replayed`: what the edited step was replayed to take, where that was done."""
    by_cause = _by_substitution(edited, untouched, replayed)
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


def _by_substitution(edited: StepModel, untouched: int, replayed: int | None) -> dict[str, int]:
    """One cause after the other takes its new lengths; the graph's own are the untouched ones."""
    graph = edited.graph
    changed = edited.changed_edges
    category = graph.categories[changed]
    if not np.array_equal(edited.wrap_weight, graph.wrap_weight):
        replayed = None
    causes = np.flatnonzero(np.bincount(category, minlength=len(CATEGORIES))).tolist()
    weight = graph.weight
    before = untouched
    by_cause = {}
    for code in causes:
        if code == causes[-1] and replayed is not None:
            now = replayed
        else:
            of_cause = changed[category == code]
            weight = weight.copy()
            weight[of_cause] = edited.weight[of_cause]
            now = replayed_period(graph, weight)
        by_cause[CATEGORIES[code]] = now - before
        before = now
    return by_cause


def measure_exposed_and_idle(edited: StepModel, after: Replay, step: int) -> tuple[int, int]:
    """Return exposed communication and idle time of the answer; the rest of the step is work."""
    repeated = after.period_ns - sum(edited.added.values())
    times = BusyDevices.from_graph(edited.graph, after.time)
    scale = step / max(after.period_ns, 1)
    # A step may begin before the one before it is over: what is exposed then has no more room than
    # what is computed leaves.
    room = max(step - round(times.computing * scale), 0)
    shown = min(max(round((times.exposed + edited.added_exposed) * scale), 0), room)
    nothing = max(round((times.idle(repeated) + edited.added_idle) * scale), 0)
    return shown, min(nothing, step - shown)
