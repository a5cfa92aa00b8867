"""What a kernel is, told from its name: names as profilers of several vendors record them."""

import pytest

from htk.base.names.bare_names import bare_name
from htk.base.names.kinds import (
    MULTIPLIED_FORMATS,
    NARROW_FORMATS,
    is_of_experts,
    kind_of,
    read_number_format,
)

ELEMENTWISE = "void at::native::vectorized_elementwise_kernel<4, at::native::"


@pytest.mark.parametrize(
    ("name", "family", "library", "tensor_core"),
    [
        ("volta_sgemm_128x32_nn", "gemm", "cublas", False),
        ("nvjet_tst_64x16_64x16_2x4_2cta_h_bz_bias_TNT", "gemm", "cublas", True),
        (
            "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_cublas",
            "gemm",
            "cublas",
            True,
        ),
        ("Cijk_Ailk_Bljk_B_BS_BH_MT64x288x64_MI16x16x1_SN", "gemm", "tensile", True),
        ("Cijk_Ailk_Bljk_SB_MT64x64x8_SE_K1", "gemm", "tensile", False),
        (
            "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu>"
            "(cutlass_80_tensorop_bf16_s16816gemm_relu::Params)",
            "gemm",
            "cutlass",
            True,
        ),
        (
            "void cutlass__5x_cudnn::Kernel<cutlass_tensorop_bf16_s16816fprop_optimized_bf16>(P)",
            "convolution",
            "cudnn",
            True,
        ),
        ("igemm_fwd_gtcx3_nhwc_bf16_bx0_ex1_bt128x128x32_gkgs", "convolution", "miopen", True),
        ("cudnn_infer_volta_scudnn_128x64_relu_medium_nn_v1", "convolution", "cudnn", False),
        (
            "void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<64> >(P)",
            "attention",
            "flash_attention",
            True,
        ),
        ("attn_fwd", "attention", "triton", True),
        (
            "void vllm::reshape_and_cache_flash_kernel<__hip_bfloat16, __hip_bfloat16>(T*)",
            "copy",
            "vllm",
            False,
        ),
        (
            "void at::native::(anonymous namespace)::cunn_SoftMaxForward<8, float>(float*)",
            "softmax",
            "aten",
            False,
        ),
        (
            ELEMENTWISE + "CUDAFunctor_add<float>, std::array<char*, 3> >(int)",
            "elementwise",
            "aten",
            False,
        ),
        (ELEMENTWISE + "FillFunctor<float>, std::array<char*, 1> >(int)", "copy", "aten", False),
        (
            "void at::native::unrolled_elementwise_kernel<at::native::CUDAFunctor_add<float>, "
            "at::native::memory::LoadWithCast<2>, TrivialOffsetCalculator<2> >(int)",
            "elementwise",
            "aten",
            False,
        ),
        (
            "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<NormTwoOps<float>>>(R)",
            "reduction",
            "aten",
            False,
        ),
        (
            "void split_embedding_backward_codegen_adagrad_unweighted_kernel<float>(fbgemm_gpu::T)",
            "embedding",
            "fbgemm",
            False,
        ),
        (
            "std::enable_if<(((8)>(0)))&&vllm::_typeConvert<c10::BFloat16>::exists, void>::type "
            "vllm::fused_add_rms_norm_kernel<c10::BFloat16, 8>(c10::BFloat16*)",
            "norm",
            "vllm",
            False,
        ),
        ("triton_red_fused_add_mean_mul_pow_rsqrt_0", "reduction", "triton", False),
        ("triton_poi_fused__unsafe_view_mul_silu_2", "elementwise", "triton", False),
        (
            "void multi_tensor_apply_kernel<TensorListMetadata<4>, AdamFunctor<float>, float>(int)",
            "optimizer",
            "",
            False,
        ),
        (
            "void at::native::multi_tensor_apply_kernel<TensorList<2>, CopyFunctor<int>>()",
            "copy",
            "aten",
            False,
        ),
        ("a_kernel_of_ours", "other", "", None),
    ],
)
def test_family(name: str, family: str, library: str, tensor_core: bool | None) -> None:
    found = kind_of(name, "kernel")
    assert (found.kind, found.family, found.library, found.tensor_core) == (
        "compute",
        family,
        library,
        tensor_core,
    )


def test_communication_copies_and_sets() -> None:
    assert kind_of("ncclDevKernel_AllGather_RING_LL(Args)", "kernel").kind == "comm"
    assert kind_of("Memcpy HtoD (Pinned -> Device)", "copy")[:2] == ("memory", "copy")
    assert kind_of("Memset (Device)", "set")[:2] == ("memory", "set")


@pytest.mark.parametrize(
    ("name", "bare"),
    [
        ("void a::f<int, g<4>>(int)", "a::f"),
        ("void a::(anonymous namespace)::f<b::(anonymous namespace)::g>(int)", "a::f"),
        ("Cijk_Ailk", "Cijk_Ailk"),
        ("triton_poi_fused_0", "triton_poi_fused_0"),
        ("broken<<", "broken"),
        ("", ""),
        ("_ZN7ck_tile6kentryILi256ELi2ENS_13FmhaFwdKernelI", "ck_tile::kentry"),
        ("_ZN2at6native12_GLOBAL__N_1L3fooEv", "at::native::foo"),
        ("_ZN7rocshmem22kernel_barrier_allE", "_ZN7rocshmem22kernel_barrier_allE"),
        ("_Z3fooPf", "foo"),
    ],
)
def test_bare_name(name: str, bare: str) -> None:
    assert bare_name(name) == bare


def test_a_copy_of_mtia_is_no_kernel() -> None:
    assert kind_of("dma_request", "kernel")[:2] == ("memory", "copy")


@pytest.mark.parametrize("word", ["x", "x_", "1", "a::", "<", "(", "gemm", "bf16", "AllGather"])
def test_a_name_of_a_megabyte_is_judged_by_its_beginning(word: str) -> None:
    """Rules that take the square of a name's length would take hours."""
    name = "volta_sgemm_" + word * (1_000_000 // len(word))
    assert kind_of(name, "kernel").kind in ("compute", "comm")


def test_kernels_that_multiply_for_experts() -> None:
    assert is_of_experts("_matmul_ogs_NNT_bf16xbf16xmxfp4_1", "gemm")
    assert is_of_experts("cutlass::GemmUniversal<cutlass::gemm::GroupProblemShape<A>, B>", "gemm")
    assert is_of_experts("topkGatingSoftmax", "moe")
    assert not is_of_experts("ampere_bf16_s16816gemm_bf16_128x64_tn", "gemm")


def test_number_formats_by_names() -> None:
    """Weights of four bits beside products of sixteen: each asks for what it wants to know."""
    mixed = "_matmul_ogs_NNT_bf16xbf16xmxfp4_1"
    assert read_number_format(mixed, NARROW_FORMATS) == "mxfp4"
    assert read_number_format(mixed, MULTIPLIED_FORMATS) == "bf16"
    assert read_number_format("Cijk_Ailk_Bljk_F8BS_BH", MULTIPLIED_FORMATS) == "fp8"
    assert read_number_format("gemm_with_half", NARROW_FORMATS) is None
