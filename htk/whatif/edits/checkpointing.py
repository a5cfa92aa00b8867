"""Activation checkpointing: layers run forward once more in the backward pass, or no longer do."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from htk.base.columns.types import Mask
from htk.base.errors import UsageError
from htk.whatif.fsdp_units import compute_lane
from htk.whatif.host_cost import cpu_edges, remove_launches
from htk.whatif.micro_batch_count import micro_batches
from htk.whatif.step_model import StepModel

NAME = "checkpointing"
HELP = (
    "Recompute activations of every layer in the backward pass: on, off, or selective (every "
    "second matrix product and all that is neither that nor attention)."
)

# Of the host, in a step of 8 layers on an H100: what each saved tensor takes to be packed and found
# again makes its forward pass so many times as long, and its backward pass.
_PACKED = 1.6
_UNPACKED = 1.1
_HOST = 0.3  # of that, one sigma
_ALL = 2  # attention kernels that tell the layers apart
# How much of the forward pass runs again: of matrix products, attention, and all else.
_AGAIN = {"on": (1.0, 1.0, 1.0), "selective": (0.5, 0.0, 1.0)}
_WORDS = {
    "on": "all layers run forward again, with as many launches; embedding, output and loss do not; "
    "sharded parameters are still there for it",
    "selective": "of every layer half of the matrix products and all but attention runs forward "
    "again; results of the other products and of attention are kept",
}


def apply(model: StepModel, value: str) -> StepModel:
    again = model.facts.recomputed & model.is_compute
    if value == "off":
        if not again.any():
            return model.with_assumption("the recording recomputes nothing")
        return (
            _with_host(remove_launches(model, again), 1 / _PACKED, 1 / _UNPACKED)
            .with_uncertainty("host", _HOST)
            .with_uncertainty("compute", 0.05)
            .with_assumption("what is recomputed is not, nor launched; more stays in memory")
        )
    if value not in _AGAIN:
        raise UsageError(f"{NAME} {value!r}: on, off or selective")
    if again.any() and value == "on":
        return model.with_assumption("the recording recomputes already")
    if again.any():
        changed = _turn_on(remove_launches(model, again), value)
    else:
        changed = _with_host(_turn_on(model, value), _PACKED, _UNPACKED)
    changed = changed.with_uncertainty("host", _HOST)
    return changed.with_uncertainty("compute", 0.05).with_assumption(_WORDS[value])


def _with_host(model: StepModel, forward: float, backward: float) -> StepModel:
    """Return the model whose host takes so many times as long to launch each pass."""
    facts = model.facts
    calls = model.graph.activities.call
    kernels = model.is_compute & ~facts.recomputed & (calls >= 0)
    kernels &= ~facts.family.isin("optimizer")
    weight = model.weight.astype(np.float64)
    for of_pass, times in ((~facts.backward, forward), (facts.backward, backward)):
        edges = cpu_edges(model, np.unique(calls[kernels & of_pass])) & (weight > 0)
        weight[edges] *= times
    return replace(model, weight=np.rint(weight).astype(np.int64))


def _turn_on(model: StepModel, value: str) -> StepModel:
    """Each rank's backward kernels take longer in proportion, and so do their launches."""
    products, attention, others = _AGAIN[value]
    family = model.facts.family
    share = np.where(family.isin("gemm"), products, others)
    share = np.where(family.isin("attention"), attention, share)
    acts = model.graph.activities
    length = model.lengths().astype(np.float64)
    weight = model.weight.copy()
    slower = np.ones(len(length))
    many = max(micro_batches(model), 1)  # one of them shows what runs again
    for rank in model.graph.ranks:
        lane = compute_lane(model, rank)
        lane = lane[acts.kind[lane] == 0]
        again, layers = _find_layer_kernels(model, lane)
        layers *= many
        back = lane[model.facts.backward[lane]]
        if not len(again) or not len(back):
            raise UsageError(f"{NAME} on: forward and backward kernels are not told apart")
        forward = lane[~model.facts.backward[lane] & ~family.isin("optimizer")[lane]]
        repeated = layers * (length * share)[again].sum()
        repeated = min(repeated, length[forward].sum())  # a forward pass at most
        slower[back] = 1 + repeated / max(length[back].sum(), 1.0)
        _relaunch_forward(model, weight, again, back, layers * float(share[again].mean()))
    backward: Mask = slower > 1
    return replace(model, weight=weight).with_lengths(backward, length * slower)


def _find_layer_kernels(
    model: StepModel, lane: NDArray[np.int64]
) -> tuple[NDArray[np.int64], float]:
    """Forward kernels of some layers, and how many times as many layers there are."""
    back = np.cumsum(model.facts.backward[lane]) > 0
    attention = model.facts.family.isin("attention")[lane]
    places = np.flatnonzero(attention & ~back)
    if len(places) < _ALL:
        return lane[~back], 1.0
    return lane[places[0] : places[-1]], len(places) / (len(places) - 1)


def _relaunch_forward(
    model: StepModel,
    weight: NDArray[np.int64],
    again: NDArray[np.int64],
    back: NDArray[np.int64],
    layers: float,
) -> None:
    """The CPU launches the forward kernels again, while it launches the backward ones."""
    call = model.graph.activities.call
    more = weight[cpu_edges(model, np.unique(call[again]))]
    edges = cpu_edges(model, np.unique(call[back])) & (weight > 0)
    ratio = 1 + layers * more[more > 0].sum() / max(int(weight[edges].sum()), 1)
    weight[edges] = np.rint(weight[edges] * ratio)
