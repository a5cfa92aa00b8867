"""Another optimizer: Adam as one kernel that moves each tensor once, or with 8-bit moments.

What it moves of each parameter tells its time: an optimizer is bound by memory. The operators of
one in parts are known by what each reads and writes.
"""

import re

import numpy as np

from htk.base.errors import UsageError
from htk.whatif.step_model import StepModel

NAME = "optimizer"
HELP = "Adam as one kernel: fused; with moments of 8 bits, a quarter of their memory: 8bit."

_FUSED = re.compile(r"fused_adam|FusedOptimizer|FusedAdam|multi_tensor_adam", re.I)
_EIGHT = re.compile(r"8bit|8_bit|blockwise", re.I)
# Tensors that each operator of an unfused optimizer moves, and those of the fused one: weight and
# two moments, both ways, and the gradient.
_TENSORS = {"lerp_": 3, "mul_": 2, "addcmul_": 4, "sqrt": 2, "div_": 2, "add_": 2, "addcdiv_": 4,
            "mul": 2, "div": 2, "add": 3, "neg": 2, "reciprocal_": 2}  # fmt: skip
_OF_FUSED = 7
# Of a parameter's bytes with moments of 8 bits over those with moments of 32; that scales and
# rounding cost nothing, and as much as they save.
_EIGHT_BITS = 0.65


def apply(model: StepModel, value: str) -> StepModel:
    if value not in ("fused", "8bit"):
        raise UsageError(f"{NAME} {value!r}: fused or 8bit")
    chosen = model.facts.family.isin("optimizer") & model.is_compute
    if not chosen.any():
        raise UsageError(f"{NAME}: no kernel of an optimizer is seen in the step")
    now = recorded_kind(model)
    if now == value:
        return model.with_assumption(f"the recorded optimizer is {value} already")
    if now == "8bit":
        raise UsageError(f"{NAME} {value}: how long moments of 32 bits take is not recorded")
    ratio = 1.0 if now == "fused" else _OF_FUSED / _count_tensors(model)
    words = f"the optimizer takes {ratio:.2f} times as long, for what it moves"
    sigma = 0.15
    if value == "8bit":
        ratio *= _EIGHT_BITS
        words = f"moments of 8 bits: {ratio:.2f} times as long, and a quarter of their memory"
        sigma = 0.3
    changed = model.with_lengths(chosen, model.lengths() * ratio)
    return changed.with_uncertainty("compute", sigma).with_assumption(words)


def recorded_kind(model: StepModel) -> str | None:
    """Return fused or 8bit; None: an optimizer in parts."""
    chosen = model.facts.family.isin("optimizer") & model.is_compute
    acts = model.graph.activities
    texts = {acts.names[code] for code in set(acts.name[chosen].tolist())}
    texts |= {op or "" for op in model.facts.op.rows(np.flatnonzero(chosen))}
    if any(map(_EIGHT.search, texts)):
        return "8bit"
    return "fused" if any(map(_FUSED.search, texts)) else None


def _count_tensors(model: StepModel) -> int:
    """Return how many tensors as large as the parameters an update in parts moves."""
    used = set()
    total = 0
    chosen = model.facts.family.isin("optimizer") & model.is_compute
    rank = model.graph.activities.rank == model.graph.ranks[0]
    rows = sorted({int(row) for row in model.facts.op_row[chosen & rank].tolist() if row >= 0})
    names = model.facts.tables["cpu_ops"]["name"]
    for row in rows:
        name = str(names[row].as_py()).rpartition("_foreach_")[2]
        used.add(name)
        total += _TENSORS.get(name, 2)
    if not used & set(_TENSORS):
        raise UsageError(f"{NAME}: the operators of the recorded optimizer are not known to htk")
    return max(total, _OF_FUSED)
