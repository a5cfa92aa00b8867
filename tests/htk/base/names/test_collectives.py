"""Names of communication: kernels of all libraries, calls, element types."""

import pytest

from htk.base.names.collectives import (
    CommRule,
    collective_type,
    comm_rule,
    dtype_bytes,
    parse_c10d_range,
    ranks_in_name,
)

KERNELS = {
    "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)": "all_reduce nccl",
    "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevComm*)": "reduce_scatter nccl",
    "ncclDevKernel_Reduce_Sum_f32_RING_LL(ncclDevComm*)": "reduce nccl",
    "ncclDevKernel_AllGatherV_RING_LL(x)": "all_gather nccl",
    "ncclDevKernel_Broadcast_RING_LL(x)": "broadcast nccl",
    "ncclDevKernel_SendRecv(x)": "send_recv nccl",
    "ncclDevKernel_Generic_4(x)": "unknown nccl",
    "ncclDevKernelDebug_Generic(ncclDevComm*, channelMasks, ncclWork*)": "unknown nccl",
    "ncclSymkDevKernel_AllReduce_RSxLDMC_AGxSTMC_sum_bf16(x)": "all_reduce nccl_symmetric",
    "ncclSymDevKernel_AllGather_STMC(ncclSymDevArgs)": "all_gather nccl_symmetric",
    "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*)": "send_recv nccl",
    "ncclAllReduceRingLLKernel_sum_f32(ncclColl)": "all_reduce nccl",
    "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>(x)": "all_reduce custom_all_reduce",
    "void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<1>(x)": (
        "all_reduce flashinfer"
    ),
    "void quickreduce::allreduce_prototype_twoshot<A>(x)": "all_reduce quickreduce",
    "void (anonymous namespace)::two_shot_all_reduce_kernel_inplace<c10::BFloat16>(x)": (
        "all_reduce torch_symmetric_memory"
    ),
    "void (anonymous namespace)::multimem_all_gather_kernel<16>(x)": (
        "all_gather torch_symmetric_memory"
    ),
    "void twoShotAllReduceKernel<__half, 8>(AllReduceParams)": "all_reduce tensorrt_llm",
    "void deep_ep::intranode::dispatch<8, 768, 8192>(int4*)": "moe_dispatch deep_ep",
    "void deep_ep::intranode::notify_dispatch<8>(int const*)": "synchronise deep_ep",
    "void deep_ep::legacy::internode_ll::combine<false, 7168>(void*)": "moe_combine deep_ep",
    "void deep_ep::elastic::hybrid_dispatch_impl<1, 2>(void*)": "moe_dispatch deep_ep",
    "void uccl::internode_ll::dispatch<true, false, 7168>(void*)": "moe_dispatch uccl_ep",
    "void uccl::internode_ll::combine<false, 7168, 9>(void*)": "moe_combine uccl_ep",
    "void uccl::internode::notify_dispatch<true, 2>(int*)": "synchronise uccl_ep",
    "void executor_kernel<false>(ucc_ec_cuda_executor_t*, unsigned int)": "unknown ucc",
    "executor_start(ucc_ec_cuda_executor_state_t*, int*)": "synchronise ucc",
    "void (anonymous namespace)::multimem_one_shot_reduce_kernel<float, 16>(x)": (
        "reduce torch_symmetric_memory"
    ),
    "nccl_ep_jit_ht_combine_kernel": "moe_combine nccl_ep",
    "ubx_kernel_a2av_nvl(x)": "all_to_all nccl_ubx",
    "nvshmemi_proxy_quiet_entrypoint()": "unknown nvshmem",
    "oneccl_allreduce_pcie": "all_reduce oneccl",
    "xccl::all_reduce": "all_reduce oneccl",
    "hccl::all_gather": "all_gather hccl",
    "hcom_allReduce__428_0_1": "all_reduce ascend_hccl",
    "mscclKernel_Sum_half_LL_0(ncclDevComm*, mscclAlgo*, mscclWork*)": "unknown msccl",
    "NCCL_something_new": "unknown nccl",
    "ncclKernel_AllToAllPivot_RING_SIMPLE_Sum_int8_t(ncclDevComm*)": "all_to_all rccl",
    "rcclDevKernel_AllReduce_Sum_bf16_RING_SIMPLE": "all_reduce rccl",
    "ncclKernelAllGatherCtranRing(ctran::KernelArgs)": "all_gather ncclx",
    "hcom_batchSendRecv__128_4_1": "send_recv ascend_hccl",
    "hcom_reduceScatter__101_0_1": "reduce_scatter ascend_hccl",
    "mori::moe::EpDispatchIntraNodeKernel<hip_bfloat16>(x)": "moe_dispatch mori",
    "void mori::moe::EpCombineInterNodeKernel<hip_bfloat16>(x)": "moe_combine mori",
    "OneShotAll2allSdmaKernel_u32": "all_to_all mori",
    "void aiter::reduce_scatter_cross_device_store<__hip_bfloat16, 8>(x)": "reduce_scatter aiter",
    "void aiter::allgather_lastdim<__hip_bfloat16, 8>(x)": "all_gather aiter",
    "void tensorrt_llm::kernels::moe_comm::moeA2ACombineKernel<x, 8>(y)": (
        "moe_combine tensorrt_llm"
    ),
    "tensorrt_llm::kernels::mnnvl::twoshot_allreduce_kernel<8>": "all_reduce tensorrt_llm",
    "void (anonymous namespace)::dispatchKernel<10u, true>(x)": "moe_dispatch pplx",
    "c10d::symmetric_memory::barrier_kernel(unsigned int**)": "barrier torch_symmetric_memory",
    "void c10d::symmetric_memory::wait_signal_kernel(x)": "synchronise torch_symmetric_memory",
    "void fcollect_on_stream_kernel<float>(x)": "all_gather nvshmem",
    "void rdxn_on_stream_kernel<float>(x)": "all_reduce nvshmem",
    "rocshmem::rocshmem_barrier_all_kernel()": "barrier rocshmem",
    "userbuffers_fp16_sum_inplace_gpu_mc_rs_oop(int)": "reduce_scatter transformer_engine",
    "userbuffers_fp16_sum_inplace_gpu_mc_ag(int)": "all_gather transformer_engine",
    "kuserbuffers_pushrecv(int, int, int*)": "recv transformer_engine",
    "void mscclpp::collective::allgatherFullmesh<true>(x)": "all_gather mscclpp",
    "all_gather_push_2d_kernel": "all_gather triton_distributed",
    "kernel_dispatch_token_intra_node": "moe_dispatch triton_distributed",
}
NOT_COMMUNICATION = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>>(int)",
    "nvjet_tst_320x128_64x3_1x2_h_bz_coopB_TNT",
    "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float>>(x)",
    "void deep_ep::layout::get_dispatch_layout<256, 4, 2>(int const*)",
    "void deep_ep::internode::get_dispatch_layout<256, 32, 8>(long const*, int*)",
    "void mscclpp::ep::intranode::get_dispatch_layout<256, 32, 8>(long const*)",
    "void agency::detail::grid_executor_kernel<x>(y)",
    "void deep_ep::elastic::combine_reduce_epilogue_impl<1>(void*)",
    "void oneRankReduce<__half>(void*)",
    "triton_poi_fused_all_reduce_0",
    "void aiter::local_device_load_rmsnorm<__hip_bfloat16, 8>(aiter::RankSignals)",
    "kernel_fused_ag_gemm",
    "void softmax<float, 8, cub::BlockAllReduce>(float*)",
)


