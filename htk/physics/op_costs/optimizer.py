"""Optimizer steps over lists of tensors, and the `_foreach_` family they are also made of."""

from functools import partial

from htk.physics.op_costs.call import Cost, Model, OperatorCall, Tensor, label_type


def _cost_fused(call: OperatorCall, lists: int, per_element: int) -> Cost:
    """`lists` of tensors are read, all but the gradients (the second) are written."""
    read = [call.listed(n) for n in range(lists)]
    count = sum(t.count for t in read[0])
    moved = sum(t.bytes for tensors in read for t in tensors)
    moved += sum(t.bytes for n, tensors in enumerate(read) if n != 1 for t in tensors)
    return Cost(
        per_element * count, moved, "optimizer", label_type(read[0][0].type), assumed="element type"
    )


def cost_foreach(call: OperatorCall) -> Cost:
    """All lists and lone tensors are read, one list is written (none by norms)."""
    lists = [a for a in call.arguments if isinstance(a, tuple) and a]
    if not lists:
        raise LookupError("no shapes of the lists")
    first = lists[0]
    count = sum(t.count for t in first)
    moved = sum(t.bytes for tensors in lists for t in tensors) + sum(t.bytes for t in call.tensors)
    if not call.name.endswith("_norm"):
        moved += _sum_bytes(first)
    each = 2 if "addc" in call.name or "lerp" in call.name or "norm" in call.name else 1
    return Cost(each * count, moved, "optimizer", label_type(first[0].type), assumed="element type")


def _sum_bytes(tensors: tuple[Tensor, ...]) -> int:
    return sum(t.bytes for t in tensors)


# Operations for each parameter: both moments 6, their correction 2, root and quotient 4, update 2.
_ADAM = 14
MODELS: dict[str, Model] = {
    **{
        f"aten::_fused_{n}_": partial(_cost_fused, lists=4, per_element=_ADAM)
        for n in ("adam", "adamw")
    },
    "aten::_fused_sgd_": partial(_cost_fused, lists=2, per_element=4),
    "aten::_fused_adagrad_": partial(_cost_fused, lists=3, per_element=6),
    "aten::_amp_foreach_non_finite_check_and_unscale_": cost_foreach,
}
