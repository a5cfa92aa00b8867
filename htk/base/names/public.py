"""Public names, which a scrub keeps: those of PyTorch, CUDA, HIP, NCCL and Kineto.

A name counts only as a whole: from the list in public.txt, from the enumerations below, or put
together of nothing but their words and numbers.
"""

import re
from functools import cache
from importlib.resources import files

from htk.base.names.collectives import BACKENDS, collective_type, dtype_bytes

_PHASES = tuple("BEXIiCbneSTpFstfPNODMVvRcGg")
_CATEGORIES = (
    "cpu_op", "kernel", "cuda_runtime", "cuda_driver", "hip_runtime", "gpu_memcpy", "gpu_memset",
    "ac2g", "async_cpu_to_gpu", "async_gpu", "fwdbwd", "python_function", "cpu_instant_event",
    "user_annotation", "gpu_user_annotation", "overhead", "cuda_sync", "cuda_event", "Trace",
    "Kernel", "Memcpy", "Memset", "Operator", "Runtime", "mtia_ccp_events", "mtia_runtime",
    "mtia_insight", "privateuse1_runtime", "privateuse1_driver", "xpu_runtime", "xpu_driver",
    "hpu_op", "collective_comm", "cuda_profiler_range", "glow_runtime", "workload", "critical_path",
)  # fmt: skip
_TYPES = (
    "float", "double", "int", "long int", "long", "long long", "bool", "short", "short int",
    "unsigned char", "unsigned int", "unsigned long", "signed char", "char", "Scalar", "ScalarList",
    "Tensor", "TensorList", "GenericList", "Generator", "Dict", "None", "Layout", "NoneType",
    "c10::BFloat16", "c10::Half", "c10::complex<float>", "c10::complex<double>",
    "c10::Float8_e4m3fn", "c10::Float8_e5m2", "c10::Float8_e4m3fnuz", "c10::Float8_e5m2fnuz",
    "c10::Float8_e8m0fnu", "Bool", "Byte", "Char", "Short", "Int", "Long", "Half", "Float",
    "Double", "BFloat16", "UInt16", "UInt32", "UInt64", "ComplexFloat", "ComplexDouble",
    "Float8_e4m3fn", "Float8_e5m2", "Float8_e4m3fnuz", "Float8_e5m2fnuz", "Float8_e8m0fnu",
)  # fmt: skip
_WORDS = (
    "", "True", "False", "true", "false", "null", "Null", "inf", "nan", "N/A", "Device", "Host",
    "Pageable", "Pinned", "Unknown", "Array", "Managed", "Unified", "HtoD", "DtoH", "DtoD", "HtoH",
    "PtoP", "Memcpy", "Memset", "Dispatch Kernel", "Dispatch Task", "DEVICE_TO_HOST",
    "HOST_TO_DEVICE", "[memory]", "[OutOfMemory]", "Event Sync", "Stream Sync", "Context Sync",
    "Device Sync", "Stream Wait Event", "Event Record", "Buffer Flush", "Resource",
    "Lazy Function Loading", "Runtime Triggered Module Loading", "Activity Buffer Request",
    "Command Buffer Full", "PyTorch Profiler", "PyTorch Profiler (0)", "Record Window End",
    "Iteration Start: PyTorch Profiler", "Traces", "Spans", "process_name", "process_labels",
    "process_sort_index", "thread_name", "thread_sort_index", "process_uptime_seconds", "CPU",
    "GPU", "python", "python3", "nccl", "gloo", "mpi", "ucc", "rccl", "xccl", "hccl", "cuda:nccl",
    "cpu:gloo", "cpu:gloo,cuda:nccl", "default_pg", "undefined", "mesh_dp", "mesh_tp", "mesh_pp",
    "mesh_cp", "mesh_ep", "mesh_fsdp", "mesh_dp_shard", "mesh_dp_replicate", "mesh_dp_cp",
    "mesh_dp_shard_cp", "triton", "wait", "event_wait", "event_record", "dma_request", "forward",
    "backward", "optimizer", "loss", "## forward ##", "## backward ##", "## optimizer ##",
    "## zero_grad ##", "DistributedDataParallel.forward", "ms", "us", "ns", "INVALID",
    "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__",
    "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", "traceEvents",
)  # fmt: skip

