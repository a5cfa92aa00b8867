"""Where attention's arguments lie, against the signatures that its libraries publish."""

from functools import partial

import pytest

from htk.physics.op_costs.attention import Places
from htk.physics.op_costs.attention_ops import _FLASH_FORWARD, MODELS

_BACK = "dout q k v out softmax_lse"
_GRADS = "dq dk dv"
_LENGTHS = "cum_q cum_k max_q max_k"
_WINDOWS = "left right"
# PyTorch's native_functions.yaml, flash-attn 2 and 3, vLLM's copies of both, xFormers, aiter.
SIGNATURES = {
    "aten::scaled_dot_product_attention": "q k v mask dropout causal",
    "aten::_scaled_dot_product_attention_math": "q k v mask dropout causal",
    "aten::_scaled_dot_product_efficient_attention": "q k v bias lse dropout causal scale",
    "aten::_scaled_dot_product_cudnn_attention": "q k v bias lse dropout causal debug",
    "aten::_scaled_dot_product_fused_attention_overrideable": "q k v bias dropout causal debug",
    "aten::_scaled_dot_product_flash_attention_backward": (
        f"dout q k v out lse {_LENGTHS} dropout causal seed offset"
    ),
    "aten::_scaled_dot_product_efficient_attention_backward": (
        "dout q k v bias out lse seed offset dropout wanted causal scale"
    ),
    "aten::_scaled_dot_product_cudnn_attention_backward": (
        f"dout q k v out lse seed offset bias {_LENGTHS} dropout causal scale"
    ),
    "aten::_cudnn_attention_forward": f"q k v bias {_LENGTHS} lse dropout causal debug",
    "aten::_flash_attention_backward": (
        f"dout q k v out lse {_LENGTHS} dropout causal state unused scale {_WINDOWS}"
    ),
    "aten::_efficient_attention_forward": (
        f"q k v bias {_LENGTHS} dropout mask_type lse scale seqlen_k window"
    ),
    "aten::_efficient_attention_backward": (
        f"dout q k v bias out {_LENGTHS} lse dropout seed offset mask_type grad scale splits window"
    ),
    "flash_attn::_flash_attn_forward": f"q k v dropout scale causal {_WINDOWS} softcap",
    "flash_attn::_flash_attn_backward": f"{_BACK} {_GRADS} dropout scale causal {_WINDOWS}",
    "flash_attn::_flash_attn_varlen_forward": (
        f"q k v {_LENGTHS} dropout scale causal {_WINDOWS} softcap slopes softmax pages"
    ),
    "flash_attn::_flash_attn_varlen_backward": (
        f"{_BACK} {_GRADS} {_LENGTHS} dropout scale causal {_WINDOWS}"
    ),
    "FlashAttnFunc": "q k v dropout scale causal pair",
    "FlashAttnVarlenFunc": f"q k v {_LENGTHS} dropout scale causal pair",
    "flash_attn_3::fwd": (
        "q k v k_new v_new qv out cum_q cum_k cum_new used_q used_k max_q max_k pages batch"
        f" leftpad cos sin rotary q_scale k_scale v_scale scale causal {_WINDOWS}"
    ),
    "flash_attn_3::bwd": (
        f"{_BACK} {_GRADS} cum_q cum_k used_q used_k max_q max_k scale causal {_WINDOWS}"
    ),
    "flash_attn_3::_flash_attn_backward": (
        f"{_BACK} cum_q cum_k used_q used_k max_q max_k {_GRADS} dropout causal {_WINDOWS}"
    ),
    "_vllm_fa2_C::varlen_fwd": (
        "q k v out cum_q cum_k used_k leftpad pages slopes max_q max_k dropout scale zero causal"
        f" {_WINDOWS}"
    ),
    "xformers::efficient_attention_forward_cutlass": (
        "q k v bias cum_q cum_k max_only dropout lse mask_type scale seqlen_k window"
    ),
    "xformers_flash::flash_fwd": (
        f"q k v cum_q cum_k used_k max_q max_k dropout scale causal {_WINDOWS} softmax pages"
    ),
    "xformers_flash::flash_bwd": (
        f"share dout q k v out lse {_LENGTHS} dropout scale causal {_WINDOWS}"
    ),
    "aiter::mha_fwd": f"q k v dropout scale causal {_WINDOWS}",
    "aiter::mha_bwd": f"dout q k v out lse dropout scale causal {_WINDOWS}",
    "aiter::mha_varlen_fwd": (
        f"q k v {_LENGTHS} min_q dropout scale softcap zero causal {_WINDOWS}"
    ),
}
SAME = {
    "flash_attn_3::_flash_attn_forward": "flash_attn_3::fwd",
    "_vllm_fa3_C::fwd": "flash_attn_3::fwd",
    "xformers::efficient_attention_forward_ck": "xformers::efficient_attention_forward_cutlass",
    "aiter::fmha_v3_fwd": "aiter::mha_fwd",
    "aiter::flash_attn_forward": "aiter::mha_fwd",
    "aiter::fmha_v3_bwd": "aiter::mha_bwd",
}


def places_of(name: str) -> Places:
    model = MODELS[name]
    assert isinstance(model, partial)
    places: Places = model.keywords["places"]
    return places


@pytest.mark.parametrize("name", [*SIGNATURES, *SAME])
def test_arguments_lie_where_the_signature_has_them(name: str) -> None:
    names = SIGNATURES[SAME.get(name, name)].split()
    places = places_of(name)
    backward = "dout" in names
    assert places.backward == backward
    assert (int(backward) if places.first is None else places.first) == names.index("q")
    assert places.mask_type == ("mask_type" in names)
    assert places.causal == names.index("mask_type" if places.mask_type else "causal")
    pairs_ = {"lengths": ("cum_q", "cum_k"), "longest": ("max_q", "max_k"),
              "windows": ("left", "right")}  # fmt: skip
    is_dense = "dot_product" in name  # whose lengths are those of the shapes
    for field, both in pairs_.items():
        has = both[0] in names and not is_dense
        assert getattr(places, field) == (tuple(map(names.index, both)) if has else None), field
    for field in ("window", "pair"):
        assert getattr(places, field) == (names.index(field) if field in names else None), field
    if "pages" in names:
        assert places.pages == names.index("pages")


def test_the_plain_overload_of_flash() -> None:
    names = f"q k v {_LENGTHS} dropout causal debug scale {_WINDOWS}".split()
    assert names.index("causal") == _FLASH_FORWARD.causal
    assert _FLASH_FORWARD.lengths == (names.index("cum_q"), names.index("cum_k"))
    assert _FLASH_FORWARD.longest == (names.index("max_q"), names.index("max_k"))
    assert _FLASH_FORWARD.windows == (names.index("left"), names.index("right"))


def test_gradients_of_a_function_are_read_by_its_forward_call() -> None:
    """By the arguments of `FlashAttnFunc`: queries come first, no gradient."""
    places, forward = places_of("FlashAttnFuncBackward"), places_of("FlashAttnFunc")
    assert places.backward and not forward.backward and places.first == 0
    assert (places.causal, places.pair) == (forward.causal, forward.pair)
