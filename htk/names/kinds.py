"""What a GPU activity is, told from its name: decided once for each distinct name."""

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

from htk.names.collectives import comm_rule


class Kind(NamedTuple):
    kind: str  # compute, comm or memory
    family: str
    library: str
    tensor_core: bool | None  # None: the name does not tell


# The first rule that matches decides. Names are demangled C++ (CUTLASS, cuDNN, cuBLAS, ATen),
# mangled C++ (CK, AITER) or generated (Tensile, Triton, nvjet, MIOpen's assembly); the order puts
# what is specific before what is general. Rules see the function's own name, without template
# arguments: those name other functions' namespaces, accessors, functors.
_FAMILIES: tuple[tuple[str, str], ...] = (
    ("optimizer", r"multi_tensor_apply|[Aa]dam[wW]?_|fused_adam|foreach|[Ll]amb_|sgd_|FusedOptim"),
    (
        "copy",  # ahead of the caches' and layouts' owners
        r"reshape_and_cache|kv_indices|nchwToNhwc|nhwcToNchw|batched_transpose|concat_and_cache"
        r"|SubTensorOp|store_kvcache|permute_(1D|2D|indices|pooled|sparse)",
    ),
    ("elementwise", r"rotary|[Rr]ope_|quantize|_FP8|hfp8|act_and_mul|swiglu_kernel"),
    (
        "embedding",
        r"embedding|EmbeddingBag|bag_updateOutput|_tbe|nbit_forward|bounds_check_indices",
    ),
    (
        "moe",
        r"moe|topk_?[gG]ating|expert|permute_tokens|_combined_routing|_bitmatrix|silu_and_mul_masked|grouped_topk",
    ),
    (
        "attention",
        r"flash(?!infer_sampl)|fmha|attention|attn|mha_|sdpa|paged_|BatchPrefill|BatchDecode"
        r"|SinglePrefill|mla_|merge_state",
    ),
    (
        "convolution",
        r"conv(?!ert)|wgrad|dgrad|fprop|im2col|Im2d2Col|col2im|cask_cudnn|[wW]inograd|igemm_(fwd|bwd|wrw)|bwd_weight"
        r"|bwd_data|implicit_gemm|scudnn|fft2d|[Ff]iltGemm|calc_bias_diff",
    ),
    (
        "gemm",
        r"(?<!fb)gemm|cutlass|[cC]ublas|Cijk_|splitK|gemv|nvjet|_mm_|matmul|dot_kernel|wmma|mfma"
        r"|xmma|machete|marlin|^bmm_|epilogue::impl|wvSplitK|scal_kernel",
    ),
    ("norm", r"[nN]orm(?!al)|welford|RowwiseMoments|GammaBeta|bn_fw|bn_bw|MIOpenBatchNorm"),
    ("softmax", r"[sS]oft_?[mM]ax"),
    ("loss", r"nll_loss|cross_entropy|NLL|mse_loss|SmoothL1"),
    (
        "reduction",
        r"[rR]educe|cub::.*(Scan|Sort|Radix|Histogram)|[Ss]can|[sS]ort|arg_?m(ax|in)"
        r"|triton_(red|per)_|cumsum|topk|TopK|rocprim",
    ),
    (
        "copy",
        r"CatArray|[cC]opy|index|gather|scatter|transpose|permute|pad_?|[fF]ill|chunk_cat"
        r"|split_with_sizes|slice|roll_|flip|tril|triu|arange|recat|jagged",
    ),
    ("random", r"philox|distribution|dropout|curand|[rR]and"),
    ("reduction", r"pool"),
    (
        "elementwise",
        r"elementwise|vectorized|pointwise|activation|gelu|silu|relu|_add_|_mul_|scale|where|cast"
        r"|convert|op_?tensor|OpTensor|CUDAFunctor",
    ),
    ("elementwise", r"^triton_"),
)

# What a kernel that runs any function over elements does, told from its template arguments.
_OF_ANY_FUNCTION = re.compile(r"elementwise|CUDAFunctor|^triton_poi")
_FUNCTIONS: tuple[tuple[str, str], ...] = (
    ("norm", r"batch_norm|group_norm|layer_norm|GroupNorm|LayerNorm"),
    ("softmax", r"[sS]oft_?[mM]ax"),
    ("loss", r"nll_loss|mse_loss|smooth_l1|binary_cross_entropy|kl_div"),
    ("random", r"distribution|dropout|bernoulli|[pP]hilox"),
    (
        "copy",
        r"copy_kernel|_scatter_gather|index_kernel|index_put|FillFunctor|arange|linspace"
        r"|tril|triu|flip_|roll_|masked_(fill|scatter)",
    ),
    ("elementwise", r"quant"),
)

# What runs over lists of tensors and is no optimizer's own.
_FOREACH: tuple[tuple[str, str], ...] = (
    ("copy", r"multi_tensor_apply.*(CopyFunctor|Copy<)"),
    ("reduction", r"multi_tensor_apply.*(LpNorm|L2Norm|LpMax|MaxNorm)"),
)