@pytest.mark.parametrize(("name", "expected"), KERNELS.items())
def test_kernels_of_every_library(name: str, expected: str) -> None:
    assert comm_rule(name) == CommRule(*expected.split())


@pytest.mark.parametrize("name", NOT_COMMUNICATION)
def test_what_only_looks_like_it(name: str) -> None:
    assert comm_rule(name) is None


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("nccl:_all_gather_base", "all_gather"),
        ("nccl:send 0->1", "send"),
        ("nccl:recv 0<-1", "recv"),
        ("c10d::_reduce_scatter_base_", "reduce_scatter"),
        ("allgather_into_tensor_coalesced", "all_gather"),
        ("nccl:all_reduce_barrier", "barrier"),
        ("REDUCE_SCATTER_coalesced", "reduce_scatter"),
        ("all_to_allv", "all_to_all"),
        ("_broadcast_oop", "broadcast"),
        ("SendRecv", "send_recv"),
        ("nccl:coalesced", "coalesced"),
        ("nccl:all_to_all_v_single", "all_to_all"),
        ("all_to_all_v_single", "all_to_all"),
        ("symm_mem::barrier", "barrier"),
        ("something", "unknown"),
    ],
)
def test_calls_by_whatever_name(name: str, expected: str) -> None:
    assert collective_type(name) == expected


def test_ranges_name_backend_and_collective() -> None:
    assert parse_c10d_range("gloo:all_reduce") == CommRule("all_reduce", "gloo")
    for backend in ("nccl2", "ncclx", "rcclx", "mccl", "xccl"):
        assert parse_c10d_range(f"{backend}:all_gather") == CommRule("all_gather", backend)
    assert parse_c10d_range("## all_reduce ##") is None


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("Float", 4),
        ("BFloat16", 2),
        ("c10::BFloat16", 2),
        ("ncclFloat32", 4),
        ("ncclBfloat16", 2),
        ("long int", 8),
        ("Float8_e4m3fn", 1),
        ("ncclFloat8e5m2", 1),
        ("ComplexFloat", 8),
        ("Float4_e2m1fn_x2", 1),
        ("no such type", None),
    ],
)
def test_bytes_of_an_element(name: str, size: int | None) -> None:
    assert dtype_bytes(name) == size


@pytest.mark.parametrize(
    ("name", "ranks"),
    [
        ("void vllm::cross_device_reduce_1stage<__nv_bfloat16, 4>(vllm::RankData*)", 4),
        ("void aiter::cross_device_reduce_1stage_naive<__hip_bfloat16, 8>(aiter::RankData*)", 8),
        ("void tensorrt_llm::kernels::oneShotAllReduceKernel<__nv_bfloat16, 8, true>(x)", 8),
        ("multimem_one_shot_all_reduce_kernel<c10::BFloat16, 16>(x)", -1),  # bytes of a load
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)", -1),
    ],
)
def test_some_kernels_say_how_many_ranks_take_part(name: str, ranks: int) -> None:
    assert ranks_in_name(name) == ranks
