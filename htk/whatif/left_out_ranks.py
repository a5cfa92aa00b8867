"""What edits make of the ranks that are left out, and how much of an answer rests on these."""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from htk.base.columns.types import Mask
from htk.base.errors import UsageError
from htk.quantities.graph.replay import replayed_period
from htk.whatif.step_model import StepModel

# Measured by `bench/representatives.py`: one standard deviation, beyond what rests on arrivals.
LEFT_OUT = 0.003
# A step in which those who are left out were as fast as the ranks that they follow is the other
# extreme: answers lie between, so that nine in ten are within 1.64 times this share of it.
_OF_ARRIVALS = 0.6
# What these change is the same on every rank of a role. Others compare ranks with each other, or
# form new groups of them.
_ANSWERED = (
    *("replace", "hardware", "precision", "batch", "seq", "checkpointing", "network", "overlap"),
    *("attention", "loss", "optimizer", "lora"),
    *("remove_syncs", "no_data_wait", "workers", "host", "graphs", "compile", "accumulation"),
)


def needs_all_ranks(name: str) -> bool:
    """Return whether an edit cannot be answered from a few ranks."""
    return name not in _ANSWERED


def check_answered(edits: Sequence[tuple[str, str]]) -> None:
    """Refuse edits that cannot be answered from a few ranks."""
    for name, _ in edits:
        if needs_all_ranks(name):
            raise UsageError(f"{name} needs all ranks: it cannot be answered from representatives")


def follow_left_out(edited: StepModel, recorded: StepModel) -> StepModel:
    """Return the step in which ranks that are left out come later than those that they follow by as
    much more or less as these need for their own work, without communication."""
    arrive = _mark_late_edges(edited)
    before = _measure_own_step(recorded)
    if not arrive.any() or not before:
        return edited
    behind = edited.weight * (max(_measure_own_step(edited), 0) / before)
    weight = np.where(arrive, np.rint(behind), edited.weight).astype(np.int64)
    return replace(edited, weight=weight).with_assumption(
        "a rank that was left out comes as long after the one that it follows as recorded, in "
        "proportion to the own work of these; memory is that of the ranks worked with"
    )


def estimate_left_out_sigma(edited: StepModel, period_ns: int) -> float:
    """Return one standard deviation of the logarithm of the step, for what is left out."""
    prompt = np.where(_mark_late_edges(edited), 0, edited.weight)
    without = replayed_period(edited.graph, prompt, edited.wrap_weight)
    rests = (period_ns - without) / max(period_ns, 1)
    return math.hypot(LEFT_OUT, _OF_ARRIVALS * rests)


def _mark_late_edges(model: StepModel) -> Mask:
    """Return the edges by which ranks of the graph are followed by later ones."""
    return np.asarray(model.graph.edges("arrive") & (model.weight > 0))


def _measure_own_step(model: StepModel) -> int:
    """Return what a step takes where nothing is sent and nobody left out is waited for, in ns."""
    alone = model.with_lengths(model.is_comm, 0)
    weight = np.where(_mark_late_edges(alone), 0, alone.weight)
    return replayed_period(alone.graph, weight, alone.wrap_weight) - sum(alone.added.values())
