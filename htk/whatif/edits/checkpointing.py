"""Activation checkpointing: layers run forward once more in the backward pass, or no longer do."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from htk.columns.types import Mask
from htk.errors import UsageError
from htk.whatif.fsdp_units import compute_lane
from htk.whatif.host_cost import cpu_edges, unlaunched
from htk.whatif.micro_batches import micro_batches
from htk.whatif.step_model import StepModel

NAME = "checkpointing"
HELP = "Recompute activations of every layer in the backward pass: on, off."

_ALL = 2  # attention kernels that tell the layers apart


def apply(scene: StepModel, value: str) -> StepModel:
    again = scene.facts.recomputed & scene.is_compute
    if value == "off":
        if not again.any():
            raise UsageError(f"{NAME} off: no recomputation is seen in the step")
        return (
            unlaunched(scene, again)
            .with_uncertainty("compute", 0.05)
            .with_assumption("what is recomputed is not, nor launched; more stays in memory")
        )
    if value != "on":
        raise UsageError(f"{NAME} {value!r}: on or off")
    if again.any():
        return scene.with_assumption("the recording recomputes already")
    return _on(scene)


def _on(scene: StepModel) -> StepModel:
    """Each rank's backward kernels take longer in proportion, and so do their launches."""
    acts, length = scene.graph.activities, scene.lengths().astype(np.float64)
    weight = scene.weight.copy()
    slower = np.ones(len(length))
    many = max(micro_batches(scene), 1)  # one of them shows what runs again
    for rank in scene.graph.ranks:
        lane = compute_lane(scene, rank)
        lane = lane[acts.kind[lane] == 0]
        again, layers = _layers(scene, lane)
        layers *= many
        back = lane[scene.facts.backward[lane]]
        if not len(again) or not len(back):
            raise UsageError(f"{NAME} on: forward and backward kernels are not told apart")
        slower[back] = 1 + layers * length[again].sum() / max(length[back].sum(), 1.0)
        _relaunched(scene, weight, again, back, layers)
    backward: Mask = slower > 1
    return (
        replace(scene, weight=weight)
        .with_lengths(backward, length * slower)
        .with_uncertainty("compute", 0.05)
        .with_assumption(
            "all layers run forward again, with as many launches; embedding, output and loss do "
            "not; sharded parameters are still there for it"
        )
    )


def _layers(scene: StepModel, lane: NDArray[np.int64]) -> tuple[NDArray[np.int64], float]:
    """Forward kernels of some layers, and how many times as many layers there are."""
    back = np.cumsum(scene.facts.backward[lane]) > 0
    attention = np.array([scene.facts.family[a] == "attention" for a in lane.tolist()], bool)
    places = np.flatnonzero(attention & ~back)
    if len(places) < _ALL:
        return lane[~back], 1.0
    return lane[places[0] : places[-1]], len(places) / (len(places) - 1)


def _relaunched(
    scene: StepModel,
    weight: NDArray[np.int64],
    again: NDArray[np.int64],
    back: NDArray[np.int64],
    layers: float,
) -> None:
    """The CPU launches the forward kernels again, while it launches the backward ones."""
    call = scene.graph.activities.call
    more = weight[cpu_edges(scene, np.unique(call[again]))]
    edges = cpu_edges(scene, np.unique(call[back])) & (weight > 0)
    ratio = 1 + layers * more[more > 0].sum() / max(int(weight[edges].sum()), 1)
    weight[edges] = np.rint(weight[edges] * ratio)
