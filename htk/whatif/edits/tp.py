"""Tensor parallelism: several ranks share each layer's matrices.

Matrix products, attention and what works on their inner tensors are split; norms and residuals are
not. Each layer adds up activations twice forward and twice backward: all-reduces of 2 · tokens ·
hidden bytes, 8 (t-1)/t · x in all, which nothing hides.
"""

from dataclasses import replace

from htk.whatif.edit_arguments import positive_integer
from htk.whatif.edits.batch import mark_growing
from htk.whatif.group_kinds import described_as
from htk.whatif.parallel import (
    ELEMENT,
    activation_ns,
    each_layer,
    fewer_replicas,
    inner_split,
    mark_pointwise,
    predict_roughly,
    read_sizes,
    split_work,
    tensor_degree,
    tensor_reduces,
)
from htk.whatif.recorded_job import recorded_job
from htk.whatif.step_model import StepModel
from htk.whatif.transfers import gpus_of_a_node, rescale_transfers

NAME = "tp"
HELP = "Ranks of tensor parallelism: 4. The micro-batch of a group stays. Low confidence."


def apply(model: StepModel, value: str) -> StepModel:
    ranks = positive_integer(value, NAME)
    now = tensor_degree(model)
    if ranks == now:
        return model.with_assumption(f"tensor parallelism is {now} already")
    of = read_sizes(model, NAME)
    ways = ranks / now
    unsplit = mark_pointwise(model, of)
    changed = inner_split(split_work(model, mark_growing(model) & ~unsplit, ways), model, of, ways)
    changed = _with_shorter_rings(fewer_replicas(changed, ways), model, now, ranks)
    if now > 1:
        reduces = tensor_reduces(model)
        ratio = ((ranks - 1) / ranks) / ((now - 1) / now)
        lengths = rescale_transfers(changed, reduces, ratio) if ranks > 1 else 0 * changed.lengths()
        changed = changed.with_lengths(reduces, lengths)
    else:
        sent = 2 * (ranks - 1) / ranks * ELEMENT * of.tokens * of.hidden
        each = [activation_ns(model, ranks, sent)] * 2
        changed = each_layer(changed, NAME, each, each, ranks)
    fewer = replace(
        changed,
        samples=model.samples / ways,
        activation_scale=model.activation_scale / ways,
        tensor=ranks,
    )
    megabytes = 8 * (ranks - 1) / ranks * ELEMENT * of.tokens * of.hidden / 1e6
    words = (
        f"tensor parallelism {ranks} in place of {now}: {megabytes:.0f} MB sent for each layer and "
        "micro-batch, not hidden; data parallelism shrinks by as much"
    )
    left = "; its groups leave the node" if ranks > gpus_of_a_node(model) else ""
    return predict_roughly(fewer, words + left)


def _with_shorter_rings(changed: StepModel, model: StepModel, now: int, ranks: int) -> StepModel:
    """Return the model whose context-parallel groups pass on the keys and values of fewer heads."""
    rings = described_as(model, "context")
    kv_heads = recorded_job(model).kv_heads or max(now, ranks)
    heads = max(kv_heads / ranks, 1) / max(kv_heads / now, 1)
    return changed.with_lengths(rings, rescale_transfers(changed, rings, heads))
