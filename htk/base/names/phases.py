"""Phases of a training step, and what names of ranges and operators say of them."""

import re
from functools import lru_cache

PHASES = ("dataloader", "forward", "backward", "optimizer", "other")
DATALOADER, FORWARD, BACKWARD, OPTIMIZER, OTHER = range(len(PHASES))

ENGINE = "autograd::engine::evaluate_function"  # a node that the autograd engine evaluates

_RANGES = (
    (DATALOADER, re.compile(r"dataloader|data_?load|(load|next|get|wait_for|copy)_batch", re.I)),
    (OPTIMIZER, re.compile(r"optimizer|optim\b|zero_grad", re.I)),
    (BACKWARD, re.compile(r"backward|\bbwd", re.I)),
    (FORWARD, re.compile(r"forward|\bfwd", re.I)),
)
_OPTIMIZER_OP = re.compile(r"_fused_(adam|adamw|sgd|adagrad)|_multi_tensor|^Optimizer\.")
_TRAINING_KERNEL = re.compile(r"backward|bwd|[dw]grad|adam|sgd|optimizer|nll_loss", re.I)
_GRADIENT_OP = re.compile(r"^autograd::engine|Backward\d*$|^torch::autograd::(AccumulateGrad|Copy)")


@lru_cache(maxsize=100_000)  # ranks have most names in common
def phase_of_range(name: str) -> int:
    """Return the phase that a user range names, or OTHER."""
    return next((phase for phase, rule in _RANGES if rule.search(name)), OTHER)


@lru_cache(maxsize=100_000)
def phase_of_op(name: str) -> int:
    """Return the phase that an operator's name alone tells, or OTHER.

    Profilers of older releases record user ranges as operators: names that no operator has.
    """
    if is_gradient(name):
        return BACKWARD
    if _OPTIMIZER_OP.search(name):
        return OPTIMIZER
    is_label = "::" not in name and (" " in name or "#" in name)
    return phase_of_range(name) if is_label else OTHER


@lru_cache(maxsize=100_000)
def is_gradient(name: str) -> bool:
    """Return whether an operator of that name is a node of the autograd graph, or evaluates one."""
    return bool(_GRADIENT_OP.search(name))


@lru_cache(maxsize=100_000)
def is_of_training(kernel: str) -> bool:
    """Return whether a kernel of that name computes gradients or updates parameters."""
    return bool(_TRAINING_KERNEL.search(kernel))
