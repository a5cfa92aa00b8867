"""The place of a model's units in a step: what runs for each, forward and backward."""

from dataclasses import dataclass

import numpy as np

from htk.base.columns.order import order_by
from htk.base.columns.types import Ints, Mask, fill_none, take_or
from htk.whatif.group_kinds import described_degree
from htk.whatif.operator_shapes import list_matrices
from htk.whatif.shapes import read_inputs, sums_over_tokens
from htk.whatif.step_model import StepModel


@dataclass(frozen=True)
class Region:
    """Activities of the compute stream, first and last."""

    first: int
    last: int


def compute_lane(model: StepModel, rank: int) -> Ints:
    """Return the activities of the rank's busiest compute stream, in order."""
    return model.graph.activities.compute_lane(rank)


def waited_for(model: StepModel, activity: int, lane: Ints) -> int:
    """Return the last activity of a stream that this one waits for; -1: none."""
    return all_waited_for(model, [activity], lane)[0]


def all_waited_for(model: StepModel, each: list[int], lane: Ints) -> list[int]:
    """Return for several activities the last one of a stream that each waits for; -1: none."""
    graph = model.graph
    acts = model.graph.activities
    whose, source = graph.events_into(graph.start[each])
    position = fill_none(len(acts.start) + 1)  # a last one for -1
    position[lane] = np.arange(len(lane))
    recorded = fill_none(len(each))
    np.maximum.at(recorded, whose, position[graph.ended_at[source]])
    # The last that was over by then: behind it nothing is.
    over = np.minimum.accumulate(acts.end[lane][::-1])[::-1]
    done = np.searchsorted(over, acts.start[each], "right") - 1
    return [int(k) for k in take_or(lane, np.where(recorded >= 0, recorded, done))]


def backward_regions(model: StepModel, lane: Ints, ready: list[int]) -> list[Region]:
    """Return what runs before each of these, since the one before it, in the backward pass."""
    position = np.full(len(model.graph.activities.start) + 1, -1)  # a last one for -1
    position[lane] = np.arange(len(lane))
    back = np.flatnonzero(model.facts.backward[lane])
    begin = int(back[0]) if len(back) else 0
    regions = []
    for end in position[ready].tolist():
        end = max(end, begin)
        regions.append(Region(int(lane[begin]), int(lane[end])))
        begin = min(end + 1, len(lane) - 1)
    return regions


def find_layers(model: StepModel, lane: Ints) -> list[Region]:
    """Return the layers of the forward pass, each around its attention: one kernel, or one for each
    part of the sequences that ranks share."""
    attention = model.facts.family.isin("attention")[lane]
    back = model.facts.backward[lane]
    forward = np.flatnonzero(~back & (np.cumsum(back) == 0))
    places = np.flatnonzero(attention & ~back & (np.cumsum(back) == 0))
    parts = described_degree(model, "context") or 1
    if len(places) % parts == 0 and len(places) > parts:
        places = places[::parts]
    if len(places) < 2:
        return []
    low = max(int(forward[0]), 1)  # 0: the batch comes in
    return _cut_layers(model, lane, places, low, int(forward[-1]))


def find_passes(model: StepModel, lane: Ints) -> list[Ints]:
    """Return the activities of each forward and backward pass of a stream, in its order: several
    where a step has several micro-batches, which stages of a pipeline do not take in turn."""
    back = (model.facts.backward | model.facts.recomputed)[lane]
    attention = model.facts.family.isin("attention") & (model.is_compute & ~model.facts.recomputed)
    runs = np.split(lane, np.flatnonzero(back[1:] != back[:-1]) + 1)
    turns: list[Ints] = []
    runs = [run for run in runs if attention[run].any()]
    shortest = {_is_backward(model, run): run for run in sorted(runs, key=len, reverse=True)}
    for run in runs:
        is_backward = _is_backward(model, run)
        single = shortest[is_backward]
        many = int(attention[run].sum()) // max(int(attention[single].sum()), 1)
        each = len(single) * np.arange(1, max(many, 1))
        # What comes once comes before the first forward pass, and after the last backward one.
        turns += np.split(run, each if is_backward else len(run) - each[::-1])
    return turns


def _is_backward(model: StepModel, run: Ints) -> bool:
    return bool(model.facts.backward[run].any())


def backward_layers(model: StepModel, lane: Ints, count: int) -> list[Region]:
    """Return the layers of the backward pass, last layer first."""
    attention = model.facts.family.isin("attention")[lane]
    back = np.flatnonzero(model.facts.backward[lane])
    places = np.flatnonzero(attention & model.facts.backward[lane])
    if count < 2 or len(places) < count:
        return []
    each = len(places) // count  # kernels of one layer's attention
    firsts = places[: each * count].reshape(count, each)[:, 0]
    return _cut_layers(model, lane, firsts, int(back[0]), int(back[-1]))


