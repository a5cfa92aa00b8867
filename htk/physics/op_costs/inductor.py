"""Kernels that Inductor wrote with Triton: `triton_poi_fused_add_mul_3`, with all their tensors.

Inputs and results are arguments alike, each moved once. The name lists the operators fused; each is
counted once for every element of the largest tensor. Templates (`triton_tem_`) are matrix products
whose sizes the arguments do not tell.
"""

import re

from htk.physics.op_costs.call import Cost, OperatorCall, dtype_of, label_type

PATTERN = re.compile(r"triton_(?:poi|red|per|for|split_scan)_fused_(?P<ops>.*?)_?\d*$")
_NAMES = (
    "view unsafe clone copy to t transpose permute expand slice select cat unsqueeze squeeze "
    "reshape split empty zeros ones full detach alias as strided"
)
_NO_WORK = frozenset(_NAMES.split())


def cost_fused(call: OperatorCall) -> Cost:
    match = PATTERN.match(call.name)
    if not match or not call.tensors:
        raise LookupError("no tensors")
    operators = [o for o in match["ops"].split("_") if o and o not in _NO_WORK]
    count = max(t.count for t in call.tensors)
    moved = sum(t.bytes for t in call.tensors)
    kind = label_type(dtype_of(call.tensors))
    return Cost(max(len(operators), 1) * count, moved, "fused", kind)
