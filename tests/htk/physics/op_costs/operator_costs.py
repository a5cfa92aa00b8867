"""Work of single operators, asked as a trace records them: dimensions, types and values as text."""

import json

from htk.physics.op_costs import compute_call_cost
from htk.physics.op_costs.call import Cost

BF16, FP8, BYTE, FLOAT = "c10::BFloat16", "c10::Float8_e4m3fn", "unsigned char", "float"
M, K, N = 16, 32, 24  # of products


def asked(name: str, dims: list, types: list, values: list | None = None) -> Cost | str:
    """Return the work of a call, or why it is not known."""
    return compute_call_cost(name, json.dumps(dims), json.dumps(types), json.dumps(values or []))


def of(name: str, dims: list, *, types: list | str = BF16, values: list | None = None) -> Cost:
    """Return the work of a call; one type holds for all tensors among its arguments."""
    each = [types if d else "" for d in dims] if isinstance(types, str) else types
    work = asked(name, dims, each, values)
    assert isinstance(work, Cost), work
    return work
