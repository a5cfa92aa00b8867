"""Matrix products: 2·M·N·K, and one addition more for each element of a bias."""

import math
from dataclasses import replace

from htk.physics.op_costs.call import (
    Cost,
    Model,
    OperatorCall,
    Tensor,
    broadcast_shapes,
    label_type,
)


def cost_product(a: Tensor, out: int, inner: int, others: int, bias: Tensor | None = None) -> Cost:
    """Return the cost of `out` results, each of `inner` products; `others`: bytes beside A and
    the result. What goes in as bytes comes out in 16 bits."""
    packed = 2 if label_type(a.type) == "fp4" else 1
    written = out * max(a.element, 2)
    is_complex = a.type.startswith("c10::complex")  # 4 products and 4 sums for one of each
    flops = 2 * out * inner * packed + (out if bias is not None else 0)
    flops = 8 * out * inner + (2 * out if bias is not None else 0) if is_complex else flops
    moved = a.bytes + others + written + (bias.bytes if bias is not None else 0)
    return Cost(flops, moved, "gemm", label_type(a.type), matrix=True)


def _cost_matmul(a: Tensor, b: Tensor, bias: Tensor | None = None) -> Cost:
    """Return the cost of `a @ b` as `torch.matmul` computes it: batches broadcast."""
    inner = a.shape[-1]
    if len(b.shape) == 1:
        rows = a.count // max(inner, 1)
        return _add_sizes(cost_product(a, rows, inner, b.bytes, bias), 1, rows, 1, inner)
    rows = a.shape[-2] if len(a.shape) > 1 else 1
    columns = b.shape[-1]
    batch = math.prod(broadcast_shapes([a.shape[:-2], b.shape[:-2]]))
    cost = cost_product(a, batch * rows * columns, inner, b.bytes, bias)
    return _add_sizes(cost, batch, rows, columns, inner)


def _add_sizes(cost: Cost, batch: int, rows: int, columns: int, inner: int) -> Cost:
    sizes = {"batch": batch, "product_m": rows, "product_n": columns, "product_k": inner}
    return replace(cost, dims=tuple(sizes.items()))


def _cost_mm(call: OperatorCall) -> Cost:
    return _cost_matmul(call.tensor(0), call.tensor(1))


def _int_mm(call: OperatorCall) -> Cost:
    """Return the cost of a product of bytes whose result is int32, not of 16 bits."""
    a = call.tensor(0)
    b = call.tensor(1)
    cost = _cost_matmul(a, b)
    return replace(cost, bytes=cost.bytes + 2 * a.shape[-2] * b.shape[-1])


def _find_addend(call: OperatorCall) -> Tensor | None:
    """Return the tensor that the product is added to, unless beta (after the operands) is 0: then
    it is neither read nor added."""
    return None if call.value(3, 1) == 0 else call.tensor(0)


def _cost_addmm(call: OperatorCall) -> Cost:
    return _cost_matmul(call.tensor(1), call.tensor(2), _find_addend(call))


def cost_linear(call: OperatorCall) -> Cost:
    """Return the cost of a linear layer, whose weights lie as [out, in]."""
    a = call.tensor(0)
    weight = call.tensor(1)
    rows = a.count // max(a.shape[-1], 1)
    bias = call.maybe(2)
    wanted = bias if bias is not None and bias.shape == weight.shape[:1] else None
    cost = cost_product(a, rows * weight.shape[0], a.shape[-1], weight.bytes, wanted)
    return _add_sizes(cost, 1, rows, weight.shape[0], a.shape[-1])


def scaled_mm(call: OperatorCall) -> Cost:
    """Return the cost of a scaled product.

    Its bias is at another place in each release: the one vector as long as a row.
    """
    a = call.tensor(0)
    b = call.tensor(1)
    row = (b.shape[-1],)
    biases = (t for t in call.tensors[2:] if t.shape == row and t.element == 2)
    return _cost_matmul(a, b, next(biases, None))


def _grouped_mm(call: OperatorCall) -> Cost:
    """Return the cost of a grouped product.

    Groups lie along the rows of A, as a batch, or (gradients of weights) along the inner size.
    """
    a = call.tensor(0)
    b = call.tensor(1)
    offsets = call.tensors[2:]
    if len(a.shape) == 2 and len(b.shape) == 2:
        groups = max((t.count for t in offsets if len(t.shape) == 1), default=1)
        out = a.shape[0] * b.shape[1]
        cost = cost_product(a, out, a.shape[1], b.bytes)
        written = out * max(a.element, 2)
        return Cost(cost.flops, cost.bytes + (groups - 1) * written, "gemm", cost.dtype, True)
    if len(a.shape) == 3 and len(b.shape) == 2:  # columns shared out among the groups
        return cost_product(a, a.shape[1] * b.shape[1], a.shape[2], b.bytes)
    rows = a.count // max(a.shape[-1], 1)
    return cost_product(a, rows * b.shape[-1], a.shape[-1], b.bytes)


def _cost_dot(call: OperatorCall) -> Cost:
    a = call.tensor(0)
    return cost_product(a, 1, a.count, call.tensor(1).bytes)


def _cost_outer(call: OperatorCall) -> Cost:
    base = _find_addend(call)
    a = call.tensor(1)
    b = call.tensor(2)
    return cost_product(a, a.count * b.count, 1, b.bytes + (base.bytes if base is not None else 0))


def _cost_addbmm(call: OperatorCall) -> Cost:
    """Return the cost of adding up a batch's products: one result, as large as one of them."""
    a = call.tensor(1)
    b = call.tensor(2)
    base = _find_addend(call)
    summed = math.prod(b.shape[:-2])
    return cost_product(a, a.shape[-2] * b.shape[-1], summed * a.shape[-1], b.bytes, base)


MODELS: dict[str, Model] = {
    **dict.fromkeys(("aten::mm", "aten::bmm", "aten::matmul", "aten::mv"), _cost_mm),
    "aten::_int_mm": _int_mm,
    **dict.fromkeys(
        ("aten::addmm", "aten::addmm_", "aten::baddbmm", "aten::baddbmm_"), _cost_addmm
    ),
    **dict.fromkeys(("aten::_addmm_activation", "aten::addmv", "aten::addmv_"), _cost_addmm),
    **dict.fromkeys(("aten::addbmm", "aten::addbmm_"), _cost_addbmm),
    "aten::linear": cost_linear,
    "aten::_scaled_mm": scaled_mm,
    "aten::_scaled_mm_v2": scaled_mm,
    **dict.fromkeys(
        ("aten::_grouped_mm", "aten::_scaled_grouped_mm", "aten::_scaled_grouped_mm_v2"),
        _grouped_mm,
    ),
    "aten::dot": _cost_dot,
    "aten::vdot": _cost_dot,
    "aten::addr": _cost_outer,
    "aten::addr_": _cost_outer,
}
