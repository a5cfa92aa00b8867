"""Attention of an inference server: shapes are padded, the range of the iteration has the lengths.

Sums of lengths come from `htk.base.names.server_ranges`. A request of q queries and k keys has
q·k − (q² − q)/2 pairs under its causal mask, hung at the bottom right.
Older versions tell queries and their products alone, `execute_context_1(9_81)_generation_0(0)`:
where nothing is answered, and no prefix was cached, a request has as many keys as queries.
"""

import re
from dataclasses import dataclass

from htk.base.names.server_ranges import RequestSums, read_server_range
from htk.physics.op_costs.call import Cost, OperatorCall, label_type

_ATTENTION = re.compile(
    r"unified_attention|paged_attention|_vllm_fa[23]_C::|flash_attn_3::(?:fwd|_flash_attn_forward)$"
    r"|aiter::mha_varlen_fwd"
)


@dataclass(frozen=True)
class Tokens:
    """Sums over the requests of an iteration."""

    queries: int
    keys: int
    pairs: int


def tokens_of(range_name: str) -> Tokens | None:
    """Return what the name of a range tells, if it is one of an iteration."""
    sides = sides_of(range_name)
    if sides is None:
        return None
    prompts, answers = sides
    return Tokens(
        prompts.queries + answers.queries,
        prompts.keys + answers.keys,
        prompts.pairs + answers.pairs,
    )


def sides_of(range_name: str) -> tuple[Tokens, Tokens] | None:
    """Return what the name of a range tells of requests that are read, and of those answered."""
    iteration = read_server_range(range_name)
    if iteration is None:
        return None
    prompts = _read_sums(iteration.prompts)
    answers = _read_sums(iteration.answers)
    if prompts is None and not iteration.answers.requests:
        prompts = _read_alone(iteration.prompts)
    return None if prompts is None or answers is None else (prompts, answers)


def _read_sums(side: RequestSums) -> Tokens | None:
    if side.requests == 0:
        return Tokens(0, 0, 0)
    if side.tokens is None or side.keys is None or side.pairs is None:
        return None
    return Tokens(side.tokens, side.keys, side.pairs)


def _read_alone(side: RequestSums) -> Tokens | None:
    """Return the sums of prompts whose range tells queries and products: as many keys as queries,
    where no prefix was cached."""
    if side.tokens is None or side.products is None:
        return None
    return Tokens(side.tokens, side.tokens, (side.products + side.tokens) // 2)


def is_served(name: str) -> bool:
    """Return whether an operator is attention over the pages of a cache."""
    return bool(_ATTENTION.search(name))


def cost_served_attention(call: OperatorCall, tokens: Tokens) -> Cost:
    """Queries in, results out, and the keys and values of the cache that are attended to."""
    wide = [t for t in call.tensors if len(t.shape) >= 3]
    if len(wide) < 2:
        raise LookupError(f"{call.name} has no queries and keys")
    q = next(t for t in wide if len(t.shape) == 3)
    cache = next((t for t in wide if len(t.shape) > 3), wide[1])
    heads, head = q.shape[-2:]
    moved = 2 * tokens.queries * heads * head * q.element
    moved += 2 * tokens.keys * cache.shape[-2] * head * cache.element
    flops = 4 * heads * head * tokens.pairs
    assumed = "lengths of requests from the iteration's range"
    dims: tuple[tuple[str, int], ...] = ()
    is_decode = tokens.queries > 0 and tokens.pairs == tokens.keys  # one query of each request
    if is_decode and cache.element == q.element:
        dims = (
            *(("batch", tokens.queries), ("heads", heads), ("kv_heads", cache.shape[-2])),
            *(("head_size", head), ("query_length", 1)),
            ("key_length", round(tokens.keys / tokens.queries)),
        )
    return Cost(flops, moved, "attention", label_type(q.type), True, assumed=assumed, dims=dims)
