"""What a GPU activity is, told from its name: decided once for each distinct name."""

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

from htk.collective_names import comm_rule


class Kind(NamedTuple):
    kind: str  # compute, comm or memory
    family: str
    library: str
    tensor_core: bool | None  # None: the name does not tell


# The first rule that matches decides. Names are demangled C++ (CUTLASS, cuDNN, cuBLAS, CK,
# Tensile, Triton, ATen); the order puts what is specific before what is general.
_FAMILIES: tuple[tuple[str, str], ...] = (
    ("optimizer", r"multi_tensor_apply|adamw?_|fused_adam|foreach|lamb_|sgd_|FusedOptimizer"),
    (
        "attention",
        r"flash|fmha|attention|attn|mha_|sdpa|softmax_warp.*attn|paged_|BatchPrefill|BatchDecode"
        r"|SinglePrefill|mla_|aiter::fmha|pytorch_flash|cudnn_generated_fort_native_sdpa",
    ),
    ("moe", r"moe|topk_gating|topkGating|expert|permute_tokens|silu_and_mul_masked|grouped_topk"),
    (
        "convolution",
        r"conv|wgrad|dgrad|fprop|im2col|col2im|winograd|miopen|igemm|implicit_gemm|nchwToNhwc"
        r"|nhwcToNchw|naive_conv|gridwise_convolution",
    ),
    (
        "gemm",
        r"gemm|cutlass|cublas|Cijk_|splitK|gemv|nvjet|_mm_|matmul|dot_kernel|wmma|mfma|xmma"
        r"|hipblaslt|ck_tile.*Gemm|triton_.*_mm|cublasLt|machete|marlin|deep_gemm",
    ),
    ("norm", r"norm|welford|RowwiseMoments|GammaBeta|batch_norm|bn_fw|bn_bw"),
    ("softmax", r"softmax"),
    ("embedding", r"embedding|EmbeddingBag|bag_updateOutput|tbe|nbit_forward|split_embedding"),
    ("loss", r"nll_loss|cross_entropy|NLL|mse_loss|SmoothL1"),
    ("reduction", r"reduce|Reduce|cub::.*(Scan|Sort)|argmax|argmin|triton_(red|per)_|cumsum|sort"),
    (
        "copy",
        r"CatArray|copy_|_copy|direct_copy|index|gather|scatter|transpose|permute|pad|fill"
        r"|Fill|chunk_cat|split_with_sizes|unrolled_elementwise.*copy|slice|roll|flip|tril|triu",
    ),
    ("random", r"philox|distribution|dropout|curand|rand"),
    (
        "elementwise",
        r"elementwise|vectorized|triton_poi|pointwise|activation|gelu|silu|relu|act_and_mul"
        r"|rotary|rope|_add_|_mul_|where|cast|convert",
    ),
    ("elementwise", r"^triton_"),
)

_LIBRARIES: tuple[tuple[str, str], ...] = (
    ("triton", r"^triton_|_triton_|^_[a-z0-9_]+_kernel(_\d+)?$"),
    ("cutlass", r"cutlass"),
    ("cudnn", r"cudnn|xmma_fprop|xmma_dgrad|xmma_wgrad"),
    ("cublas", r"cublas|gemmSN|gemvN|nvjet|ampere_.*gemm|sm\d+_xmma_gemm|volta_.*gemm|turing_"),
    ("tensile", r"^Cijk_"),
    ("miopen", r"miopen|naive_conv|MIOpen|igemm_"),
    ("ck", r"^_?Z?N?.*\bck(_tile)?::|kernel_gemm_xdl"),
    ("aiter", r"aiter"),
    ("flash_attention", r"flash"),
    ("aten", r"at::native|at_cuda_detail"),
)

_TENSOR_CORE = re.compile(
    r"tensorop|_s\d+gemm|h?16816|1688|884|hmma|imma|wgmma|gmma|tensor|mfma|xmma|wmma|nvjet|MT\d+x\d+"
    r"|(?:bf16|f16|fp16|e4m3|s8|tf32)_?.*gemm|flash|fmha|xdl|sm(?:80|90|100)_xmma",
    re.IGNORECASE,
)
_SIMT = re.compile(r"sgemm(?!.*tf32)|simt|dgemm|ffma|gemvN|gemv", re.IGNORECASE)

_FAMILY_RULES = tuple((family, re.compile(rule)) for family, rule in _FAMILIES)
_LIBRARY_RULES = tuple((library, re.compile(rule)) for library, rule in _LIBRARIES)


@lru_cache(maxsize=100_000)
def kind_of(name: str, activity: str) -> Kind:
    """What the activity of that name is (activity: kernel, copy or set)."""
    if activity != "kernel":
        return Kind("memory", "copy" if activity == "copy" else "set", "", None)
    rule = comm_rule(name)
    if rule is not None:
        return Kind("comm", "communication", rule.library, None)
    family = next((f for f, rule in _FAMILY_RULES if rule.search(name)), "other")
    library = next((x for x, rule in _LIBRARY_RULES if rule.search(name)), "")
    return Kind("compute", family, library, _tensor_core(name, family))


def kinds_of(names: Iterable[str], activity: str) -> list[Kind]:
    return [kind_of(name, activity) for name in names]


def _tensor_core(name: str, family: str) -> bool | None:
    if family not in ("gemm", "convolution", "attention", "moe"):
        return False
    if _SIMT.search(name):
        return False
    return True if _TENSOR_CORE.search(name) else None
