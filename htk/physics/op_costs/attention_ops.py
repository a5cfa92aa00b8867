"""Where the operators of attention have their arguments, by the schemas of their libraries."""

from dataclasses import replace
from functools import partial

from htk.physics.op_costs.attention import (
    Corner,
    Places,
    compute_attention_cost,
    cost_attention_pairs,
    count_ragged_pairs,
    mask_of,
)
from htk.physics.op_costs.call import Cost, Model, OperatorCall


def _heads_first(causal: int, *, backward: bool = False) -> Model:
    return partial(compute_attention_cost, places=Places("heads first", causal, backward=backward))


def _tokens_first(places: Places) -> Model:
    return partial(compute_attention_cost, places=places)


# Two schemas of one name each: profilers do not record which overload ran. The quantized one has
# three scales more: between the values and the probability of dropout, or before the windows.
_QUANTIZED_ARGUMENTS = 10
_FLASH_FORWARD = Places("tokens first", 8, lengths=(3, 4), longest=(5, 6), windows=(11, 12))


def _cost_flash(call: OperatorCall) -> Cost:
    quantized = max(len(call.arguments), len(call.values)) >= _QUANTIZED_ARGUMENTS
    causal = 7 if quantized else 4
    return compute_attention_cost(call, Places("heads first", causal))


def _flash_forward(call: OperatorCall) -> Cost:
    quantized = call.maybe(11) is not None
    return compute_attention_cost(
        call, replace(_FLASH_FORWARD, windows=(14, 15)) if quantized else _FLASH_FORWARD
    )


def _paged_by_indices(call: OperatorCall) -> Cost:
    """aiter's: queries of a ragged batch, and the pages of a cache that its indices name."""
    q = call.tensor(0)
    k = call.tensor(1)
    v = call.tensor(2)
    if len(k.shape) not in (3, 4):
        raise LookupError(f"{call.name}: an unknown layout of the cache")
    page = k.shape[1] if len(k.shape) == 4 else 1
    sequences = call.tensor(3).count - 1
    keys = call.tensor(5).count * page
    queries, heads, head = q.shape
    longest = (
        min(int(call.value(6, 0)) or queries, queries),
        min(int(call.value(7, 0)) or keys, keys),
    )
    places = Places("tokens first", 12, "bottom right", windows=(13, 14))
    count = count_ragged_pairs(queries, keys, sequences, longest, mask_of(call, places))
    cache = keys * k.shape[-2] * (k.shape[-1] + v.shape[-1]) * k.element
    assumed = "one sequence of the longest length, the others alike"
    return cost_attention_pairs(
        q, cache, count * heads, head, v.shape[-1], False, assumed if sequences > 1 else None
    )