_COLLECTIVES = "AllReduce|AllGatherV|AllGather|ReduceScatter|Reduce|Broadcast|SendRecv"
_ELEMENTS = "i8|u8|i32|u32|i64|u64|f16|f32|f64|bf16|fp16|f8e4m3|f8e5m2"
_CPP_ELEMENTS = "u?int(?:8|32|64)_t|half|float|double|__nv_bfloat16|hip_bfloat16|rccl_bfloat16"
_REDUCTIONS = "Sum|Prod|Max|Min|MinMax|PreMulSum|SumPostDiv|sum|prod|max|min|copy|avg|premulsum"
_ARGUMENTS = (
    r"\((?:ncclDevKernelArgsStorage<\d{1,6}ul>|ncclDevKernelArgs|ncclDevComm\*, unsigned long,"
    r" ncclWork\*|ncclDevComm\*, channelMasks, ncclWork\*|ncclWorkElem|ncclColl)\)"
)
_MEMORY = "Pageable|Pinned|Device|Host|Managed|Unified|Array|Unknown"
_PUT_TOGETHER = re.compile(
    rf"nccl(?:Dev)?Kernel_(?:{_COLLECTIVES})(?:_(?:{_REDUCTIONS}))?(?:_(?:{_ELEMENTS}))?"
    rf"(?:_(?:RING|TREE|COLLNET_DIRECT|COLLNET_CHAIN|NVLS|NVLS_TREE|PAT)_(?:LL|LL128|SIMPLE))?"
    rf"(?:{_ARGUMENTS})?"
    rf"|ncclKernel_(?:{_COLLECTIVES})_(?:RING|TREE|COLLNET)_(?:LL|LL128|SIMPLE)"
    rf"_(?:{_REDUCTIONS})_(?:{_ELEMENTS}|{_CPP_ELEMENTS})(?:{_ARGUMENTS})?"
    rf"|ncclDevKernel_Generic(?:_\d)?(?:{_ARGUMENTS})?"
    rf"|nccl(?:{_COLLECTIVES})(?:Ring|Tree|CollNet)?(?:LL128|LL)?Kernel_(?:{_REDUCTIONS})"
    rf"_(?:{_ELEMENTS})(?:{_ARGUMENTS})?"
    rf"|Memcpy (?:HtoD|DtoH|DtoD|HtoH|PtoP|HtoA|AtoH|AtoD|DtoA|AtoA)"
    rf"(?: \((?:{_MEMORY}) -> (?:{_MEMORY})\))?"
    rf"|Memset(?: \((?:{_MEMORY})\))?"
    r"|ProfilerStep\*|ProfilerStep#\d{1,9}|Torch-Compiled Region: \d{1,4}/\d{1,4}"
    # steps of serving engines, with counts of requests and tokens
    r"|execute_(?:\d+_)?context_\d+\((?:s[qk]|[\d_])*\)_generation_\d+\((?:s[qk]|[\d_])*\)"
    r"|execute_new_\d+_cached_\d+|execute_diffusion_\d+_\d+x\d+"
    r"|step\[(?:DECODE|EXTEND|PREFILL|MIXED|IDLE|TARGET_VERIFY|DRAFT_EXTEND(?:_V2)?)"
    r"(?: (?:bs|toks|c|g|[cg]_s[qk]|[cg]_sqs[qk])=\d+)*\]"
    r"|(?:eager_)?(?:prefill|decode)\[bs=\d+(?:/\d+)?"
    r"(?: (?:tok|p|d|spec|sk|sqs[qk]|tbo)=\d+)*\]"
    r"|(?:\[Executor\] )?_forward_step(?: \d+)?: \d+ ctx reqs, (?:\d+ ctx tokens, )?\d+ gen reqs"
    r"|(?:GPU|stream|thread) ?\d{1,10} ?(?: \(python3?\))?",
    re.ASCII,
)
_BACKENDS = "|".join(BACKENDS)
_COLLECTIVE = re.compile(rf"(?:(?:{_BACKENDS}):)?(_?[a-z0-9_]{{4,40}})")
_SEND = re.compile(rf"(?:{_BACKENDS}):(?:send|recv) \d{{1,6}}(?:->|<-)\d{{1,6}}")
_VERSIONED = re.compile(r"((?:cuda|cu|hip)[A-Z]\w+?)(?:_v\d{1,5})?(?:_ptsz|_ptds)?", re.ASCII)


@cache
def listed_names() -> frozenset[str]:
    """Return every name of the lists."""
    text = files("htk.base.names").joinpath("public.txt").read_text(encoding="utf-8")
    listed = (line for line in text.splitlines() if not line.startswith("#"))
    return frozenset((*listed, *_PHASES, *_CATEGORIES, *_TYPES, *_WORDS))


def is_public(name: str) -> bool:
    """Return whether a name tells nothing of whose trace it stands in."""
    listed = listed_names()
    if name in listed or _PUT_TOGETHER.fullmatch(name) or _SEND.fullmatch(name):
        return True
    if match := _VERSIONED.fullmatch(name):
        return match[1] in listed
    if match := _COLLECTIVE.fullmatch(name):
        return collective_type(match[1]) != "unknown"
    return name.startswith("nccl") and dtype_bytes(name) is not None and name[4:].isalnum()
