"""Gradients of fewer bytes, or of more, between ranks: compressed, or in another type.

Only what is sent changes; packing and unpacking take no time here, which makes it a bound.
"""

from dataclasses import replace

from htk.base.errors import UsageError
from htk.whatif.edit_arguments import parse_factor
from htk.whatif.parallel import shrink_collectives
from htk.whatif.parallelism import mark_replicating, shared_tokens
from htk.whatif.step_model import StepModel
from htk.whatif.transfers import rescale_transfers

NAME = "gradients"
HELP = "Bytes of gradients that ranks reduce: 0.5x, as 8 bits in place of 16."


def read_share(value: str) -> float:
    """Return the bytes sent, in times of those recorded."""
    return parse_factor(value, NAME)


def apply(model: StepModel, value: str) -> StepModel:
    ratio = read_share(value)
    scatters = model.is_collective("reduce_scatter") & ~shared_tokens(model)
    reduces = mark_replicating(model) | scatters
    if not reduces.any():
        raise UsageError(f"{NAME}: no reduction of gradients of known size is seen in the step")
    if ratio == 1:
        return model
    changed = model.with_lengths(reduces, rescale_transfers(model, reduces, ratio))
    changed = replace(changed, facts=shrink_collectives(changed.facts, reduces, 1 / ratio))
    return changed.with_uncertainty("communication", 0.2).with_assumption(
        f"gradients take {ratio:g} times the bytes on the wire; packing them takes no time: a bound"
    )
