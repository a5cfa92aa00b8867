"""What names tell of communication: kernels of all libraries, c10d and NCCL calls, element types.

Pure functions, to be asked once for each distinct name.

The suffix of an NCCL kernel (`_RING_LL`) is not its algorithm: since 2.8 the LL variant is launched
for every protocol, and from 2.19 one kernel serves NVLS, CollNet and PAT too. It is not read.
"""

import re
from functools import lru_cache
from typing import NamedTuple

from htk.base.names.bare_names import bare_name
from htk.base.names.comm_rules import COLLECTIVES, HINTS, READ, RULES

# Kernels whose template says how many ranks take part.
_RANKS = re.compile(
    r"(?:cross_device_reduce_\w+|(?:one|two)ShotAllReduceKernel)<[^<>,]*, ?(\d{1,3})(?=[,>])"
)


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
    "alltoallvsingle": "all_to_all",
    "alltoallpivot": "all_to_all",
    "alltoallv2d": "all_to_all",
    "all2all": "all_to_all",
    "alltoallbase": "all_to_all",
    "a2a": "all_to_all",
    "a2av": "all_to_all",
    "send": "send",
    "recv": "recv",
    "receive": "recv",
    "recvanysource": "recv",
    "sendrecv": "send_recv",
    "batchsendrecv": "send_recv",
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

# What stands before the name of a collective in a range of c10d: the backend.
BACKENDS = (
    "nccl",
    "nccl2",
    "ncclx",
    "rccl",
    "rcclx",
    "mccl",
    "gloo",
    "mpi",
    "ucc",
    "xccl",
    "hccl",
    "cncl",
)
_BACKEND = re.compile(rf"^({'|'.join(BACKENDS)}):(\w+)")


def ranks_in_name(name: str) -> int:
    """Return how many ranks a kernel's name says take part; -1: it says none."""
    stated = _RANKS.search(name)
    return int(stated[1]) if stated else -1


@lru_cache(maxsize=100_000)
def comm_rule(name: str) -> CommRule | None:
    """Return which collective of which library a kernel is; None: it does not communicate."""
    call = _BACKEND.match(name)
    if call:  # a name of c10d's, as some profilers give kernels
        return CommRule(collective_type(name), "c10d")
    bare = bare_name(name)
    if not any(map(bare.lower().__contains__, HINTS)):
        return None
    rule = RULES.first(bare)
    if rule is None:
        return None
    collective, library = rule
    if collective == READ:
        collective = COLLECTIVES.first(bare) or "unknown"
    return CommRule(collective, library)


@lru_cache(maxsize=10_000)
def collective_type(name: str) -> str:
    """Return the vocabulary's name of a collective, from what c10d, NCCL or a vendor calls it."""
    bare = _CALL.sub("", name)  # "nccl:send 0->1", "c10d::allreduce_"
    letters = re.sub(r"[^a-z0-9]", "", bare.lower())
    return _TYPES.get(letters, "unknown")


_CALL = re.compile(r"^(?:\w+::?)+|[ (<].*$")


@lru_cache(maxsize=100_000)
def parse_c10d_range(name: str) -> CommRule | None:
    """Collective and backend of a c10d range: `nccl:all_reduce`, `gloo:broadcast`, …"""
    match = _BACKEND.match(name)
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
    """Return the bytes of an element, whoever names its type; None: unknown."""
    plain = (
        name.removeprefix("nccl").removeprefix("c10::").replace("_", "").replace(" ", "").lower()
    )
    if plain.startswith(("float8", "fp8", "f8")) or plain == "float4e2m1fnx2":  # two in a byte
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
