"""The uncertainty that each edit leaves in what it displaces, carried through the edits after it.

An edit states one standard deviation, relative to the displacement, for each cause: kernels,
communication, the host. It belongs to the edges that the edit changes, in ns, so that neither a
later edit in the opposite direction takes it away nor one of something else multiplies it. An edit
that makes an activity so many times longer makes what is uncertain of it as many times larger.

Of one activity class, what comes from the same model is wrong together and adds linearly: edits
that scale kernels by their shapes, edits that take a GPU's rates from the catalogue, edits of a
link. All else is independent: variances add.

A delay that nothing recorded explains stays as it was; that it might have changed as compute does
is uncertainty too.

Beyond the displacement, a prediction is less certain the further it is from the recording: by the
logarithm of the ratio of batches, and of ranks.
"""

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from htk.base.columns.types import Floats, Ints, Mask
from htk.quantities.graph.build import CATEGORIES
from htk.quantities.graph.replay import NEVER
from htk.whatif.step_model import StepModel

DISTANCE = 0.03  # of the step, for each factor of e in batch or ranks: from measured jobs
_LOW_CONFIDENCE = 1.5  # times wider
_SHAPES = ("batch", "seq", "serving", "tp", "sp", "cp")  # one model of kernels over their shapes
_RATES = ("hardware", "precision")  # one catalogue of rates


def measure_distance(before: StepModel, after: StepModel, recorded: Floats) -> float:
    """Return the |log ratio| of the micro-batch to the nearest recorded one, or of the length of
    sequences to the recorded one, where an edit changes it."""
    longer = abs(math.log(after.length_scale / before.length_scale))
    if after.activation_scale == before.activation_scale:
        return longer
    return max(longer, float(np.abs(np.log(recorded / after.activation_scale)).min()))


def accumulate_uncertainty(before: StepModel, after: StepModel, name: str, far: float) -> StepModel:
    """Return the edited step with the uncertainty of this edit beside that of those before it.

    `after` is the edit of `before.fresh()`; `far`: its distance from the recording.
    """
    if _is_same(before, after):
        return replace(
            after,
            edge_sigma=before.edge_sigma,
            step_sigma=before.step_sigma,
            touched=before.touched,
            low_confidence=before.low_confidence,
        )
    wide = _LOW_CONFIDENCE if after.low_confidence else 1.0
    old, new = after.weight_before, after.weight
    step = dict(after.step_sigma)
    edges = {key: _scale_sigmas(sigma, old, new) for key, sigma in after.edge_sigma.items()}
    changed = old != new
    moved = _find_displaced(after, changed)
    for cause, sigma in after.spread.items():
        if cause not in CATEGORIES:
            step[cause] = math.hypot(step.get(cause, 0.0), wide * sigma)
            continue
        own = moved[after.graph.categories[moved] == CATEGORIES.index(cause)]
        key = (cause, _name_model(cause, name))
        total_sigma = edges[key].copy() if key in edges else np.zeros(len(new))
        displacement = np.abs(np.maximum(new[own], 0) - np.maximum(old[own], 0))
        total_sigma[own] += displacement.astype(np.float64) * wide * sigma
        edges[key] = total_sigma
    if len(after.unexplained):
        kept = after.unexplained * abs(_compute_ns(after) / max(_compute_ns(before), 1) - 1)
        key = ("structure", "unexplained")
        edges[key] = np.asarray(edges.get(key, 0.0) + kept, np.float64)
    far = max(far, abs(math.log(after.devices / before.devices)))
    if far:
        step["distance"] = math.hypot(step.get("distance", 0.0), DISTANCE * far)
    if after.added != before.added:  # made of all that the step does
        changed = np.full(len(new), True)
    return replace(
        after,
        edge_sigma=edges,
        step_sigma=step,
        touched={**after.touched, name: changed | after.touched.get(name, np.array(False))},
        low_confidence=before.low_confidence or after.low_confidence,
    )


def accumulated_together(
    before: StepModel, between: StepModel, after: StepModel, name: str, far: float
) -> StepModel:
    """Return the edited step with the uncertainty of this edit and of the one before it as of one.

    Both ask one model for one change, from `before` to `after`: what the first made longer and the
    second shorter again was never predicted. `between`: the step after the first alone; `before`
    itself if this edit belongs to no other.
    """
    if between is before or _is_same(between, after):
        return accumulate_uncertainty(between, after, name, far)
    spread = {
        cause: max(after.spread.get(cause, 0.0), between.spread.get(cause, 0.0))
        for cause in dict(after.spread) | dict(between.spread)
    }
    joint = replace(
        after,
        spread=spread,
        weight_before=before.weight,
        edge_sigma=before.edge_sigma,
        step_sigma=before.step_sigma,
    )
    return accumulate_uncertainty(before, joint, name, far)


def _find_displaced(after: StepModel, changed: Mask) -> Ints:
    """Return the edges that an edit changes, and leaves in the step."""
    edges = np.flatnonzero(changed)
    return edges[after.weight[edges] > NEVER]


def _compute_ns(model: StepModel) -> int:
    return int(model.lengths()[model.is_compute].sum())


def touches_nothing_else(edited: StepModel, name: str) -> bool:
    """Does this edit touch no activity that another one touches?"""
    others = [mask for other, mask in edited.touched.items() if other != name]
    return not any((edited.touched[name] & other).any() for other in others)


def _is_same(before: StepModel, after: StepModel) -> bool:
    """Does an edit leave the step as it was?"""
    return (
        after.graph is before.graph
        and _is_equal(after.weight, before.weight)
        and np.array_equal(after.wrap_weight, before.wrap_weight)
        and _list_scales(after) == _list_scales(before)
        and after.added == before.added
    )


def _is_equal(some: Ints, others: Ints) -> bool:
    """Return whether two columns are equal; of most that differ the first rows tell."""
    few = 1 << 12
    return np.array_equal(some[:few], others[:few]) and np.array_equal(some, others)


def _list_scales(model: StepModel) -> tuple[float, ...]:
    return (
        model.samples,
        model.devices,
        model.activation_scale,
        model.peak,
        model.arrival_scale,
    )


def _name_model(cause: str, name: str) -> str:
    """Return what several edits have in common that makes them wrong together."""
    if cause == "communication":
        return "link"
    if name in _SHAPES:
        return "shapes"
    return "rates" if name in _RATES else name


def _scale_sigmas(sigma: Floats, old: Ints, new: Ints) -> Floats:
    """Return what earlier edits left, as many times larger as their edges are; none of removed."""
    ratio = np.where(old > 0, new / np.maximum(old, 1), 1.0)
    return np.asarray(np.where(new > 0, sigma * ratio, 0.0))


def sum_sigmas(sigmas: Mapping[str, float]) -> float:
    """Return the standard deviation of all causes together."""
    return math.sqrt(sum(s * s for s in sigmas.values()))
