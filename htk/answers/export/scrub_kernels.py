"""Names for kernels that tell what they do, and no more."""

from functools import cache
from typing import Any

from htk.base.names.collectives import comm_rule
from htk.base.names.kinds import kind_of

STEMS = {  # where a family's name alone would not be told as that family
    "elementwise": "pointwise_kernel",
    "loss": "cross_entropy_kernel",
    "optimizer": "multi_tensor_apply_kernel",
    "other": "kernel",
    "random": "philox_kernel",
    "recurrent": "fused_recurrent_kernel",
    "reduction": "reduce_kernel",
}
COMM_STEMS = (
    "ncclDevKernel_AllReduce", "ncclDevKernel_AllGatherV", "ncclDevKernel_AllGather",
    "ncclDevKernel_ReduceScatter", "ncclDevKernel_Reduce", "ncclDevKernel_Broadcast",
    "ncclDevKernel_Generic", "ncclDevKernel_SendRecv", "ncclSymkDevKernel_AllReduce_",
    "ncclSymkDevKernel_AllGather_", "ncclSymkDevKernel_ReduceScatter_", "mscclKernel_",
    "mscclpp::kernel", "cross_device_reduce_1stage", "quickreduce::kernel",
    "allreduce_fusion_kernel", "oneShotAllReduce", "multimem_all_gather_kernel",
    "one_shot_all_reduce_kernel", "deep_ep::intranode::dispatch", "deep_ep::intranode::combine",
    "deep_ep::intranode::barrier", "dispatch_impl<", "combine_impl<", "pp_send_impl",
    "pp_recv_impl", "nccl_ep_jit_ht_dispatch_kernel", "nccl_ep_jit_ht_combine_kernel",
    "ubx_kernel_allreduce", "ubx_kernel_allgather", "ubx_kernel_alltoall", "ubx_kernel_combine",
    "userbuffers_kernel", "allToAllV", "nvshmem_kernel", "oneccl_allreduce", "oneccl_allgather",
    "oneccl_reduce_scatter", "oneccl_alltoall", "oneccl_broadcast", "hcom_allReduce_",
    "hcom_allGather_", "hcom_reduceScatter_", "hcom_alltoall_", "hcom_broadcast_", "hcom_send_",
    "hcom_receive_", "rccl_kernel", "hccl_kernel", "gloo_kernel", "oneccl_kernel", "dma_copy",
    "all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute",
    "collective-broadcast",
)  # fmt: skip


@cache
def kernel_stem(name: str) -> str:
    """Return a name that tells the same kind and family of kernel, and no more."""
    target = kind_of(name, "kernel")
    comm = comm_rule(name)
    if comm is not None:
        fitting = (stem for stem in COMM_STEMS if comm_rule(f"{stem}_1") == comm)
        return next(fitting, "ncclDevKernel_Generic")
    stem = STEMS.get(target.family, f"{target.family}_kernel")
    suffixes = {True: ("_hmma", ""), False: ("", "_simt"), None: ("",)}[target.tensor_core]
    prefixes = (f"{target.library}_", f"{target.library}::") if target.library else ("",)
    stems = [f"{p}{stem}{s}" for p in (*prefixes, "") for s in suffixes]
    if target.kind == "memory":
        stems[:0] = ["dma_copy", "__amd_rocclr_fill"]
    exact = (s for s in stems if kind_of(f"{s}_1", "kernel") == target)
    near = (
        s for s in stems if _describe_kind(kind_of(f"{s}_1", "kernel")) == _describe_kind(target)
    )
    return next(exact, None) or next(near, None) or stem


def _describe_kind(kind: Any) -> tuple[Any, ...]:
    return (kind.kind, kind.family, kind.tensor_core)


@cache
def is_stem(text: str) -> bool:
    """Return whether a text is what a kernel's replacement may begin with."""
    return text in COMM_STEMS or kernel_stem(f"{text}_1") == text
