"""Attention of an inference server: shapes are padded, the range of the iteration has the lengths.

vLLM and SGLang name the range round an iteration by sums over its requests of queries (sq), keys
(sk) and their products, apart for requests that are read and those that are answered:
`execute_8192_context_2(sq9sk12sqsq45sqsk57)_generation_3(sq3sk70sqsq3sqsk70)`. A request of q
queries and k keys has q·k − (q² − q)/2 pairs under its causal mask, hung at the bottom right.
Older versions tell queries and their products alone, `execute_context_1(9_81)_generation_0(0)`:
where nothing is answered, and no prefix was cached, a request has as many keys as queries.
"""

import re
from dataclasses import dataclass

from htk.physics.op_costs.call import Cost, OperatorCall, label

_SUMS = r"\(sq(\d+)sk(\d+)sqsq(\d+)sqsk(\d+)\)"
_RANGE = re.compile(rf"execute_\S*context_\d+{_SUMS}_generation_\d+{_SUMS}")
_READ_ALONE = re.compile(r"execute_\S*context_\d+\((\d+)_(\d+)\)_generation_0\(0\)")
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
    """Return the same of requests that are read, and of those that are answered."""
    alone = _READ_ALONE.match(range_name)
    if alone:
        queries, products = int(alone[1]), int(alone[2])
        return Tokens(queries, queries, (products + queries) // 2), Tokens(0, 0, 0)
    match = _RANGE.match(range_name)
    if not match:
        return None
    numbers = [int(n) for n in match.groups()]
    prompts, answers = (
        Tokens(q, k, products - (squares - q) // 2)
        for q, k, squares, products in (numbers[:4], numbers[4:])
    )
    return prompts, answers


def is_served(name: str) -> bool:
    """Return whether an operator is attention over the pages of a cache."""
    return bool(_ATTENTION.search(name))


def attention(call: OperatorCall, tokens: Tokens) -> Cost:
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
    return Cost(flops, moved, "attention", label(q.type), True, assumed=assumed)
