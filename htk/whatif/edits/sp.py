"""Sequence parallelism beside tensor parallelism: norms and residuals are split too.

An all-reduce becomes a reduce-scatter and an all-gather of the same bytes together; the backward
pass gathers its inputs once more, up to 2 (t-1)/t · x for each layer.
"""

from dataclasses import replace

from htk.base.errors import UsageError
from htk.whatif.edit_arguments import switched_on
from htk.whatif.parallel import (
    ELEMENT,
    activation_ns,
    each_layer,
    pointwise,
    sizes,
    split,
    tensor_degree,
)
from htk.whatif.step_model import StepModel

NAME = "sp"
HELP = "Sequence parallelism within the tensor-parallel group: on. Low confidence."

# Of what is won: layers of 22B on 8 ranks became 3 % faster (Korthikanti et al., 2022), steps of
# 13B on as many 9 to 13 % (Aleph Alpha's layouts).
_SHARED = 0.5


def apply(model: StepModel, value: str) -> StepModel:
    switched_on(value, NAME)
    ranks = model.tensor or tensor_degree(model)
    if ranks < 2:
        raise UsageError(f"{NAME} goes with tensor parallelism, which is 1; give tp too")
    of = sizes(model, NAME)
    unsplit = replace(of, tokens=of.tokens * (ranks if model.tensor else 1))
    changed = split(model, pointwise(model, of) & model.is_compute, ranks)
    again = 2 * (ranks - 1) / ranks * ELEMENT * unsplit.tokens * unsplit.hidden
    changed = each_layer(changed, NAME, [], [activation_ns(model, ranks, again)], ranks)
    return (
        replace(changed, low_confidence=True)
        .with_uncertainty("compute", _SHARED)
        .with_uncertainty("communication", 0.3)
        .with_assumption(
            f"norms and residuals are shared by {ranks} ranks; all-reduces of activations become "
            "reduce-scatter and all-gather, and the backward pass gathers once more"
        )
    )
