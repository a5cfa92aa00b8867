"""Attention: 2·B·H·P·(dqk + dv), P the pairs of a query and a key that count.

With a causal mask P = Σ min(i, Nkv) where the mask hangs at the top left (aten), and
Σ max(0, Nkv − Nq + i) where at the bottom right (FlashAttention from 2.1). A sliding window leaves
each query so many keys to the left and to the right of its own place. Backward the model asks for
twice the forward; flash kernels compute the scores once more: 2·B·H·P·(3·dqk + 2·dv).
Queries and keys of ragged batches have no recorded lengths: one of the longest, the rest alike.
"""

import math
from dataclasses import dataclass, replace
from typing import Literal

from htk.physics.op_costs.call import Cost, OperatorCall, Tensor, label_type

Layout = Literal["heads first", "tokens first"]
Corner = Literal["top left", "bottom right"]


@dataclass(frozen=True)
class Mask:
    """Which keys a query sees, from its own place on the mask's diagonal; None: no limit."""

    corner: Corner
    left: int | None = None
    right: int | None = None

    def pairs(self, queries: int, keys: int) -> int:
        """Return the pairs of a query and a key that count."""
        own = keys - queries if self.corner == "bottom right" else 0
        upto = queries * keys
        if self.right is not None:
            upto = _clamped_sum(queries, own + self.right + 1, keys)
        return upto - (0 if self.left is None else _clamped_sum(queries, own - self.left, keys))


def count_causal_pairs(queries: int, keys: int, corner: Corner | None) -> int:
    """Return the pairs that a causal mask leaves; None: no mask."""
    return queries * keys if corner is None else Mask(corner, None, 0).pairs(queries, keys)


def _clamped_sum(count: int, first: int, most: int) -> int:
    """Return Σ min(max(first + i, 0), most) over i < count."""

    def count_below(end: int) -> int:  # Σ min(t, most) over 0 <= t < end
        ramp = max(min(end, most), 0)
        return ramp * (ramp - 1) // 2 + max(end - most, 0) * most

    return count_below(first + count) - count_below(first)


@dataclass(frozen=True)
class Places:
    """Where an operator has its arguments."""

    layout: Layout
    causal: int
    corner: Corner = "top left"
    backward: bool = False
    first: int | None = None  # of queries, keys, values; else 0, or 1 behind a gradient
    lengths: tuple[int, int] | None = None  # cumulated lengths of queries, of keys
    longest: tuple[int, int] | None = None
    mask_type: bool = False  # `causal` holds 1: top left, 2: bottom right
    windows: tuple[int, int] | None = None  # keys to the left, to the right; negative: all
    window: int | None = None  # keys in all, the query's own the last
    pair: int | None = None  # both windows in one list
    pages: int | None = None  # of a paged cache, whose lengths no shape tells


def compute_attention_cost(call: OperatorCall, places: Places) -> Cost:
    """Return what a call costs whose arguments lie there."""
    if places.pages is not None and (table := call.maybe(places.pages)) and table.count:
        raise LookupError(f"{call.name}: the lengths in a paged cache are not recorded")
    first = places.first if places.first is not None else int(places.backward)
    q = call.tensor(first + 0)
    k = call.tensor(first + 1)
    v = call.tensor(first + 2)
    heads, head = _read_heads(q, places.layout)
    count, assumed = _count_pairs(call, places, q, k)
    cache = k.bytes + v.bytes
    cost = cost_attention_pairs(
        q, cache, count * heads, head, v.shape[-1], places.backward, assumed
    )
    return replace(cost, dims=_list_dims(q, k, places.layout))


def _list_dims(q: Tensor, k: Tensor, layout: Layout) -> tuple[tuple[str, int], ...]:
    """Return the sizes as people name them; of a ragged batch the tokens of all sequences."""
    length, heads = (-2, -3) if layout == "heads first" else (-3, -2)
    head_size = q.shape[-1]
    batch = (("batch", math.prod(q.shape[:-3])),) if len(q.shape) > 3 else ()
    return (
        *batch,
        ("heads", q.shape[heads]),
        ("kv_heads", k.shape[heads]),
        ("query_length", q.shape[length]),
        ("key_length", k.shape[length]),
        ("head_size", head_size),
    )


