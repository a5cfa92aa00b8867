"""What a GPU activity is, from its name: decided once for each distinct name."""

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from htk.base.names.bare_names import bare_name, spell_words
from htk.base.names.collectives import comm_rule
from htk.base.names.kernel_rules import FAMILIES, FOREACH, FUNCTIONS, INDUCTOR, LIBRARIES
from htk.base.names.matrix_rules import (
    FUSED_PRODUCTS,
    MATRIX_TYPES,
    MATRIX_UNITS,
    OTHER_WORK,
    TRITON_PRODUCTS,
)


class Kind(NamedTuple):
    kind: str  # compute, comm, memory; other: the name stands for work of several kinds
    family: str
    library: str
    tensor_core: bool | None  # None: the name does not tell


_LONGEST = 8192  # characters that rules look at: some take the square of a name's length
# Kernels made of their template arguments: those alone tell what they do.
_ANY_TEMPLATE = re.compile(
    r"^cutlass\w*::(?:Kernel2?|device_kernel)$|^cutlass\w*::reduction|^ck_tile::kentry$"
)
_GENERIC = frozenset(("", "kernel", "Kernel", "_kernel"))
# What runs any function over elements.
_OF_ANY_FUNCTION = re.compile(r"elementwise|CUDAFunctor")
# Of these none tells what a function does: namespaces that hold all kinds, CuTe DSL's prefix.
_UNTELLING = (
    "flashinfer::",
    "flashinfer",
    "fbgemm_gpu::",
    "fbgemm",
    "deep_gemm::",
    "transformer_engine::",
    "quantization::",
    "kernel_cutlass_kernel_",
    "kernel_cutlass_",
)
_OF_TRITON = re.compile(r"_[a-z]\w*$")  # as its own functions are called
_MATRIX_FAMILIES = ("gemm", "convolution", "attention", "moe", "recurrent")
_MATRIX_INSTRUCTION = re.compile(r"_MI\d+x\d+")  # Tensile: absent where plain FMAs do the work
# Copies and sets that the driver runs as kernels: its own, and those of MTIA.
_COPIES = re.compile(r"^dma|^__amd_rocclr_copy|^Memcpy ")
_SETS = re.compile(r"^__amd_rocclr_fill|^Memset ")
_WHOLE_GRAPH = re.compile(r"^CUDA Graph \d+$")  # recorded from its begin to its end alone
_OVER_HOST_LINK = re.compile(r"HtoD|DtoH|HostToDevice|DeviceToHost|\((?:[MH]2D|D2[MH])\)$")
_BETWEEN_GPUS = re.compile(r"^Memcpy PtoP|PeerToPeer")
# Products of many experts at once, in libraries that multiply anything.
_OF_EXPERTS = re.compile(r"matmul_ogs|groupproblemshape|grouped_?(?:mm|gemm)", re.IGNORECASE)
# Number formats as names of kernels and types of tensors tell them, the narrowest first.
_NUMBER_FORMATS = {
    "mxfp4": re.compile(r"mxfp4|mxf4", re.IGNORECASE),
    "nvfp4": re.compile(r"nvfp4|nvf4|e2m1", re.IGNORECASE),
    "int4": re.compile(r"awq|gptq|marlin.*u4|int4|w4a16", re.IGNORECASE),
    "fp8": re.compile(r"(?i:fp8|float8|e4m3|e5m2|_f8)|F8"),
    "bf16": re.compile(r"bf16|bfloat16", re.IGNORECASE),
    "fp16": re.compile(r"half|fp16|_hhs_|h884|s16816", re.IGNORECASE),
    "fp32": re.compile(r"\bfloat\b|tf32|sgemm|s1688gemm|fp32", re.IGNORECASE),
}
NARROW_FORMATS = ("mxfp4", "nvfp4", "int4", "fp8")
MULTIPLIED_FORMATS = ("fp8", "bf16", "fp16", "fp32")


@lru_cache(maxsize=100_000)
def kind_of(name: str, activity: str) -> Kind:
    """Return what the activity of that name is (activity: kernel, copy or set)."""
    if activity != "kernel":
        return Kind("memory", "copy" if activity == "copy" else "set", "", None)
    name = name[:_LONGEST]
    rule = comm_rule(name)
    if rule is not None:
        return Kind("comm", "communication", rule.library, None)
    if _COPIES.match(name):
        return Kind("memory", "copy", "", None)
    if _SETS.match(name):
        return Kind("memory", "set", "", None)
    if _WHOLE_GRAPH.match(name):
        return Kind("other", "graph", "", None)
    bare = bare_name(name)
    family = _find_family(bare, name)
    library = (not _ANY_TEMPLATE.search(bare) and LIBRARIES.first(bare)) or LIBRARIES.first(name)
    return Kind("compute", family, library or "", _tensor_core(bare, name, family))


def is_copy_over_the_host_link(name: str) -> bool:
    """Return whether an activity of that name copies between a GPU and its host."""
    return bool(_OVER_HOST_LINK.search(name))


def is_copy_between_gpus(name: str) -> bool:
    """Return whether an activity copies from one GPU to another: by libraries that communicate
    with copy engines too, which the name does not tell."""
    return bool(_BETWEEN_GPUS.search(name))


def is_of_experts(name: str, family: str) -> bool:
    """Return whether a kernel of that name and family works for experts of a mixture."""
    return family == "moe" or bool(_OF_EXPERTS.search(name))


def read_number_format(text: str, formats: Sequence[str]) -> str | None:
    """Return the first of the formats that a kernel's name, or types of tensors, tell."""
    return next((name for name in formats if _NUMBER_FORMATS[name].search(text)), None)


def _find_family(bare: str, name: str) -> str:
    if of_inductor := INDUCTOR.first(bare):
        return of_inductor
    if _ANY_TEMPLATE.search(bare):
        return FAMILIES.first(name.lower()) or "gemm"
    own = bare
    for word in _UNTELLING:
        own = own.replace(word, "")
    family = FAMILIES.first(own.lower())
    if family is None and bare in _GENERIC:
        family = FAMILIES.first(name.lower())
    if family == "optimizer" and (foreach := FOREACH.first(name)):
        return foreach
    if family == "elementwise" and _OF_ANY_FUNCTION.search(own):
        return FUNCTIONS.first(name) or family
    return family or FUNCTIONS.first(name) or "other"


def _tensor_core(bare: str, name: str, family: str) -> bool | None:
    if family == "other":
        return OTHER_WORK.first(spell_words(bare))
    if family not in _MATRIX_FAMILIES:
        return not INDUCTOR.first(bare) and FUSED_PRODUCTS.first(spell_words(bare))
    if name.startswith("Cijk_"):
        return bool(_MATRIX_INSTRUCTION.search(name)) if "_MT" in name else None
    own = name if _ANY_TEMPLATE.search(bare) else bare
    decided = MATRIX_UNITS.first(spell_words(own))
    if decided is None and _OF_TRITON.match(bare):
        decided = TRITON_PRODUCTS.first(spell_words(own))
    return MATRIX_TYPES.first(spell_words(name)) if decided is None else decided
