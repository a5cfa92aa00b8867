"""More or fewer micro-batches before each step of the optimizer: T = m · t + once.

One more takes what the step takes without the optimizer and, where gradients are reduced once, that
reduction. Sharded parameters are gathered and reduced for each. A pipeline is filled and drained
once, however many there are.
"""

import math
from dataclasses import replace

from htk.base.errors import UsageError
from htk.whatif.edit_arguments import parse_ratio
from htk.whatif.group_kinds import between_stages
from htk.whatif.micro_batch_count import micro_batches
from htk.whatif.micro_batches import MICRO_BATCHES, micro_batch
from htk.whatif.step_model import StepModel

NAME = "accumulation"
HELP = "Micro-batches of a step: 4, or 2x the recorded ones; global=512: samples of all ranks."

_SIGMA = 0.01  # of the step, for each doubling
_OF_STAGES = 0.05  # the same where stages of a pipeline wait for each other


def apply(model: StepModel, value: str) -> StepModel:
    now = micro_batches(model)
    if not now:
        raise UsageError(f"{NAME}: no backward pass is seen in the step")
    ratio = parse_ratio(value, now, NAME, "no micro-batches are seen")
    wanted = ratio * now
    if abs(wanted - round(wanted)) > 1e-6 or round(wanted) < 1:
        raise UsageError(f"{NAME} {value!r}: {wanted:g} micro-batches are not a whole number")
    if round(wanted) == now:
        return model.with_assumption(f"a step has {now} micro-batches already")
    each = micro_batch(model)
    more = round(wanted) - now
    sigma = _OF_STAGES if between_stages(model).any() else _SIGMA
    changed = replace(model, samples=model.samples * ratio)
    return (
        changed.add_step_time(
            MICRO_BATCHES, more * each.ns, exposed=more * each.exposed, idle=more * each.idle
        )
        .with_uncertainty("structure", sigma * max(abs(math.log2(ratio)), 1.0))
        .with_assumption(
            f"{round(wanted)} micro-batches in place of {now}, {each.ns / 1e6:.2f} ms for each"
        )
    )
