"""Traces without what tells whose they are; times, links and kinds of work stay as they were.

Every text is replaced unless it is known to be public: what is allowed is listed here, not what is
forbidden. One `Names` serves all ranks, so that a name is replaced by the same one everywhere.
"""

import re
from collections import defaultdict
from collections.abc import Callable
from functools import cached_property

import msgspec

from htk.names.collectives import BACKENDS
from htk.names.kinds import kind_of
from htk.parsers.kineto import scan
from htk.parsers.kineto.columns import COLUMNS
from htk.parsers.kineto.scan import Member

# Names that PyTorch, the drivers and the communication libraries give, and nobody else.
_PUBLIC_NAME = re.compile(
    r"(aten|prims?|fsdp|inductor|_?c10d(_functional)?)::\w+(\.\w+)?"
    rf"|({'|'.join(BACKENDS)}):\w+|record_param_comms|detach|ProfilerStep\*?(#\d+)?"
    r"|(cuda|cu|hip|hsa)[A-Z]\w*|Memcpy \w+( \([\w ]+->[\w ]+\))?|Memset( \(\w+\))?"
    r"|nccl(Dev)?Kernel_\w+(\([\w *&]*\))?|\[(memory|OutOfMemory)\]|ac2g|fwdbwd"
    r"|(Event|Stream|Context|Device) Sync|Stream Wait Event|Event Record"
    r"|event_(wait|record)|dma_request"
    r"|Buffer Flush|Resource|Lazy Function Loading|Runtime Triggered Module Loading"
    r"|Activity Buffer Request|Command Buffer Full|(Iteration Start: )?PyTorch Profiler"
    r"|Record Window End|Trace|Spans|Traces|(process|thread)_(name|labels|sort_index)"
    r"|(enumerate\(DataLoader\)#)?_(Single|MultiProcessing)\w*DataLoaderIter\.__next__"
    r"|AccumulateGrad|torch::autograd::AccumulateGrad"
    r"|FSDP::\w+|DistributedDataParallel\.forward|FullyShardedDataParallel\.\w+",
    re.ASCII,
)
_PUBLIC_PREFIX = re.compile(  # what comes before a name that is replaced
    r"autograd::engine::evaluate_function: |nn\.Module: |Optimizer\.(?:step|zero_grad)#"
    r"|FSDP::\w+ |## |FullyShardedDataParallel\.\w+ |pg_|Torch-Compiled Region: "
)
_BACKWARD = re.compile(r"(\w+?)Backward\d*")
_OPTIMIZERS = {"Adam", "AdamW", "SGD", "RMSprop", "Adagrad", "Adamax", "NAdam", "RAdam", "LBFGS"}
_CATEGORY = re.compile(r"[a-z_0-9]{1,30}|Trace|Kernel|Memcpy|Memset|Operator|Runtime")
_VALUE = re.compile(  # of an argument: numbers, types, enumerations
    r"[-+\d.eE]*|0x[0-9a-fA-F]+|True|False|true|false|None|null|inf|nan"
    r"|(c10::)?(BFloat16|Half|Float\w*|Complex\w*)|float|double|int|long int|long|bool|short"
    r"|unsigned (char|int|long)|signed char|Scalar|ScalarList|Tensor|TensorList|GenericList|Device"
    r"|Generator|Dict|None|Layout|NoneType"
    r"|Host|Pageable|Pinned|Unknown|Array|Managed|Unified|Device|Memcpy|Memset"
    r"|(Bool|Byte|Char|Short|Int|Long|Half|Float|Double|BFloat16|Float8_\w+|UInt\d+)"
    r"|_?(all_?gather|all_?reduce|reduce_?scatter|broadcast|barrier|send|recv|reduce|gather|scatter"
    r"|all_?to_?all)\w*|wait|default_pg|undefined|nccl|gloo|mpi|cuda:nccl|cpu:gloo(,cuda:nccl)?"
    r"|mesh_\w{1,12}|stream ?\d+|CPU|GPU ?\d+|python|Spans|ms|us|ns"
    r"|thread \d+ \(python3?\)|Iteration Start: PyTorch Profiler|Trace|\[memory\]",
    re.IGNORECASE | re.ASCII,
)
_SHAPES = {"Input Dims", "Input dims", "Input Shapes", "Output Dims", "in_dims", "input_shapes"}
_EMPTIED = {"Input Strides", "Concrete Inputs", "Input strides", "kwinputs"}
_STACKS = {"Call stack", "Module Hierarchy", "stack", "frames"}
# Keys of arguments: those that htk reads, and what stands beside them in any trace.
_PUBLIC_KEYS = {column.key for column in COLUMNS} | _SHAPES | _EMPTIED | _STACKS
_PUBLIC_KEYS |= {"name", "labels", "sort_index", "cbid", "Op count", "Profiler Event Index"}
_NUMBER = re.compile(rb"\d+")
_TEXT_IN_JSON = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
# Where a family's name alone would not be told as that family.
_STEMS = {
    "communication": "ncclDevKernel_Generic",
    "elementwise": "pointwise_kernel",
    "loss": "cross_entropy_kernel",
    "optimizer": "multi_tensor_apply_kernel",
    "other": "kernel",
    "random": "philox_kernel",
    "recurrent": "fused_recurrent_kernel",
    "reduction": "reduce_kernel",
}
# The header's members whose texts are public: hardware, versions, units.
_PUBLIC_HEADER = {
    "schemaVersion", "deviceProperties", "cupti_version", "cuda_runtime_version",
    "cuda_driver_version", "cuda_version", "hip_runtime_version", "hip_driver_version",
    "displayTimeUnit", "baseTimeNanoseconds", "profile_memory", "record_shapes", "with_stack",
    "with_flops", "with_modules", "trace_id", "nccl_version",
}  # fmt: skip