def cost_attention_pairs(
    q: Tensor, cache: int, pairs_: int, head: int, value: int, backward: bool, assumed: str | None
) -> Cost:
    """Return the cost of that many pairs over all heads, with keys and values of `cache` bytes."""
    out = q.count // max(head, 1) * value * max(q.element, 2)  # fp8 goes in, 16 bits come out
    forward = 2 * pairs_ * (head + value)
    moved = q.bytes + cache + out
    if not backward:
        return Cost(forward, moved, "attention", label_type(q.type), True, assumed=assumed)
    done = 2 * pairs_ * (3 * head + 2 * value)
    gradients = q.bytes + cache
    return Cost(
        done, moved + out + gradients, "attention", label_type(q.type), True, 2 * forward, assumed
    )


def count_ragged_pairs(
    queries: int, keys: int, sequences: int, longest: tuple[int, int], mask: Mask
) -> int:
    """Return the pairs of one sequence of the longest lengths and of others that are alike."""
    rest = sequences - 1
    count = mask.pairs(*longest)
    if rest > 0:
        totals = zip((queries, keys), longest, strict=True)
        others = [max(total - most, 0) // rest for total, most in totals]
        count += rest * mask.pairs(others[0], others[1])
    return count


def _read_heads(q: Tensor, layout: Layout) -> tuple[int, int]:
    """Heads of queries and their size."""
    return q.shape[-3 if layout == "heads first" else -2], q.shape[-1]


def mask_of(call: OperatorCall, places: Places) -> Mask:
    """Return the mask that the arguments describe."""
    causal = call.value(places.causal)
    corner = places.corner
    if places.mask_type:
        corner = "bottom right" if causal == 2 else "top left"
        causal = causal in (1, 2)
    left, right = _read_windows(call, places)
    return Mask(corner, left, 0 if causal is True else right)


def _read_windows(call: OperatorCall, places: Places) -> tuple[int | None, int | None]:
    if places.window is not None:
        keys = call.value(places.window)
        return (keys - 1 if _is_count(keys) and keys > 0 else None), None
    sides = [call.value(position) for position in places.windows or ()]
    if places.pair is not None and isinstance(both := call.value(places.pair), list):
        sides = both[:2]
    if len(sides) != 2:
        return None, None
    left, right = (n if _is_count(n) and n >= 0 else None for n in sides)
    return left, right


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _count_pairs(
    call: OperatorCall, places: Places, q: Tensor, k: Tensor
) -> tuple[int, str | None]:
    """Over the whole batch, of one head."""
    mask = mask_of(call, places)
    if places.lengths and (ends := call.maybe(places.lengths[0])) is not None and ends.count > 1:
        return _of_ragged(call, places, q, k, mask, ends.count - 1)
    axis = -2 if places.layout == "heads first" else -3
    batch = q.count // max(q.shape[-1] * q.shape[-2] * q.shape[-3], 1)
    return batch * mask.pairs(q.shape[axis], k.shape[axis]), None


def _of_ragged(
    call: OperatorCall, places: Places, q: Tensor, k: Tensor, mask: Mask, sequences: int
) -> tuple[int, str | None]:
    queries = q.count // max(q.shape[-1] * q.shape[-2], 1)
    keys = k.count // max(k.shape[-1] * k.shape[-2], 1)
    lengths = [call.value(position) or 0 for position in places.longest or (-1, -1)]
    longest = [
        min(int(most) or -(-total // sequences), total)
        for most, total in zip(lengths, (queries, keys), strict=True)
    ]
    even = all(n * sequences == total for n, total in zip(longest, (queries, keys), strict=True))
    count = count_ragged_pairs(queries, keys, sequences, (longest[0], longest[1]), mask)
    return count, None if even else "one sequence of the longest length, the others alike"
