"""Sequence parallelism beside tensor parallelism: norms and residuals are split too.

An all-reduce becomes a reduce-scatter and an all-gather of the same bytes together; the backward
pass gathers its inputs once more, up to 2 (t-1)/t · x for each layer.
"""

from dataclasses import replace

from htk.base.columns.types import Mask
from htk.base.errors import UsageError
from htk.whatif.edit_arguments import on_or_off
from htk.whatif.parallel import (
    ELEMENT,
    activation_ns,
    each_layer,
    mark_pointwise,
    predict_roughly,
    read_sizes,
    split_work,
    tensor_degree,
)
from htk.whatif.parallelism import shared_tokens
from htk.whatif.step_model import StepModel

NAME = "sp"
HELP = "Sequence parallelism within the tensor-parallel group: on or off. Low confidence."

# Of what is won: layers of 22B on 8 ranks became 3 % faster (Korthikanti et al., 2022), steps of
# 13B on as many 9 to 13 % (Aleph Alpha's layouts).
_OF_WON = 0.5


def apply(model: StepModel, value: str) -> StepModel:
    is_on = on_or_off(value, NAME)
    seen = shared_tokens(model)
    if is_on == bool(seen.any()):
        return model.with_assumption(f"sequence parallelism is {value} already")
    changed, words = _share_norms(model) if is_on else _undo_sharing(model, seen)
    return predict_roughly(changed, words, _OF_WON)


def _share_norms(model: StepModel) -> tuple[StepModel, str]:
    """Return the model whose ranks share norms and residuals, and how."""
    ranks = model.tensor or tensor_degree(model)
    if ranks < 2:
        raise UsageError(f"{NAME} goes with tensor parallelism, which is 1; give tp too")
    of = read_sizes(model, NAME)
    tokens = of.tokens * (ranks if model.tensor else 1)
    changed = split_work(model, mark_pointwise(model, of) & model.is_compute, ranks)
    again = 2 * (ranks - 1) / ranks * ELEMENT * tokens * of.hidden
    changed = each_layer(changed, NAME, [], [activation_ns(model, ranks, again)], ranks)
    return changed, (
        f"norms and residuals are shared by {ranks} ranks; all-reduces of activations become "
        "reduce-scatter and all-gather, and the backward pass gathers once more"
    )


def _undo_sharing(model: StepModel, seen: Mask) -> tuple[StepModel, str]:
    """Return the model whose norms and residuals every rank computes whole; what it gathers once
    more for the backward pass, it does no longer."""
    ranks = tensor_degree(model)
    of = read_sizes(model, NAME)
    shared = mark_pointwise(model, replace(of, tokens=of.tokens / ranks)) & model.is_compute
    changed = split_work(model, shared, 1 / ranks)
    backward = seen & model.facts.backward
    gathers = backward & model.is_collective("all_gather")
    scatters = int((backward & ~gathers).sum())
    kept = min(scatters / max(int(gathers.sum()), 1), 1.0)
    return changed.with_lengths(gathers, kept * model.lengths()), (
        f"each of {ranks} ranks computes norms and residuals whole; a gather and a scatter of "
        "activations become an all-reduce of as many bytes"
    )