_REPLACED_HEADER = {"distributedInfo", "traceName", "host_name", "hostname", "worker_name"}
_DISTRIBUTED = {
    "backend", "rank", "world_size", "pg_count", "pg_config", "pg_name", "pg_desc", "pg_size",
    "backend_config", "ranks", "nccl_version",
}  # fmt: skip


class Names:
    """What every replaced text became, in the order in which they were met."""

    def __init__(self, operators: frozenset[str] = frozenset()) -> None:
        self._operators = operators  # names of public operators, without their namespace
        self._given: dict[str, dict[str, str]] = defaultdict(dict)

    def replaced(self, text: str, kind: str) -> str:
        known = self._given[kind]
        return known.setdefault(text, f"{kind}_{len(known) + 1}")

    def size(self, number: int) -> int:
        """Another size: 0 and 1 stay, others become the next of a fixed walk."""
        if number < 2:
            return number
        return int(self.replaced(str(number), "size").rpartition("_")[2]) + 1

    def event(self, name: str, category: str) -> str:
        """The name of an event."""
        if _PUBLIC_NAME.fullmatch(name):
            return name
        if category == "kernel":
            return self._kernel(name)
        match = _PUBLIC_PREFIX.match(name)
        if match is None:
            return name if self._is_backward(name) else self.replaced(name, _kind(category))
        rest = name[match.end() :]
        if rest in _OPTIMIZERS or rest.partition(".")[0] in _OPTIMIZERS or self._is_backward(rest):
            return name
        if _PUBLIC_NAME.fullmatch(rest):
            return name
        if name.startswith("nn.Module: "):  # the number tells instances of a class apart
            module, mark, number = rest.rpartition("_")
            if mark and number.isdigit():
                return f"nn.Module: {self.replaced(module, 'Module')}_{number}"
        return match.group() + self.replaced(rest, "name")

    def value(self, text: str) -> str:
        """Any text that an argument or the header holds."""
        return text if _VALUE.fullmatch(text) else self.replaced(text, "text")

    def _is_backward(self, name: str) -> bool:
        """Whether it is the backward of a public operator: AddmmBackward0, not MineBackward."""
        match = _BACKWARD.fullmatch(name)
        plain = match[1].lower() if match else ""
        return plain in self._plain_operators

    @cached_property
    def _plain_operators(self) -> frozenset[str]:
        return frozenset(name.replace("_", "").lower() for name in self._operators)

    def _kernel(self, name: str) -> str:
        """A name that tells the same kind and family of kernel, and no more."""
        was = kind_of(name, "kernel")
        stem = _STEMS.get(was.family, f"{was.family}_kernel")
        if was.tensor_core is not None:
            exact = f"{stem}_{'hmma' if was.tensor_core else 'simt'}"
            now = kind_of(f"{exact}_1", "kernel")
            if (now.family, now.tensor_core) == (was.family, was.tensor_core):
                stem = exact
        return self.replaced(name, stem)


