"""Context parallelism: ranks share a sequence, and keys and values go round a ring.

All work on activations is split, and what the parts of a sequence give is added up. A layer sends
2 (c-1) · x_kv forward and twice that backward, with x_kv the keys (or values) of a rank's part;
attention hides what it lasts.
"""

from dataclasses import replace

import numpy as np

from htk.base.errors import UsageError
from htk.whatif.edit_arguments import positive_integer
from htk.whatif.edits import batch
from htk.whatif.edits.batch import mark_growing
from htk.whatif.group_kinds import described_as, described_degree
from htk.whatif.host_cost import remove_launches
from htk.whatif.parallel import (
    ELEMENT,
    Sizes,
    activation_ns,
    carries_activations,
    each_layer,
    mark_pointwise,
    predict_roughly,
    read_sizes,
    split_work,
)
from htk.whatif.step_model import StepModel
from htk.whatif.transfers import rescale_transfers

NAME = "cp"
HELP = "Ranks of context parallelism: 2, or 1 for none. Low confidence."

_MERGED, _RESIDUAL = 4, 3  # tensors that are read and written


def apply(model: StepModel, value: str) -> StepModel:
    ranks = positive_integer(value, NAME)
    now = described_degree(model, "context")
    if now is None:
        raise UsageError(f"{NAME}: whether ranks share sequences now is not recorded")
    if ranks == now:
        return model.with_assumption(f"context parallelism is {now} already")
    if now > 1:
        return _shared_otherwise(model, now, ranks)
    of = read_sizes(model, NAME)
    carried = carries_activations(model)
    shared = model.with_lengths(carried, rescale_transfers(model, carried, 1 / ranks))
    changed = _merge_attention(split_work(shared, mark_growing(model), ranks), of, ranks)
    part = ELEMENT * of.tokens / ranks * of.hidden * of.kv_share
    sent = 2 * (ranks - 1) * part
    forward = _measure_attention(changed, False)
    backward = _measure_attention(changed, True)
    exposed = max(activation_ns(model, ranks, sent) - forward, 0.0)
    exposed_back = max(activation_ns(model, ranks, 2 * sent) - backward, 0.0)
    changed = each_layer(changed, NAME, [exposed], [exposed_back], ranks)
    changed = replace(
        changed,
        samples=model.samples / ranks,
        activation_scale=model.activation_scale / ranks,
    )
    return predict_roughly(
        changed,
        f"{ranks} ranks share each sequence: {sent / 1e6:.1f} MB sent for a layer forward and "
        "twice that backward, of which attention hides as much as it lasts; parameters are "
        "reduced over all ranks as before",
    )


def _shared_otherwise(model: StepModel, now: int, ranks: int) -> StepModel:
    """Return the model whose sequences more or fewer ranks share than the recorded ones do.

    Each has so many times the tokens, and sends what (c-1)/c of the keys and values are.
    """
    sent = described_as(model, "context")
    longer = batch.apply(model, f"{now / ranks:.9f}x")
    if ranks == 1:
        changed = remove_launches(longer, sent)
    else:
        moved = (1 - 1 / ranks) / (1 - 1 / now)
        changed = longer.with_lengths(sent, rescale_transfers(model, sent, moved))
    return predict_roughly(
        replace(changed, assumptions=model.assumptions),
        f"{ranks} ranks share each sequence in place of {now}: each has {now / ranks:.3g} "
        "times the tokens" + ("" if ranks > 1 else ", and sends no keys and values"),
    )


def _merge_attention(model: StepModel, of: Sizes, ranks: int) -> StepModel:
    """Return the model whose attention adds up what each rank's keys and values gave: a pass over
    four tensors, where a residual is one over three."""
    attends = np.array([f == "attention" for f in model.facts.family], bool)
    residuals = mark_pointwise(model, of) & np.array(
        [f == "elementwise" for f in model.facts.family]
    )
    if not residuals.any():
        return model
    length = model.lengths()
    merge = _MERGED / _RESIDUAL * float(np.median(length[residuals]))
    return model.with_lengths(attends, length + (ranks - 1) * merge)


def _measure_attention(model: StepModel, backward: bool) -> float:
    """Length of a layer's attention."""
    kernels = model.facts.family.isin("attention")
    kernels &= model.facts.backward == backward
    return float(np.median(model.lengths()[kernels])) if kernels.any() else 0.0
