"""Reductions: one operation for each element that goes in (two for variance and norms)."""

import math
from functools import partial

from htk.physics.op_costs.call import Cost, Model, OperatorCall, label_type

_PLAIN = "sum nansum mean prod max min amax amin argmax argmin any all count_nonzero aminmax"
_TWICE = "var std var_mean std_mean norm linalg_vector_norm logsumexp"
_SCANS = "cumsum cumprod cummax cummin logcumsumexp _logcumsumexp"
_ORDERS = "sort topk argsort kthvalue median"


def _cost_reduce(call: OperatorCall, per_element: int) -> Cost:
    into = call.tensor(0)
    if len(call.tensors) > 1 and call.tensors[1].shape == into.shape:  # max of two tensors
        moved = 3 * into.bytes
    else:
        moved = into.bytes + _count_left(call) * into.element
    return Cost(per_element * into.count, moved, "reduction", label_type(into.type))


def _count_left(call: OperatorCall) -> int:
    """Return the elements of the result."""
    shape = call.tensor(0).shape
    places = call.value(2 if call.name.endswith("vector_norm") else 1)
    if isinstance(places, int) and not isinstance(places, bool):
        places = [places]
    if not shape or not isinstance(places, list) or not places:
        return 1
    gone = {int(p) % len(shape) for p in places}
    return math.prod(n for k, n in enumerate(shape) if k not in gone)


def _cost_scan(call: OperatorCall) -> Cost:
    into = call.tensor(0)
    return Cost(into.count, 2 * into.bytes, "reduction", label_type(into.type))


def _cost_sort(call: OperatorCall) -> Cost:
    """Compared as a sort of each row would; values and indices come out."""
    into = call.tensor(0)
    row = into.shape[-1] if into.shape else 1
    compared = into.count * max(1, math.ceil(math.log2(max(row, 2))))
    return Cost(compared, 2 * into.bytes + 8 * into.count, "reduction", label_type(into.type))


def _cost_counted(call: OperatorCall) -> Cost:
    """Each element falls into one of so many bins, which come out."""
    into = call.tensor(0)
    bins = call.value(1)
    most = bins if isinstance(bins, int) and not isinstance(bins, bool) else 0
    return Cost(into.count, into.bytes + most * into.element, "reduction", label_type(into.type))


def _cost_distances(call: OperatorCall) -> Cost:
    """Between the rows of two tables: a difference, its power and a sum for each column."""
    a = call.tensor(0)
    b = call.tensor(1)
    out = a.count // max(a.shape[-1], 1) * b.shape[-2]
    moved = a.bytes + b.bytes + out * a.element
    return Cost(3 * out * a.shape[-1], moved, "reduction", label_type(a.type))


MODELS: dict[str, Model] = {
    "aten::histc": _cost_counted,
    "aten::_cdist_forward": _cost_distances,
    **{
        f"aten::{n}": _cost_sort
        for n in ("_unique2", "_unique", "unique_dim", "unique_consecutive")
    },
    **{f"aten::{n}": partial(_cost_reduce, per_element=1) for n in _PLAIN.split()},
    **{f"aten::{n}": partial(_cost_reduce, per_element=2) for n in _TWICE.split()},
    **{f"aten::{n}{end}": _cost_scan for n in _SCANS.split() for end in ("", "_")},
    **{f"aten::{n}": _cost_sort for n in _ORDERS.split()},
}
