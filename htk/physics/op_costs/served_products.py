"""Matrix products of inference servers and quantization libraries; experts whose sizes are told.

Scales are small beside their operands and are counted only where the tensors are listed; packed
weights are moved as they lie.
"""

from htk.physics.op_costs.call import EXPERT_SIZES, Cost, Model, OperatorCall, Tensor, label_type
from htk.physics.op_costs.matmul import cost_linear, cost_product, scaled_mm


def _out_first(call: OperatorCall) -> Cost:
    """out, A [m, k], B [k, n], …"""
    out = call.tensor(0)
    a = call.tensor(1)
    b = call.tensor(2)
    return cost_product(a, out.count, a.shape[-1], b.bytes)


def _out_first_fp4(call: OperatorCall) -> Cost:
    """out, A and B of two numbers in a byte, …"""
    out = call.tensor(0)
    a = call.tensor(1)
    b = call.tensor(2)
    cost = cost_product(a, out.count, 2 * a.shape[-1], b.bytes)
    return Cost(cost.flops, cost.bytes, "gemm", "fp4", matrix=True)


def _fp4_linear(call: OperatorCall) -> Cost:
    """Return a [m, k/2] and B [n, k/2] of two numbers in a byte."""
    a = call.tensor(0)
    b = call.tensor(1)
    cost = cost_product(a, a.count // max(a.shape[-1], 1) * b.shape[0], 2 * a.shape[-1], b.bytes)
    return Cost(cost.flops, cost.bytes, "gemm", "fp4", matrix=True)


def _narrow_pair(call: OperatorCall) -> Cost:
    """The first two matrices in a byte an element, A [m, k] and B [n, k], wherever they stand."""
    narrow = [t for t in call.tensors if t.element == 1 and len(t.shape) >= 2]
    a = narrow[0]
    b = narrow[1]
    if a.shape[-1] != b.shape[-1]:
        raise LookupError(f"{call.name}: no two operands of one inner size")
    return cost_product(a, a.count // max(a.shape[-1], 1) * b.shape[0], a.shape[-1], b.bytes)


def _cost_marlin(call: OperatorCall) -> Cost:
    """Return a [m, k], packed weights, …; m, n, k follow one another among the values."""
    a = call.tensor(0)
    m = a.count // max(a.shape[-1], 1)
    k = a.shape[-1]
    sizes = zip(call.values, call.values[1:], call.values[2:], strict=False)
    columns = next((n for m_, n, k_ in sizes if m_ == m and k_ == k and isinstance(n, int)), None)
    if columns is None:
        raise LookupError(f"{call.name}: its sizes are not recorded")
    packed = sum(t.bytes for t in call.tensors[1:])  # weights, scales, zeros
    return cost_product(a, m * columns, k, packed)


def _int4_packed(call: OperatorCall) -> Cost:
    """Return a, packed weights, size of a group, scales and zeros [k / group, n, 2]."""
    a = call.tensor(0)
    packed = call.tensor(1)
    scales = call.tensor(3)
    rows = a.count // max(a.shape[-1], 1)
    return cost_product(a, rows * scales.shape[1], a.shape[-1], packed.bytes + scales.bytes)


def _any_linear(call: OperatorCall) -> Cost:
    """An autograd function round a linear layer: the first two matrices with one inner size."""
    wide = [t for t in call.tensors if len(t.shape) >= 2]
    x = wide[0]
    w = next(t for t in wide[1:] if t.shape[-1] == wide[0].shape[-1])
    rows = x.count // max(x.shape[-1], 1)
    return cost_product(x, rows * (w.count // max(w.shape[-1], 1)), x.shape[-1], w.bytes)


def _any_linear_backward(call: OperatorCall) -> Cost:
    """By the arguments of the forward call: a product for each of the two gradients."""
    once = _any_linear(call)
    assumed = "arguments of the forward call"
    return Cost(2 * once.flops, 2 * once.bytes, "gemm", once.dtype, True, assumed=assumed)


def _cost_experts(call: OperatorCall) -> Cost:
    """tokens [t, h], w1 [e, 2i or i, h], w2 [e, h, i], weights and numbers of experts [t, k]."""
    x = call.tensor(0)
    w1 = call.tensor(1)
    w2 = call.tensor(2)
    chosen: Tensor = call.tensor(4)
    tokens = x.count // max(x.shape[-1], 1)
    hidden = x.shape[-1]
    per_token = chosen.count // max(tokens, 1)
    first = w1.shape[1]
    inner = first if w2.shape[2] == first else first // 2  # a gate beside it
    flops = 2 * tokens * per_token * hidden * (first + inner)
    used = min(1.0, tokens * per_token / max(w1.shape[0], 1))
    between = 2 * tokens * per_token * (first + inner) * max(x.element, 2)
    moved = 2 * x.bytes + round(used * (w1.bytes + w2.bytes)) + between
    assumed = "tokens spread evenly over experts"
    sizes = (tokens, hidden, inner, per_token, w1.shape[0], 8 * w1.element)
    is_told = inner < first and w1.shape[2] == hidden  # bytes of packed weights tell no format
    dims = tuple(zip(EXPERT_SIZES, sizes, strict=True)) if is_told else ()
    return Cost(flops, moved, "moe", label_type(x.type), matrix=True, assumed=assumed, dims=dims)


_SCALED = "sgl_kernel::fp8_scaled_mm sgl_kernel::int8_scaled_mm sgl_kernel::fp8_blockwise_scaled_mm"
_LINEAR = (
    "aiter::gemm_a16w16 aiter::gemm_a8w8 aiter::gemm_a8w8_CK aiter::gemm_a8w8_ASM "
    "aiter::gemm_a8w8_blockscale aiter::gemm_a8w8_bpreshuffle "
    "aiter::gemm_a8w8_blockscale_bpreshuffle vllm::rocm_unquantized_gemm "
    "fbgemm::f8f8bf16_rowwise fbgemm::f8f8bf16_blockwise fbgemm::f8f8bf16_tensorwise "
    "fbgemm::f8f8bf16_cublas fbgemm::i8i8bf16 trtllm::fp8_block_scaling_gemm "
    "vllm::apply_w8a8_block_fp8_linear aten::_weight_int8pack_mm"
)
_PAIRS = (
    "deep_gemm::fp8_gemm_nt sglang::deep_gemm_fp8_fp8_bf16_nt vllm::fp8_gemm_nt "
    "vllm::w8a8_block_fp8_matmul_deepgemm vllm::w8a8_triton_block_scaled_mm_func"
)
_EXPERTS = (
    "vllm::outplace_fused_experts vllm::inplace_fused_experts vllm::rocm_aiter_fused_moe "
    "sglang::outplace_fused_experts sglang::inplace_fused_experts aiter::fused_moe "
    "aiter::fused_moe_ aiter::fused_moe_ck"
)
_MARLIN = "_C::gptq_marlin_gemm _C::marlin_gemm sgl_kernel::gptq_marlin_gemm"
FORWARD = {"_LinearBackward": "_Linear", "_LayerNormLinearBackward": "_LayerNormLinear"}
MODELS: dict[str, Model] = {
    **dict.fromkeys(_SCALED.split(), scaled_mm),
    **dict.fromkeys(_LINEAR.split(), cost_linear),
    **dict.fromkeys(_PAIRS.split(), _narrow_pair),
    **dict.fromkeys(_MARLIN.split(), _cost_marlin),
    **dict.fromkeys(_EXPERTS.split(), _cost_experts),
    **dict.fromkeys(("_Linear", "_LayerNormLinear"), _any_linear),
    **dict.fromkeys(("_LinearBackward", "_LayerNormLinearBackward"), _any_linear_backward),
    "_C::cutlass_scaled_mm": _out_first,
    "_C::dsv3_fused_a_gemm": _out_first,
    "sgl_kernel::dsv3_fused_a_gemm": _out_first,
    "_C::cutlass_scaled_fp4_mm": _out_first_fp4,
    "sgl_kernel::cutlass_scaled_fp4_mm": _out_first_fp4,
    "trtllm::fp4_gemm": _fp4_linear,
    "trtllm::nvfp4_gemm": _fp4_linear,
    "trtllm::cublas_scaled_mm": scaled_mm,
    "aten::_weight_int4pack_mm": _int4_packed,
}
