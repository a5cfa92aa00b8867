"""Pipeline parallelism: stages hold a part of the layers each, and wait to be filled.

With p stages a step of m micro-batches takes (m + (p-1)/v) · t: the bubble is (p-1)/v of the time
that a stage needs for one. All ranks work on the same samples as before, so each pipeline has p
times as many micro-batches, each of which takes a pth of the time on a stage.
"""

from dataclasses import replace

from htk.errors import UsageError
from htk.whatif.edit_arguments import pairs, positive_integer
from htk.whatif.micro_batches import micro_batch_ns, micro_batches
from htk.whatif.parallel import ELEMENT, activation_ns, fewer_replicas, sizes
from htk.whatif.step_model import StepModel

NAME = "pp"
HELP = "Stages of a pipeline, from none: 4, or stages=4,interleave=2. Low confidence."


def apply(scene: StepModel, value: str) -> StepModel:
    options = pairs(value, NAME, ("stages", "interleave")) if "=" in value else {"stages": value}
    stages = positive_integer(options.get("stages", ""), NAME)
    chunks = positive_integer(options.get("interleave", "1"), "interleave")
    if stages == 1:
        return scene
    many = micro_batches(scene)
    if not many:
        raise UsageError(f"{NAME}: no backward pass is seen in the step")
    of = sizes(scene, NAME)
    sent = activation_ns(scene, 2, ELEMENT * of.tokens * of.hidden)
    each = micro_batch_ns(scene) / stages
    bubble = (stages - 1) / chunks * each
    filling = 2 * (stages - 1) * sent
    changed = fewer_replicas(scene, stages)
    return (
        replace(
            changed.add_step_time("bubble", bubble + filling, exposed=filling, idle=bubble),
            low_confidence=True,
        )
        .with_uncertainty("structure", 0.1)
        .with_uncertainty("communication", 0.3)
        .with_assumption(
            f"{stages} stages of equal length, {many * stages} micro-batches in a pipeline, each "
            f"{each / 1e6:.2f} ms on a stage; the bubble is {(stages - 1) / chunks:g} of them; "
            "activations pass on unseen but for filling and draining",
        )
    )
