"""What names say of communication: kernels of all libraries, c10d and NCCL calls, element types.

Pure functions, to be asked once for each distinct name.

The suffix of an NCCL kernel (`_RING_LL`) is not its algorithm: since 2.8 the LL variant is launched
for every protocol, and from 2.19 one kernel serves NVLS, CollNet and PAT too. It is not read.
"""

import re
from functools import lru_cache
from typing import NamedTuple


class CommRule(NamedTuple):
    collective: str  # type of the vocabulary; "unknown" where the name does not tell
    library: str


# Names in the spelling of the vocabulary, by the letters of what libraries and c10d call them.
_TYPES = {
    "allreduce": "all_reduce",
    "allreducecoalesced": "all_reduce",
    "allreducesparse": "all_reduce",
    "allreducebarrier": "barrier",
    "allgather": "all_gather",
    "allgatherv": "all_gather",
    "allgatherbase": "all_gather",
    "allgathersingle": "all_gather",
    "allgathercoalesced": "all_gather",
    "allgatherintotensor": "all_gather",
    "allgatherintotensorcoalesced": "all_gather",
    "reducescatter": "reduce_scatter",
    "reducescatterv": "reduce_scatter",
    "reducescatterbase": "reduce_scatter",
    "reducescattersingle": "reduce_scatter",
    "reducescattertensor": "reduce_scatter",
    "reducescattercoalesced": "reduce_scatter",
    "reducescattertensorcoalesced": "reduce_scatter",
    "broadcast": "broadcast",
    "broadcastoop": "broadcast",
    "reduce": "reduce",
    "reduceoop": "reduce",
    "gather": "gather",
    "gatherv": "gather",
    "scatter": "scatter",
    "scatterv": "scatter",
    "alltoall": "all_to_all",
    "alltoallv": "all_to_all",
    "alltoallsingle": "all_to_all",
    "alltoallbase": "all_to_all",
    "a2a": "all_to_all",
    "a2av": "all_to_all",
    "send": "send",
    "recv": "recv",
    "receive": "recv",
    "recvanysource": "recv",
    "sendrecv": "send_recv",
    "hypercube": "hypercube",
    "barrier": "barrier",
    "monitoredbarrier": "barrier",
    "coalesced": "coalesced",
    "split": "split",
    "newwindow": "new_window",
    "dispatch": "moe_dispatch",
    "combine": "moe_combine",
    "wait": "wait",
}

