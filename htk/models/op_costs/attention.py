"""Attention: 2·B·H·P·(dqk + dv), P the pairs of a query and a key that count.

With a causal mask P = Σ min(i, Nkv) where the mask hangs at the top left (aten), and
Σ max(0, Nkv − Nq + i) where at the bottom right (FlashAttention from 2.1). Backward the model asks
for twice the forward; flash kernels compute the scores once more: 2·B·H·P·(3·dqk + 2·dv).
Queries and keys of ragged batches have no recorded lengths: one of the longest, the rest alike.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal

from htk.models.op_costs.call import Cost, Model, OperatorCall, Tensor, label

Layout = Literal["heads first", "tokens first"]
Corner = Literal["top left", "bottom right"]


def pairs(queries: int, keys: int, corner: Corner | None) -> int:
    """Pairs of a query and a key that count."""
    if corner is None:
        return queries * keys
    if corner == "top left":
        ramp = min(queries, keys)
        return ramp * (ramp + 1) // 2 + (queries - ramp) * keys
    first = max(1, keys - queries + 1)
    seen = min(queries, keys)
    return (first + keys) * seen // 2 if seen else 0


@dataclass(frozen=True)
class Where:
    """Places of the arguments."""

    layout: Layout
    causal: int
    corner: Corner = "top left"
    backward: bool = False
    lengths: tuple[int, int] | None = None  # cumulated lengths of queries, of keys
    longest: tuple[int, int] | None = None
    mask_type: bool = False  # 1: top left, 2: bottom right


def _attention(call: OperatorCall, where: Where) -> Cost:
    first = 1 if where.backward else 0
    q, k, v = (call.tensor(first + n) for n in range(3))
    heads, head = _heads(q, where.layout)
    value = v.shape[-1]
    corner = _corner(call, where)
    count, assumed = _pairs(call, where, q, k, corner)
    forward = 2 * heads * count * (head + value)
    out = q.count // max(head, 1) * value * q.element
    moved = q.bytes + k.bytes + v.bytes + out
    if not where.backward:
        return Cost(forward, moved, "attention", label(q.type), True, assumed=assumed)
    done = 2 * heads * count * (3 * head + 2 * value)
    gradients = q.bytes + k.bytes + v.bytes
    return Cost(
        done, moved + out + gradients, "attention", label(q.type), True, 2 * forward, assumed
    )


def _heads(q: Tensor, layout: Layout) -> tuple[int, int]:
    """Heads of queries and their size."""
    return q.shape[-3 if layout == "heads first" else -2], q.shape[-1]


def _corner(call: OperatorCall, where: Where) -> Corner | None:
    given = call.value(where.causal)
    if where.mask_type:
        return {1: "top left", 2: "bottom right"}.get(given)  # type: ignore[return-value]
    return where.corner if given is True else None


def _pairs(
    call: OperatorCall, where: Where, q: Tensor, k: Tensor, corner: Corner | None
) -> tuple[int, str | None]:
    """Over the whole batch."""
    if where.lengths and (ends := call.maybe(where.lengths[0])) is not None and ends.count > 1:
        return _ragged(call, where, q, k, corner, ends.count - 1)
    place = -2 if where.layout == "heads first" else -3
    batch = q.count // max(q.shape[-1] * q.shape[-2] * q.shape[-3], 1)
    return batch * pairs(q.shape[place], k.shape[place], corner), None


def _ragged(
    call: OperatorCall, where: Where, q: Tensor, k: Tensor, corner: Corner | None, sequences: int
) -> tuple[int, str | None]:
    tokens = [t.count // max(t.shape[-1] * t.shape[-2], 1) for t in (q, k)]
    longest = [
        min(int(call.value(place, 0)) or total, total)
        for place, total in zip(where.longest or (), tokens, strict=False)
    ] or tokens
    if all(n * sequences == total for n, total in zip(longest, tokens, strict=True)):
        return sequences * pairs(longest[0], longest[1], corner), None
    rest = max(sequences - 1, 1)
    others = [max(total - n, 0) // rest for n, total in zip(longest, tokens, strict=True)]
    count = pairs(longest[0], longest[1], corner)
    if sequences > 1:
        count += rest * pairs(others[0], others[1], corner)
    return count, "one sequence of the longest length, the others alike"


def _at(layout: Layout, causal: int, **places: object) -> Model:
    return partial(_attention, where=Where(layout, causal, **places))  # type: ignore[arg-type]


_ATEN: dict[str, Model] = {
    "aten::scaled_dot_product_attention": _at("heads first", 5),
    "aten::_scaled_dot_product_attention_math": _at("heads first", 5),
    "aten::_scaled_dot_product_flash_attention": _at("heads first", 4),
    "aten::_scaled_dot_product_efficient_attention": _at("heads first", 6),
    "aten::_scaled_dot_product_cudnn_attention": _at("heads first", 6),
    "aten::_scaled_dot_product_fused_attention_overrideable": _at("heads first", 5),
    "aten::_scaled_dot_product_flash_attention_backward": _at("heads first", 11, backward=True),
    "aten::_scaled_dot_product_efficient_attention_backward": _at("heads first", 11, backward=True),
    "aten::_scaled_dot_product_cudnn_attention_backward": _at("heads first", 14, backward=True),
    "aten::_cudnn_attention_forward": _at("heads first", 9, lengths=(4, 5), longest=(6, 7)),
    "aten::_flash_attention_forward": _at("tokens first", 8, lengths=(3, 4), longest=(5, 6)),
    "aten::_flash_attention_backward": _at(
        "tokens first", 11, backward=True, lengths=(6, 7), longest=(8, 9)
    ),
    "aten::_efficient_attention_forward": _at(
        "tokens first", 9, lengths=(4, 5), longest=(6, 7), mask_type=True
    ),
    "aten::_efficient_attention_backward": _at(
        "tokens first", 14, backward=True, lengths=(6, 7), longest=(8, 9), mask_type=True
    ),
}
_flash: Callable[..., Model] = partial(_at, "tokens first", corner="bottom right")
_FLASH: dict[str, Model] = {
    "flash_attn::_flash_attn_forward": _flash(5),
    "flash_attn::_flash_attn_backward": _flash(11, backward=True),
    "flash_attn::_flash_attn_varlen_forward": _flash(9, lengths=(3, 4), longest=(5, 6)),
    "flash_attn::_flash_attn_varlen_backward": _flash(
        15, backward=True, lengths=(9, 10), longest=(11, 12)
    ),
    "flash_attn_3::fwd": _flash(24, lengths=(7, 8), longest=(12, 13)),
    "_vllm_fa3_C::fwd": _flash(24, lengths=(7, 8), longest=(12, 13)),
}
MODELS: dict[str, Model] = _ATEN | _FLASH
