"""Kernels that communicate, of all libraries: what tells them, and which collective they are.

In each table the first row that matches decides.
"""

from htk.base.names.ordered_rules import OrderedRules

# The collective that a name speaks of, where its row does not say: what contains another word of
# the table stands before it.
COLLECTIVES = OrderedRules(
    (
        ("all_reduce", "(?i:all[_-]?reduce) rdxn"),
        ("reduce_scatter", "(?i:reduce[_-]?scatter) gpu_rr_rs gpu_mc_rs"),
        ("all_gather", "(?i:all[_-]?gather) fcollect gpu_mc_ag"),
        ("all_to_all", "(?i:all[_-]?to[_-]?all|all2all) _a2a allToAllV exchangeSplit"),
        ("moe_dispatch", "dispatch Dispatch"),
        ("moe_combine", "combine Combine"),
        ("broadcast", "broadcast Broadcast"),
        ("send_recv", "(?i:send_?recv) collective-permute"),
        ("barrier", "(?i:barrier) sync_on_stream"),
        ("reduce", "Reduce shot_reduce_kernel"),
        ("send", "send Send"),
        ("recv", "recv Recv receive"),
    )
)

# Whatever a rule below matches holds one of these, in small letters; most names stop here.
HINTS = (
    "ccl",
    "allreduce",
    "all_reduce",
    "allgather",
    "all_gather",
    "reducescatter",
    "reduce_scatter",
    "alltoall",
    "all_to_all",
    "all2all",
    "all-reduce",
    "all-gather",
    "reduce-scatter",
    "all-to-all",
    "collective-",
    "a2a",
    "dispatch",
    "combine",
    "cross_device_reduce",
    "quickreduce",
    "deep_ep",
    "hybrid_ep",
    "executor_",
    "send_impl",
    "recv_impl",
    "ubx_kernel",
    "userbuffers",
    "shmem",
    "hcom_",
    "multimem",
    "gloo",
    "barrier",
    "signal_kernel",
    "stream_write_value",
    "on_stream_kernel",
    "exchangesplit",
    "mori::",
    "sdma",
    "mixed_comm",
    "pplx",
)

READ = "read"  # the collective is the one that COLLECTIVES finds in the name