# Rules are asked in order. A rule's collective is a type, or the group of the match that names it;
# None: looks like communication and is not.
_RULES: tuple[tuple[str, str | int | None, str], ...] = (
    (r"ncclSymk?DevKernel_(AllReduce|AllGather|ReduceScatter)_", 1, "nccl_symmetric"),
    (r"ncclDevKernel_SendRecv", "send_recv", "nccl"),
    (r"ncclDevKernel(?:Debug)?_Generic", "unknown", "nccl"),
    (
        r"nccl(?:Dev)?Kernel_(AllReduce|ReduceScatter|Reduce|AllGatherV|AllGather|Broadcast|SendRecv)",
        1,
        "nccl",
    ),
    (
        r"nccl(AllReduce|ReduceScatter|Reduce|AllGather|Broadcast|SendRecv)"
        r"(?:Ring|Tree|CollNet)?(?:LL128|LL)?Kernel_",
        1,
        "nccl",
    ),
    (r"\boneRankReduce\b", None, "nccl"),  # a local copy, in a group of one
    (r"mscclKernel_", "unknown", "msccl"),
    (r"mscclpp::", "unknown", "mscclpp"),
    (r"cross_device_reduce_[12]stage", "all_reduce", "custom_all_reduce"),
    (r"quickreduce::|allreduce_prototype_twoshot", "all_reduce", "quickreduce"),
    (r"(?:moe(?:reduce|finalize)_)?allreduce_fusion_kernel", "all_reduce", "flashinfer"),
    (
        r"\b(?:one|two)[sS]hotAll[Rr]educe|lamport_style_one_shot_all_reduce_norm_kernel",
        "all_reduce",
        "tensorrt_llm",
    ),
    (
        r"\b(?:multimem_)?(?:one_shot_|two_shot_)?all_reduce_kernel",
        "all_reduce",
        "torch_symmetric_memory",
    ),
    (r"\bmultimem_all_gather_kernel", "all_gather", "torch_symmetric_memory"),
    (r"deep_ep::(?:legacy::)?layout::", None, "deep_ep"),
    (
        r"deep_ep::(?:legacy::)?(?:intranode|internode_ll|internode)::"
        r"(?:notify_dispatch|cached_notify|barrier|clean_low_latency_buffer)",
        "synchronise",
        "deep_ep",
    ),
    (
        r"deep_ep::(?:legacy::)?(?:intranode|internode_ll|internode)::(dispatch|combine)",
        1,
        "deep_ep",
    ),
    (r"(?:dispatch_copy|combine_reduce)_epilogue_impl", None, "deep_ep"),
    (r"\b(?:hybrid_)?(dispatch|combine)_impl<", 1, "deep_ep"),
    (r"\bpp_(send|recv)_impl", 1, "deep_ep"),
    (r"nccl_ep_jit_ht_(dispatch|combine)_kernel", 1, "nccl_ep"),
    (r"ubx_kernel_(allreduce|allgather|a2av?|alltoall|combine|barrier)", 1, "nccl_ubx"),
    (r"k?userbuffers_", "unknown", "transformer_engine"),
    (r"\ballToAllV(?:_2d)?\b", "all_to_all", "torch_nvshmem"),
    (r"nvshmem", "unknown", "nvshmem"),
    (r"oneccl_(allreduce|allgatherv?|reduce_scatter|alltoallv?|broadcast)", 1, "oneccl"),
    (r"^xccl::(\w+)", 1, "oneccl"),
    (r"^hccl::(\w+)", 1, "hccl"),
    (
        r"hcom_(allReduce|allGather|reduceScatter|alltoallv?|broadcast|send|receive)_",
        1,
        "ascend_hccl",
    ),
    (r"^(?:nccl|gloo|mpi|xccl|hccl|ucc):(\w+)", 1, "c10d"),
    # What no rule above knows, but whose name leaves no doubt.
    (r"(?i)rccl", "unknown", "rccl"),
    (r"(?i)nccl", "unknown", "nccl"),
    (r"(?i)msccl", "unknown", "msccl"),
    (r"(?i)hccl", "unknown", "hccl"),
    (r"(?i)gloo", "unknown", "gloo"),
    (r"(?i)oneccl", "unknown", "oneccl"),
    (r"(?i)nvshmem", "unknown", "nvshmem"),
    (r"(?i)multimem_all_", "unknown", "torch_symmetric_memory"),
    (r"(?i)cross_device_reduce|quickreduce", "all_reduce", "custom_all_reduce"),
    (r"(?i)allreduce_fusion|shotallreduce", "all_reduce", "flashinfer"),
    (r"(?i)deep_ep::", "unknown", "deep_ep"),
)
_COMPILED = tuple((re.compile(rule), collective, library) for rule, collective, library in _RULES)
_MAYBE = (  # everything that any rule matches has one of these; most names stop here
    "ccl",
    "allreduce",
    "all_reduce",
    "all_gather",
    "onerankreduce",
    "cross_device_reduce",
    "quickreduce",
    "deep_ep",
    "dispatch_impl",
    "combine_impl",
    "send_impl",
    "recv_impl",
    "epilogue_impl",
    "ubx_kernel",
    "userbuffers",
    "alltoallv",
    "nvshmem",
    "hcom_",
    "multimem",
    "gloo",
    "ucc:",
    "mpi:",
)


@lru_cache(maxsize=100_000)
def comm_rule(name: str) -> CommRule | None:
    """Which collective of which library a kernel of that name is; None: not communication."""
    small = name.casefold()
    if not any(word in small for word in _MAYBE):  # quicker than one expression that ignores case
        return None
    for rule, collective, library in _COMPILED:
        match = rule.search(name)
        if match is None:
            continue
        if collective is None:
            return None
        kind = collective_type(match[collective]) if isinstance(collective, int) else collective
        return CommRule(kind, library)
    return None


