"""A fused cross-entropy: one kernel that leaves the gradients where the logits were.

It reads the logits twice and writes once; the copies in single precision, their softmax and the
backward pass of both go, and with them what they take of memory.
"""

import numpy as np

from htk.base.columns.types import Mask
from htk.base.errors import UsageError
from htk.whatif.host_cost import remove_launches
from htk.whatif.operator_shapes import list_matrices
from htk.whatif.step_model import StepModel

NAME = "loss"
HELP = "Cross-entropy as one kernel, which keeps no copies of the logits: fused."

_SOFTMAX = ("aten::_log_softmax", "aten::_log_softmax_backward_data", "aten::log_softmax")
_NLL = ("aten::nll_loss", "aten::nll_loss_forward", "aten::nll_loss_backward")
_PASSES = 3  # of two bytes over the logits
_BYTES = 2


def apply(model: StepModel, value: str) -> StepModel:
    if value != "fused":
        raise UsageError(f"{NAME} {value!r}: it can only be fused")
    if is_fused(model):
        return model.with_assumption("the loss is one kernel already")
    shape = _find_logits(model)
    gpu = model.device
    if shape is None or gpu is None:
        raise UsageError(
            f"{NAME}: no log_softmax of tokens by vocabulary is seen (record_shapes=True would "
            "tell), or the GPU is not in the catalogue"
        )
    chosen = _of_loss(model, shape)
    ones = chosen & model.facts.op.isin("aten::_log_softmax", "aten::log_softmax")
    ns = _PASSES * _BYTES * shape[0] * shape[1] / gpu.achievable_memory_gbps
    fused = model.with_lengths(ones, np.full(len(ones), ns))
    return (
        remove_launches(fused, chosen & ~ones)
        .with_uncertainty("compute", 0.2)
        .with_uncertainty("host", 0.5)  # what the function does on the CPU
        .with_assumption(
            f"the loss of {shape[0]} × {shape[1]} logits is one kernel of {ns / 1e6:.2f} ms, which "
            f"leaves their gradients; {int(chosen.sum())} kernels go"
        )
    )


def is_fused(model: StepModel) -> bool:
    """Return whether the name of a kernel says that it makes logits' gradients at once."""
    names = model.graph.activities
    used = {names.names[code].lower() for code in np.unique(names.name[model.is_compute]).tolist()}
    return any("cross_entropy" in name for name in used)


def _find_logits(model: StepModel) -> tuple[int, int] | None:
    """Return the tokens and the vocabulary of the logits."""
    for op, dims in model.facts.op.pairs_with(model.facts.dims):
        if op in _SOFTMAX and list_matrices(dims):
            rows, columns = list_matrices(dims)[0]
            return rows, columns
    return None


def _of_loss(model: StepModel, shape: tuple[int, int]) -> Mask:
    """Return the kernels between the logits and their gradients: of the loss's operators, and those
    that pass over all logits."""
    facts = model.facts
    passes = facts.dims.where(lambda dims: shape in list_matrices(dims)[:1])
    passes &= ~facts.family.isin("gemm", "communication") & model.is_compute
    return np.asarray(passes | (facts.op.isin(*_SOFTMAX, *_NLL) & model.is_compute))
