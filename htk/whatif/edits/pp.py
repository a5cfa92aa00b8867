"""Pipeline parallelism: stages hold a part of the layers each, and wait to be filled.

With p stages a step of m micro-batches takes (m + (p-1)/v) · t: the bubble is (p-1)/v of the time
that a stage needs for one. All ranks work on the same samples as before, so each pipeline has p
times as many micro-batches, each of which takes a pth of the layers' time on a stage. Output and
loss are on the last stage alone, for which the others wait.
"""

from dataclasses import replace

import numpy as np

from htk.base.errors import UsageError
from htk.whatif.edit_arguments import pairs, positive_integer
from htk.whatif.fsdp_units import compute_lane, layers
from htk.whatif.micro_batches import MICRO_BATCHES, micro_batch, micro_batches
from htk.whatif.parallel import ELEMENT, activation_ns, fewer_replicas, sizes
from htk.whatif.step_model import StepModel

NAME = "pp"
HELP = "Stages of a pipeline, from none: 4, or stages=4,interleave=2. Low confidence."


def apply(model: StepModel, value: str) -> StepModel:
    stages, chunks = stages_and_chunks(value)
    if stages == 1:
        return model
    many = micro_batches(model)
    if not many:
        raise UsageError(f"{NAME}: no backward pass is seen in the step")
    of = sizes(model, NAME)
    sent = activation_ns(model, 2, ELEMENT * of.tokens * of.hidden)
    whole_ns = micro_batch(model).ns
    more = round(model.added.get(MICRO_BATCHES, 0) / whole_ns) if whole_ns else 0
    output = _outside_layers(model) * whole_ns
    each = (whole_ns - output) / stages + output
    uneven = (many + more) * (stages - 1) * output
    bubble = (stages - 1) / chunks * each
    filling = 2 * (stages - 1) * sent
    changed = fewer_replicas(model, stages)
    return (
        replace(
            changed.add_step_time(
                "bubble", bubble + uneven + filling, exposed=filling, idle=bubble + uneven
            ),
            low_confidence=True,
        )
        .with_uncertainty("structure", 0.1)
        .with_uncertainty("communication", 0.3)
        .with_assumption(
            f"{stages} stages of equally many layers, {(many + more) * stages} micro-batches in a "
            f"pipeline, each {each / 1e6:.2f} ms on the last stage, which holds output and loss "
            f"({output / 1e6:.2f} ms); the bubble is {(stages - 1) / chunks:g} of them; "
            "activations pass on unseen but for filling and draining",
        )
    )


def stages_and_chunks(value: str) -> tuple[int, int]:
    """Return the stages of a pipeline, and the chunks of layers that each of them holds."""
    options = pairs(value, NAME, ("stages", "interleave")) if "=" in value else {"stages": value}
    stages = positive_integer(options.get("stages", ""), NAME)
    return stages, positive_integer(options.get("interleave", "1"), "interleave")


def _outside_layers(model: StepModel) -> float:
    """Return the share of the forward pass that is in no layer: of output and loss, mostly."""
    shares = []
    for rank in model.graph.ranks:
        lane = compute_lane(model, rank)
        forward = lane[np.cumsum(model.facts.backward[lane]) == 0]
        length = model.lengths()[forward].astype(np.float64)
        position = {int(a): k for k, a in enumerate(forward.tolist())}
        within = sum(
            float(length[position[region.first] : position[region.last] + 1].sum())
            for region in layers(model, lane)
        )
        shares.append(1 - within / length.sum() if within else 0.0)
    return float(np.mean(shares))