def entry(names: Names, key: str, value: bytes) -> bytes | None:
    """A member of the header."""
    if key in _PUBLIC_HEADER:
        return value
    if key in _REPLACED_HEADER:
        return _texts(names, value)
    return None


def event(names: Names, piece: bytes) -> bytes:
    """An event: its name, category and arguments; numbers byte for byte."""
    members, _ = scan.members(piece, 0)
    known = {scan.plain(member.key): member.value for member in members}
    category = scan.plain(known.get("cat", b'""'))

    def one(member: Member) -> bytes:
        key, value = scan.plain(member.key), member.value
        if key == "name":
            return _quoted(names.event(_said(value), category))
        if key == "cat":
            return value if _CATEGORY.fullmatch(_said(value)) else _quoted("other")
        if key == "args" and value.startswith(b"{"):
            return _object(names, value, lambda inner: _argument(names, inner))
        if key in ("ph", "bp", "s"):
            return value
        return _texts(names, value)

    return _written([(member.key, one(member)) for member in members])


def _argument(names: Names, member: Member) -> bytes:
    key, value = scan.plain(member.key), member.value
    if key in _SHAPES:
        return _NUMBER.sub(lambda m: str(names.size(int(m.group()))).encode(), value)
    if key in _EMPTIED:
        return b"[]"
    if key in _STACKS and value.startswith(b'"'):
        frames = re.split(r"(;|\n)", _said(value))
        return _quoted("".join(f if f in ";\n" else names.replaced(f, "frame") for f in frames))
    return _texts(names, value)


def _texts(names: Names, value: bytes) -> bytes:
    """Any JSON with its texts replaced, also those within a text that is JSON itself."""
    if not value.startswith((b"[", b"{", b'"')):
        return value

    def one(match: re.Match[bytes]) -> bytes:
        said = _said(match.group())
        if said[:1] in "[{" and said:
            return _quoted(_texts(names, said.encode()).decode())
        return _quoted(names.value(said))

    if value.startswith(b"{"):
        return _object(names, value, lambda member: _texts(names, member.value))
    if value.startswith(b"[") and b"{" in value:
        return _list(names, value)
    return _TEXT_IN_JSON.sub(one, value)


def _list(names: Names, value: bytes) -> bytes:
    """A list that may hold objects."""
    found: list[bytes] = []
    at = 1
    while True:
        at = scan.skip_space(value, at)
        if value[at] == ord("]"):
            return b"[" + b", ".join(found) + b"]"
        if value[at] == ord(","):
            at += 1
            continue
        end = scan.value_end(value, at)
        found.append(_texts(names, value[at:end]))
        at = end


def _object(names: Names, value: bytes, to: Callable[[Member], bytes]) -> bytes:
    members, _ = scan.members(value, 0)
    return _written([(_key(names, member.key), to(member)) for member in members])


def _key(names: Names, key: bytes) -> bytes:
    said = scan.plain(key)
    known = said in _PUBLIC_KEYS or said in _DISTRIBUTED or said.isdigit()
    return key if known else _quoted(names.replaced(said, "key"))


def _written(members: list[tuple[bytes, bytes]]) -> bytes:
    return b"{" + b", ".join(key + b": " + value for key, value in members) + b"}"


def _said(text: bytes) -> str:
    return scan.plain(text) if text.startswith(b'"') else text.decode("utf8", "replace")


def _quoted(text: str) -> bytes:
    return msgspec.json.encode(text)


def _kind(category: str) -> str:
    return {"python_function": "function", "cpu_op": "op", "ac2g": "flow"}.get(category, "name")