_SDPA = "aten::_scaled_dot_product_"
_CORNER: Corner = "bottom right"  # FlashAttention's, since 2.1
_FA2 = Places("tokens first", 5, _CORNER, windows=(6, 7))
_FA2_VARLEN = Places(
    "tokens first", 9, _CORNER, lengths=(3, 4), longest=(5, 6), windows=(10, 11), pages=15
)
_FA3 = Places(
    "tokens first", 24, _CORNER, lengths=(7, 8), longest=(12, 13), windows=(25, 26), pages=14
)
_XFORMERS = Places("tokens first", 9, lengths=(4, 5), mask_type=True, window=12)
_AITER = Places("tokens first", 5, _CORNER, windows=(6, 7))
_AITER_BACKWARD = Places("tokens first", 8, _CORNER, True, windows=(9, 10))
_TOKENS_FIRST = {
    "aten::_flash_attention_backward": Places(
        "tokens first", 11, backward=True, lengths=(6, 7), longest=(8, 9), windows=(15, 16)
    ),
    "aten::_efficient_attention_forward": Places(
        "tokens first", 9, lengths=(4, 5), longest=(6, 7), mask_type=True, window=13
    ),
    "aten::_efficient_attention_backward": Places(
        "tokens first",
        14,
        backward=True,
        lengths=(6, 7),
        longest=(8, 9),
        mask_type=True,
        window=18,
    ),
    "flash_attn::_flash_attn_forward": _FA2,
    "flash_attn::_flash_attn_backward": Places("tokens first", 11, _CORNER, True, windows=(12, 13)),
    "flash_attn::_flash_attn_varlen_forward": _FA2_VARLEN,
    "flash_attn::_flash_attn_varlen_backward": Places(
        "tokens first", 15, _CORNER, True, lengths=(9, 10), longest=(11, 12), windows=(16, 17)
    ),
    # By the arguments of its forward call, see FORWARD.
    "FlashAttnFuncBackward": Places("tokens first", 5, _CORNER, True, first=0, pair=6),
    # Written by hand on top of the operators above; older releases record only these.
    "FlashAttnFunc": Places("tokens first", 5, _CORNER, pair=6),
    "FlashAttnVarlenFunc": Places(
        "tokens first", 9, _CORNER, lengths=(3, 4), longest=(5, 6), pair=10
    ),
    "flash_attn_3::fwd": _FA3,
    "flash_attn_3::_flash_attn_forward": _FA3,
    "flash_attn_3::bwd": Places(
        "tokens first", 16, _CORNER, True, lengths=(9, 10), longest=(13, 14), windows=(17, 18)
    ),
    "flash_attn_3::_flash_attn_backward": Places(
        "tokens first", 16, _CORNER, True, lengths=(6, 7), longest=(10, 11), windows=(17, 18)
    ),
    "_vllm_fa2_C::varlen_fwd": Places(
        "tokens first", 15, _CORNER, lengths=(4, 5), longest=(10, 11), windows=(16, 17), pages=8
    ),
    "_vllm_fa3_C::fwd": _FA3,
    "xformers::efficient_attention_forward_cutlass": _XFORMERS,
    "xformers::efficient_attention_forward_ck": _XFORMERS,
    "xformers_flash::flash_fwd": Places(
        "tokens first", 10, _CORNER, lengths=(3, 4), longest=(6, 7), windows=(11, 12), pages=14
    ),
    "xformers_flash::flash_bwd": Places(
        "tokens first",
        13,
        _CORNER,
        True,
        first=2,
        lengths=(7, 8),
        longest=(9, 10),
        windows=(14, 15),
    ),
    "aiter::mha_fwd": _AITER,
    "aiter::fmha_v3_fwd": _AITER,
    "aiter::flash_attn_forward": _AITER,
    "aiter::mha_bwd": _AITER_BACKWARD,
    "aiter::fmha_v3_bwd": _AITER_BACKWARD,
    "aiter::mha_varlen_fwd": Places(
        "tokens first", 12, _CORNER, lengths=(3, 4), longest=(5, 6), windows=(13, 14), pages=19
    ),
}
FORWARD = {"FlashAttnFuncBackward": "FlashAttnFunc"}
MODELS: dict[str, Model] = {
    "aten::scaled_dot_product_attention": _heads_first(5),
    "aten::_scaled_dot_product_attention_math": _heads_first(5),
    f"{_SDPA}flash_attention": _cost_flash,
    f"{_SDPA}efficient_attention": _heads_first(6),
    f"{_SDPA}cudnn_attention": _heads_first(6),
    f"{_SDPA}fused_attention_overrideable": _heads_first(5),
    f"{_SDPA}flash_attention_backward": _heads_first(11, backward=True),
    f"{_SDPA}efficient_attention_backward": _heads_first(11, backward=True),
    f"{_SDPA}cudnn_attention_backward": _heads_first(14, backward=True),
    "aten::_flash_attention_forward": _flash_forward,
    "aten::_cudnn_attention_forward": partial(
        compute_attention_cost, places=Places("heads first", 10, lengths=(4, 5), longest=(6, 7))
    ),
    "aiter::mha_batch_prefill": _paged_by_indices,
    **{name: _tokens_first(places) for name, places in _TOKENS_FIRST.items()},
}