def _cut_layers(model: StepModel, lane: Ints, places: Ints, low: int, high: int) -> list[Region]:
    """Return layers that begin where what they repeat does; those that differ are cut half-way to
    the next."""
    every = int(places[1] - places[0])
    begin = int(places[0])
    if (np.diff(places) == every).all():
        offset = max(begin - every, 0)
        alike = _describe_kernels(model, lane[offset : begin + every])
        least = max(low, begin - every + 1)
        while begin > least and alike[begin - 1 - offset] == alike[begin - 1 - offset + every]:
            begin -= 1
        firsts = [begin + every * k for k in range(len(places))]
        lasts = [min(first + every - 1, high) for first in firsts]
    else:
        middles = ((places[1:] + places[:-1]) // 2).tolist()
        firsts = [low, *(m + 1 for m in middles)]
        lasts = [*middles, high]
    return [Region(int(lane[a]), int(lane[b])) for a, b in zip(firsts, lasts, strict=True)]


def _describe_kernels(model: StepModel, rows: Ints) -> list[tuple[int, str | None, str | None]]:
    """Return what tells a kernel from those that do other work."""
    names = model.graph.activities.name
    facts = model.facts
    return [(int(names[k]), facts.op[k], facts.dims[k]) for k in rows.tolist()]


def find_gradient_products(model: StepModel, lanes: list[Ints]) -> list[list[tuple[int, int]]]:
    """Return for each stream the products that make a weight's gradient, with its elements.

    Where a weight is as wide as there are tokens, the product that passes the gradient on has the
    same shapes and comes right before it.
    """
    facts = model.facts
    summing = facts.backward & ~facts.recomputed & sums_over_tokens(model)
    summing &= facts.family.isin("gemm") & facts.dims.where(lambda d: len(list_matrices(d)) > 1)
    tokens = read_inputs(model).tokens
    as_wide = facts.dims.where(
        lambda d: len(list_matrices(d)) > 1 and list_matrices(d)[0][0] == tokens
    )
    elements = [_of_result(dims) for dims in facts.dims.distinct]
    codes = facts.dims.codes
    gradients_of_lanes = []
    for lane in lanes:
        kernels = lane[summing[lane]]
        kernels = kernels[_passed_on(codes[kernels], as_wide[kernels])]
        sizes = [elements[code] for code in codes[kernels].tolist()]
        gradients_of_lanes.append(list(zip(kernels.tolist(), sizes, strict=True)))
    return gradients_of_lanes


def _of_result(dims: str | None) -> int:
    """Return the elements of a product's result."""
    shapes = list_matrices(dims)
    return shapes[0][0] * shapes[1][1] if len(shapes) > 1 else 0


def _passed_on(codes: Ints, as_wide: Mask) -> Mask:
    """Return which of several products in a row count: of two alike that are as wide as there are
    tokens the second, which the first only passes a gradient on for."""
    begins = np.flatnonzero(np.append(True, codes[1:] != codes[:-1])[: len(codes)])
    count = np.diff(np.append(begins, len(codes)))
    nth = np.arange(len(codes)) - np.repeat(begins, count)
    last = nth == np.repeat(count, count) - 1
    return np.asarray(~as_wide | (nth % 2 == 1) | last)


def of_weights(model: StepModel) -> Mask:
    """Return the products that make gradients of weights: all that sum over tokens, if no pass is
    recorded."""
    return model.once("of_weights", lambda: _of_weights(model))


def _of_weights(model: StepModel) -> Mask:
    if not model.facts.backward.any():
        return sums_over_tokens(model)
    chosen = np.zeros(len(model.facts.dims), bool)
    for of_lane in find_gradient_products(
        model, [compute_lane(model, rank) for rank in model.graph.ranks]
    ):
        chosen[[kernel for kernel, _ in of_lane]] = True
    return chosen


def weights_between(model: StepModel, lane: Ints, region: Region) -> int:
    """Return the elements of the matrices that a region's products multiply with, by shapes."""
    first = position_on(lane, region.first)
    last = position_on(lane, region.last)
    total = 0
    for activity in lane[first : last + 1].tolist():
        op = model.facts.op[activity] or ""
        dims = model.facts.dims[activity]
        if not dims or model.facts.family[activity] != "gemm" or "bmm" in op:
            continue
        shapes = list_matrices(dims)
        if len(shapes) > 1:
            total += shapes[-1][0] * shapes[-1][1]
    return total


def next_of(lane: Ints, activity: int) -> int:
    """Return the activity behind one on its stream; of the last one itself."""
    return int(lane[min(position_on(lane, activity) + 1, len(lane) - 1)])


def all_next_of(lane: Ints, activities: Ints) -> Ints:
    """Return the activity behind each on its stream; -1 of one that is on no stream."""
    order = order_by(lane)
    row = np.minimum(np.searchsorted(lane[order], activities), len(lane) - 1)
    following = lane[np.minimum(order[row] + 1, len(lane) - 1)]
    return np.where(lane[order[row]] == activities, following, -1)


def position_on(lane: Ints, activity: int) -> int:
    """Return the place of an activity on its stream, which mostly holds them by number."""
    position = int(np.searchsorted(lane, activity))
    if position < len(lane) and lane[position] == activity:
        return position
    return int(np.flatnonzero(lane == activity)[0])