@lru_cache(maxsize=10_000)
def collective_type(name: str) -> str:
    """The vocabulary's name of a collective, from what c10d, NCCL or a vendor calls it."""
    bare = _CALL.sub("", name)  # "nccl:send 0->1", "c10d::allreduce_"
    letters = re.sub(r"[^a-z0-9]", "", bare.lower())
    return _TYPES.get(letters, "unknown")


_CALL = re.compile(r"^(?:\w+::?)+|[ (<].*$")
_ANNOTATION = re.compile(r"^(nccl|rccl|gloo|mpi|ucc|xccl|hccl|cncl):(\w+)")


def annotated(name: str) -> CommRule | None:
    """Collective and backend of a c10d range: `nccl:all_reduce`, `gloo:broadcast`, …"""
    match = _ANNOTATION.match(name)
    return CommRule(collective_type(match[2]), match[1]) if match else None


# c10d's names, NCCL's (ncclFloat32 and the short ones of nccl-tests), and C++ types as recorded
# with operator shapes. Complex tensors are recorded as twice as many reals.
_BYTES = {
    "float": 4,
    "float32": 4,
    "half": 2,
    "float16": 2,
    "fp16": 2,
    "bfloat16": 2,
    "double": 8,
    "float64": 8,
    "long": 8,
    "longint": 8,
    "longlong": 8,
    "int64": 8,
    "uint64": 8,
    "int": 4,
    "int32": 4,
    "uint32": 4,
    "unsignedint": 4,
    "short": 2,
    "shortint": 2,
    "int16": 2,
    "uint16": 2,
    "char": 1,
    "signedchar": 1,
    "int8": 1,
    "byte": 1,
    "unsignedchar": 1,
    "uint8": 1,
    "bool": 1,
    "complexhalf": 4,
    "complexfloat": 8,
    "complexdouble": 16,
}


@lru_cache(maxsize=1000)
def dtype_bytes(name: str) -> int | None:
    """Bytes of an element, whoever names its type; None: unknown."""
    plain = (
        name.removeprefix("nccl").removeprefix("c10::").replace("_", "").replace(" ", "").lower()
    )
    if plain.startswith(("float8", "fp8", "f8")):
        return 1
    return _BYTES.get(plain)


# The same type has a name at c10d, another in NCCL and another in C++.
_DTYPES = {
    "float": "Float",
    "double": "Double",
    "int": "Int",
    "long": "Long",
    "long int": "Long",
    "short": "Short",
    "short int": "Short",
    "signed char": "Char",
    "unsigned char": "Byte",
    "bool": "Bool",
    "c10::BFloat16": "BFloat16",
    "c10::Half": "Half",
    "c10::Float8_e4m3fn": "Float8_e4m3fn",
    "c10::Float8_e5m2": "Float8_e5m2",
    "c10::complex<float>": "ComplexFloat",
}


def dtype_of_cpp(name: str) -> str:
    """c10d's name of a C++ type as recorded with operator shapes."""
    return _DTYPES.get(name, name)


# NCCL's numbers, as its logs print them.
NCCL_DTYPES = (
    "ncclInt8",
    "ncclUint8",
    "ncclInt32",
    "ncclUint32",
    "ncclInt64",
    "ncclUint64",
    "ncclFloat16",
    "ncclFloat32",
    "ncclFloat64",
    "ncclBfloat16",
    "ncclFloat8e4m3",
    "ncclFloat8e5m2",
)
NCCL_ALGORITHMS = ("TREE", "RING", "COLLNET_DIRECT", "COLLNET_CHAIN", "NVLS", "NVLS_TREE", "PAT")
NCCL_PROTOCOLS = ("LL", "LL128", "SIMPLE")

# Every rank waits for every other in these; all of them end together.
SYNCHRONISING = frozenset({"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier"})