# Asked of a kernel's own name. (collective, library); None: looks like communication, and is not.
RULES: OrderedRules[tuple[str, str] | None] = OrderedRules(
    (
        # Local work beside collectives.
        (None, "oneRankReduce deep_ep::layout:: deep_ep::legacy::layout:: copy_epilogue_impl"),
        (None, "get_dispatch_layout"),  # counts tokens: DeepEP's, and what copied it
        (None, "reduce_epilogue_impl _mask_buffer moeA2APrepare moeA2ASanitize"),
        (None, "ConvertDispatchOutput ConvertCombineInput"),
        (None, r"^triton_(?:poi|red|per|for|tem|spl)_ (?i:(?:warp|block)_?all_?reduce)"),
        # NCCL, RCCL and what is built on them. One generic kernel serves several collectives.
        ((READ, "nccl_symmetric"), "ncclSymDevKernel ncclSymkDevKernel ncclSymkKernel ncclSymk"),
        (("unknown", "nccl"), "ncclDevKernel_Generic ncclDevKernelDebug_Generic"),
        ((READ, "rccl"), "rcclDevKernel rcclKernel AllToAllPivot"),
        ((READ, "ncclx"), r"ncclKernel(?:All|Reduce|Broadcast|Send|Recv|Device)"),
        ((READ, "nccl_ep"), "nccl_ep_jit_"),
        ((READ, "nccl_ubx"), "ubx_kernel_"),
        ((READ, "nccl"), "ncclDevKernel_ ncclKernel_"),
        ((READ, "nccl"), "nccl(?:AllReduce|ReduceScatter|Reduce|AllGather|Broadcast|SendRecv)"),
        (("unknown", "msccl"), "mscclKernel_"),
        ((READ, "mscclpp"), "mscclpp::"),
        # A UCC executor stays resident and serves whatever collectives its stream is given.
        (("unknown", "ucc"), "^executor_kernel$"),
        (("synchronise", "ucc"), "^executor_start$ ^executor_shutdown_ack$"),
        # All-reduces of inference engines.
        (("all_reduce", "custom_all_reduce"), "cross_device_reduce"),
        (("all_reduce", "quickreduce"), "quickreduce allreduce_prototype_twoshot"),
        (
            (READ, "aiter"),
            "aiter::allgather aiter::reduce_scatter aiter::allreduce reduce_scatter_cross_device",
        ),
        (
            ("all_reduce", "flashinfer"),
            "allreduce_fusion_kernel trtllm_mnnvl_allreduce flashinfer::trtllm_allreduce",
        ),
        ((READ, "flashinfer"), "flashinfer::trtllm_alltoall ulysses_a2a_kernel mixed_comm::"),
        (
            ("all_reduce", "tensorrt_llm"),
            "(?i:(?:one|two)shot_?all_?reduce) one_shot_all_reduce_norm one_shot_prenorm_all",
        ),
        ((READ, "tensorrt_llm"), "moeA2ADispatch moeA2ACombine moeAllToAll helixAllToAll"),
        (("moe_dispatch", "tensorrt_llm"), "moeDispatchKernel"),
        # Experts' exchanges.
        (
            ("synchronise", "deep_ep"),
            r"deep_ep::\S*(?:notify_dispatch|cached_notify|barrier|clean_low_latency_buffer)"
            r" hybrid_ep::device_sync_kernel",
        ),
        (
            ("synchronise", "uccl_ep"),
            r"\buccl::\S*(?:notify_dispatch|cached_notify|barrier|clean_low_latency_buffer)",
        ),
        ((READ, "uccl_ep"), r"\buccl::\S*::(?:dispatch|combine)"),
        (
            (READ, "deep_ep"),
            r"deep_ep:: \b(?:hybrid_)?(?:dispatch|combine)_impl$ \bpp_(?:send|recv)_impl"
            r" hybrid_ep::(?:dispatch|combine)_kernel",
        ),
        (("barrier", "mori"), "EpCombineSync _shmem_barrier_all_block"),
        ((READ, "mori"), r"\bEp(?:Dispatch|Combine)[A-Z] mori::"),
        (
            (READ, "mori"),
            r"(?:OneShot|TwoShot)?(?:AllGather|All2all|ReduceScatter)\w{0,40}Sdma SdmaKernel",
        ),
        ((READ, "pplx"), r"^(?:dispatch|combine)Kernel$ a2a_(?:dispatch|combine)_ pplx::"),
        # Symmetric memory and one-sided communication.
        (
            (READ, "torch_symmetric_memory"),
            r"\b(?:multimem_)?(?:one_shot_|two_shot_)?(?:all_reduce|(?<=shot_)reduce)_kernel"
            " multimem_all_"
            r" \b(?:multimem_)?barrier_kernel$",
        ),
        (
            ("synchronise", "torch_symmetric_memory"),
            "put_signal_kernel wait_signal_kernel stream_write_value32_kernel",
        ),
        ((READ, "torch_nvshmem"), r"\ballToAllV exchangeSplitAndOffset"),
        (
            (READ, "nvshmem"),
            r"(?:barrier|sync|fcollect|reducescatter|rdxn|broadcast|alltoall)_on_stream_kernel",
        ),
        ((READ, "nvshmem"), "nvshmem"),
        ((READ, "rocshmem"), "rocshmem"),
        ((READ, "transformer_engine"), "kuserbuffers_push kuserbuffers_pull userbuffers_fp16_"),
        (("unknown", "transformer_engine"), "userbuffers_"),
        # Triton-distributed.
        (
            (READ, "triton_distributed"),
            "all_gather_push_ cp_engine_producer_all_gather kernel_reduce_scatter_"
            " kernel_dispatch_token kernel_combine_token kernel_all2all_ barrier_all_intra_node"
            " barrier_all_ipc barrier_all_kernel",
        ),
        # Other vendors.
        ((READ, "oneccl"), "oneccl_ ^xccl::"),
        ((READ, "hccl"), "^hccl::"),
        ((READ, "ascend_hccl"), "^hcom_"),
        # Operators of XLA's programs.
        (
            (READ, "xla"),
            r"^(?:ragged-)?(?:all-reduce|all-gather|reduce-scatter|all-to-all"
            r"|collective-permute|collective-broadcast)(?![a-z])",
        ),
        # What no row above knows, but whose name leaves no doubt. Products that exchange their
        # tiles themselves count as compute.
        (None, "(?i:gemm|matmul)"),
        ((READ, "rccl"), "(?i:rccl)"),
        ((READ, "msccl"), "(?i:msccl)"),
        ((READ, "hccl"), "(?i:hccl)"),
        ((READ, "oneccl"), "(?i:oneccl)"),
        ((READ, "nccl"), "(?i:nccl)"),
        (("unknown", "gloo"), "gloo Gloo"),
        ((READ, "unknown"), "(?i:all_?reduce|all_?gather|reduce_?scatter|all_?to_?all)"),
    )
)