_LIBRARIES: tuple[tuple[str, str], ...] = (
    (
        "triton",
        r"^triton_|_triton_|_triton$|^_[a-z][A-Za-z0-9_]+$|^attn_fwd|^kernel_unified_attention",
    ),
    ("flash_attention", r"flash_(fwd|bwd)|FlashAttn|flash::"),
    ("flashinfer", r"flashinfer"),
    ("tensorrt_llm", r"tensorrt_llm|trtllm|^fmhaSm|^bmm_|moe::dev"),
    ("vllm", r"vllm"),
    ("fbgemm", r"fbgemm|split_embedding|dense_embedding_codegen|bounds_check_indices"),
    ("cudnn", r"cudnn|xmma_fprop|xmma_dgrad|xmma_wgrad|wgrad_alg|dgrad_engine|bn_(fw|bw)_"),
    ("cutlass", r"cutlass"),
    (
        "cublas",
        r"[cC]ublas|gemmSN|gemv|nvjet|ampere_.*gemm|sm\d+_xmma_gemm|volta_.*gemm|turing_.*gemm"
        r"|maxwell_.*gemm|splitKreduce|gemmk1|sgemm_largek|magma_sgemm|scal_kernel|epilogue::impl",
    ),
    ("tensile", r"^Cijk_"),
    ("miopen", r"miopen|MIOpen|naive_conv|^igemm_|SubTensorOp|^batched_transpose"),
    ("aiter", r"aiter"),
    ("ck", r"^_ZN\d+ck|\bck(_tile)?::|kernel_gemm_xdl|ck_tile"),
    ("aten", r"at::native|at_cuda_detail|at::cuda"),
)

# Asked of a name in small letters: ignoring case takes several times as long.
_TENSOR_CORE = re.compile(
    r"tensorop|_s\d+gemm|h?16816|1688|884|hmma|imma|wgmma|gmma|_tensor\d|mfma|xmma|wmma|nvjet"
    r"|(?:bf16|f16|fp16|e4m3|s8|tf32)_?.*gemm|flash_|fmha|xdl|_gtcx|^bmm_|\bmi\d+x\d+"
)
_MATRIX_INSTRUCTION = re.compile(r"_MI\d+x\d+")  # Tensile: absent where plain FMAs do the work
_SIMT = re.compile(
    r"sgemm(?!.*tf32)|simt|dgemm|gcgemm|ffma|gemv|gemmsn|gemmk1|dot_kernel|scal_kernel|scudnn"
    r"|reduce|winograd|alg0_engine|dgrad_engine|epilogue::impl|bias_diff"
)

_FAMILY_RULES = tuple((family, re.compile(rule)) for family, rule in _FAMILIES)
_FUNCTION_RULES = tuple((family, re.compile(rule)) for family, rule in _FUNCTIONS)
_FOREACH_RULES = tuple((family, re.compile(rule)) for family, rule in _FOREACH)
_LIBRARY_RULES = tuple((library, re.compile(rule)) for library, rule in _LIBRARIES)
_ANY_TEMPLATE = re.compile(r"^cutlass\w*::(Kernel2?|device_kernel)$|^cutlass\w*::reduction")
_STRONG = re.compile(r"tensorop|_tensor\d|xmma|mfma|wmma")
_RETURN_TYPE = re.compile(r"^std::enable_if<.*?>::type ")
_BRACKETS = re.compile(r"([<>(])")


@lru_cache(maxsize=100_000)
def kind_of(name: str, activity: str) -> Kind:
    """What the activity of that name is (activity: kernel, copy or set)."""
    if activity != "kernel":
        return Kind("memory", "copy" if activity == "copy" else "set", "", None)
    rule = comm_rule(name)
    if rule is not None:
        return Kind("comm", "communication", rule.library, None)
    if name.startswith("dma"):  # MTIA's copies
        return Kind("memory", "copy", "", None)
    bare = bare_name(name)
    family = _family(bare, name)
    library = _first(_LIBRARY_RULES, bare) or _first(_LIBRARY_RULES, name) or ""
    return Kind("compute", family, library, _tensor_core(name, family))


def kinds_of(names: Iterable[str], activity: str) -> list[Kind]:
    return [kind_of(name, activity) for name in names]


def bare_name(name: str) -> str:
    """The function's own name: no template arguments, parameters or return type."""
    name = _RETURN_TYPE.sub("", name.replace("(anonymous namespace)::", ""))
    kept: list[str] = []
    depth = 0
    for piece in _BRACKETS.split(name):
        if piece == "<":
            depth += 1
        elif piece == ">":
            depth -= depth > 0
        elif piece == "(" and not depth and kept:
            break
        elif not depth:
            kept.append(piece)
    bare = "".join(kept).strip()
    return bare.rpartition(" ")[2] if not name.startswith("triton") else bare


def _family(bare: str, name: str) -> str:
    if _ANY_TEMPLATE.search(bare):  # CUTLASS: all that tells is in the arguments
        return _first(_FAMILY_RULES, name) or "gemm"
    family = _first(_FAMILY_RULES, bare)
    if family is None and bare in ("", "kernel", "Kernel"):
        family = _first(_FAMILY_RULES, name)
    if family == "optimizer" and (foreach := _first(_FOREACH_RULES, name)):
        return foreach
    if family == "elementwise" and _OF_ANY_FUNCTION.search(bare):
        return _first(_FUNCTION_RULES, name) or family
    return family or _first(_FUNCTION_RULES, name) or "other"


def _first(rules: tuple[tuple[str, re.Pattern[str]], ...], name: str) -> str | None:
    return next((label for label, rule in rules if rule.search(name)), None)


def _tensor_core(name: str, family: str) -> bool | None:
    if family not in ("gemm", "convolution", "attention", "moe"):
        return False
    if name.startswith("Cijk_"):
        return bool(_MATRIX_INSTRUCTION.search(name))
    small = name.lower()
    if _SIMT.search(small) and not _STRONG.search(small):
        return False
    return True if _TENSOR_CORE.search(small) else None
