"""Writes databases as `nsys export --type sqlite` does, of a job that is made up.

python sample_traces/nsight_export.py        # writes nsight/two_ranks.sqlite

Two processes on one node, each with a GPU, that do the same: two steps of a product, its backward,
an all-reduce, and a message to the other. Correlation ids are the same in both, as they may be.
Times are nanoseconds from the session's start.
"""

import json
import sqlite3
import struct
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
SESSION_NS = 1_750_000_000_000_000_000
COMMUNICATOR = 0xF00D_0000_0000_0001  # more than a signed number holds
RUNTIME, PUSHED, STARTED, MARK = 0, 59, 60, 34

_KERNEL = "start end deviceId contextId streamId correlationId globalPid demangledName shortName "
_KERNEL += "mangledName registersPerThread gridX gridY gridZ blockX blockY blockZ "
_KERNEL += "staticSharedMemory dynamicSharedMemory graphNodeId graphId"
_PLACE = "start end deviceId contextId streamId correlationId globalPid "
_TABLES = {
    "StringIds": "id value:TEXT",
    "CUPTI_ACTIVITY_KIND_KERNEL": _KERNEL,
    "CUPTI_ACTIVITY_KIND_MEMCPY": _PLACE + "bytes copyKind srcKind dstKind graphNodeId",
    "CUPTI_ACTIVITY_KIND_MEMSET": _PLACE + "value bytes memKind graphNodeId",
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": _PLACE + "graphId graphExecId",
    "CUPTI_ACTIVITY_KIND_RUNTIME": "start end eventClass globalTid correlationId nameId",
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": _PLACE + "syncType eventId eventSyncId",
    "CUPTI_ACTIVITY_KIND_CUDA_EVENT": (
        "timestamp deviceId contextId streamId correlationId globalPid eventId eventSyncId"
    ),
    "NVTX_EVENTS": (
        "start end eventType rangeId text:TEXT globalTid textId domainId jsonTextId "
        "jsonText:TEXT binaryData:TEXT"
    ),
    "NVTX_PAYLOAD_SCHEMA_ENTRIES": "domainId schemaId idx flags type name:TEXT offset",
    "PROFILER_OVERHEAD": "start end globalTid nameId overheadType",
    "ENUM_CUPTI_OVERHEAD_TYPE": "id name:TEXT label:TEXT",
    "ENUM_CUDA_MEM_KIND": "id name:TEXT label:TEXT",
    "ENUM_CUDA_MEMCPY_OPER": "id name:TEXT label:TEXT",
    "META_DATA_CAPTURE": "name:TEXT value:TEXT",
    "META_DATA_EXPORT": "name:TEXT value:TEXT",
    "TARGET_INFO_SESSION_START_TIME": "utcEpochNs utcTime:TEXT",
    "TARGET_INFO_SYSTEM_ENV": "name:TEXT value:TEXT",
    "TARGET_INFO_GPU": "id name:TEXT totalMemory smCount computeMajor computeMinor",
}
# What older exports lack: tables, and columns of any table.
_LACKS: dict[int, tuple[set[str], set[str]]] = {
    2026: (set(), set()),
    2024: ({"CUPTI_ACTIVITY_KIND_CUDA_EVENT"}, {"binaryData", "graphId", "eventSyncId"}),
    2022: (
        {
            "CUPTI_ACTIVITY_KIND_CUDA_EVENT",
            "CUPTI_ACTIVITY_KIND_GRAPH_TRACE",
            "NVTX_PAYLOAD_SCHEMA_ENTRIES",
            "ENUM_CUPTI_OVERHEAD_TYPE",
            "ENUM_CUDA_MEM_KIND",
            "ENUM_CUDA_MEMCPY_OPER",
            "META_DATA_EXPORT",
            "META_DATA_CAPTURE",
        },
        {"binaryData", "jsonTextId", "graphId", "mangledName", "eventSyncId", "domainId"},
    ),
}
_SCHEMAS = {  # of NCCL's payloads: fields with type (NVTX's number) and offset
    1: (("NCCL communicator ID", 18, 0), ("No. of ranks", 5, 8), ("Rank", 5, 12)),
    2: (("NCCL communicator ID", 18, 0), ("Message size [bytes]", 22, 8)),
    3: (
        ("NCCL communicator ID", 18, 0),
        ("Message size [bytes]", 22, 8),
        ("Peer rank", 5, 16),
    ),
}
_PACKED = {1: "<Qii8x", 2: "<QQ", 3: "<QQi4x"}
_SPACES = ("PAGEABLE", "PINNED", "DEVICE", "ARRAY", "MANAGED")
_DIRECTIONS = ("UNKNOWN", "HTOD", "DTOH", "HTOA", "ATOH", "ATOA", "ATOD", "DTOA", "DTOD")


class Export:
    """A database that is being written, as of a year."""

    def __init__(self, path: Path, year: int = 2026) -> None:
        self.year = year
        path.unlink(missing_ok=True)
        self.connection = sqlite3.connect(path)
        self.connection.execute("PRAGMA page_size = 1024")
        absent, columns = _LACKS[year]
        self.columns: dict[str, list[str]] = {}
        for table, listed in _TABLES.items():
            if table in absent:
                continue
            typed = [c.partition(":") for c in listed.split() if c.split(":")[0] not in columns]
            self.columns[table] = [name for name, _, _ in typed]
            declared = ", ".join(f'"{n}" {kind or "INTEGER"}' for n, _, kind in typed)
            self.connection.execute(f"CREATE TABLE {table} ({declared})")
        self._strings: dict[str, int] = {}

    def add(self, table: str, **values: Any) -> None:
        """A row; what the year's schema lacks is left out."""
        if table not in self.columns:
            return
        kept = {name: value for name, value in values.items() if name in self.columns[table]}
        names = ", ".join(f'"{name}"' for name in kept)
        marks = ", ".join("?" * len(kept))
        self.connection.execute(
            f"INSERT INTO {table} ({names}) VALUES ({marks})", tuple(kept.values())
        )

    def string(self, value: str) -> int:
        if value not in self._strings:
            self._strings[value] = len(self._strings) + 100
            self.add("StringIds", id=self._strings[value], value=value)
        return self._strings[value]

    def header(self, arguments: Sequence[str] = (), environment: Iterable[str] = ()) -> None:
        """Who recorded it, and the enumerations."""
        self.add("TARGET_INFO_SESSION_START_TIME", utcEpochNs=SESSION_NS, utcTime="2025-06-15")
        self.add("TARGET_INFO_SYSTEM_ENV", name="Hostname", value="node7")
        self.add("META_DATA_EXPORT", name="EXPORT_PRODUCT_VERSION", value=f"{self.year}.1")
        for device in range(2):
            self.add(
                "TARGET_INFO_GPU",
                id=device,
                name="NVIDIA H100 80GB HBM3",
                totalMemory=85_031_714_816,
                smCount=132,
                computeMajor=9,
                computeMinor=0,
            )
        for k, argument in enumerate(arguments):
            name = "PROCESS_0:COMMAND" if k == 0 else f"PROCESS_0:ARGUMENT_{k - 1}"
            self.add("META_DATA_CAPTURE", name=name, value=argument)
        for variable in environment:
            self.add("META_DATA_CAPTURE", name="PROCESS_0:ENVIRONMENT_VARIABLE", value=variable)
        for k, name in enumerate(_SPACES):
            self.add("ENUM_CUDA_MEM_KIND", id=k, name=f"CUDA_MEMOPR_MEMORY_KIND_{name}")
        for k, name in enumerate(_DIRECTIONS):
            self.add("ENUM_CUDA_MEMCPY_OPER", id=k, name=f"CUDA_MEMCPY_KIND_{name}")
        self.add("ENUM_CUPTI_OVERHEAD_TYPE", id=3, name="OVERHEAD_CUPTI_BUFFER_FLUSH")
        for schema, fields in _SCHEMAS.items():
            for idx, (name, kind, offset) in enumerate(fields):
                self.add(
                    "NVTX_PAYLOAD_SCHEMA_ENTRIES",
                    domainId=1,
                    schemaId=schema,
                    idx=idx,
                    type=kind,
                    name=name,
                    offset=offset or None,
                )

    def close(self) -> None:
        self.connection.commit()
        self.connection.close()


class Process:
    """Events of one process of an export."""

    def __init__(self, export: Export, pid: int, device: int) -> None:
        self.export, self.pid, self.device = export, pid, device
        self.process = 1 << 48 | pid << 24
        self.context = device + 1

    def thread(self, number: int = 0) -> int:
        return self.process | (self.pid + number)

    def call(self, name: str, start: int, end: int, correlation: int, thread: int = 0) -> None:
        self.export.add(
            "CUPTI_ACTIVITY_KIND_RUNTIME",
            start=start,
            end=end,
            eventClass=RUNTIME,
            globalTid=self.thread(thread),
            correlationId=correlation,
            nameId=self.export.string(name),
        )

    def kernel(
        self, name: str, start: int, end: int, correlation: int, stream: int = 7, **more: Any
    ) -> None:
        defaults: dict[str, Any] = dict.fromkeys(("gridX", "gridY", "gridZ"), 1)
        defaults |= dict.fromkeys(("blockY", "blockZ", "staticSharedMemory"), 1)
        defaults |= {"blockX": 128, "dynamicSharedMemory": 64, "registersPerThread": 32}
        short = name.partition("<")[0].partition("(")[0].rpartition("::")[2]
        self.export.add(
            "CUPTI_ACTIVITY_KIND_KERNEL",
            **self._place(start, end, correlation, stream),
            demangledName=self.export.string(name),
            shortName=self.export.string(short),
            **(defaults | more),
        )

    def copy(
        self, size: int, start: int, end: int, correlation: int, kind: int = 1, source: int = 1
    ) -> None:
        self.export.add(
            "CUPTI_ACTIVITY_KIND_MEMCPY",
            **self._place(start, end, correlation, 7),
            bytes=size,
            copyKind=kind,
            srcKind=source,
            dstKind=2,
        )

    def set(self, size: int, start: int, end: int, correlation: int) -> None:
        self.export.add(
            "CUPTI_ACTIVITY_KIND_MEMSET",
            **self._place(start, end, correlation, 7),
            bytes=size,
            memKind=2,
        )

    def graph(self, number: int, start: int, end: int, correlation: int) -> None:
        self.export.add(
            "CUPTI_ACTIVITY_KIND_GRAPH_TRACE",
            **self._place(start, end, correlation, 7),
            graphId=number,
            graphExecId=number + 1,
        )

    def sync(self, kind: int, start: int, end: int, correlation: int, **more: Any) -> None:
        """As exports have it: the device is 0 whichever it was, the context is right."""
        columns = self._place(start, end, correlation, more.pop("stream", 0xFFFFFFFF))
        self.export.add(
            "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION",
            **(columns | {"deviceId": 0}),
            syncType=kind,
            **more,
        )

    def range(self, text: str | None, start: int, end: int | None, **more: Any) -> None:
        thread = self.thread(more.pop("thread", 0))
        kind = more.pop("kind", PUSHED)
        self.export.add(
            "NVTX_EVENTS",
            start=start,
            end=end,
            eventType=kind,
            text=text,
            globalTid=thread,
            domainId=more.pop("domain", 0),
            **more,
        )

    def nccl(self, name: str, start: int, end: int, schema: int = 0, *values: int) -> None:
        """A call of NCCL, with its payload as the year's export has it."""
        payload: dict[str, Any] = {}
        if schema:
            data = struct.pack(_PACKED[schema], COMMUNICATOR, *values)
            header = struct.pack("<IIIIQQ", 1, 0, schema, 0, len(data), 32 + len(data))
            names = [field for field, _, _ in _SCHEMAS[schema]]
            text = json.dumps(dict(zip(names, (COMMUNICATOR, *values), strict=True)))
            payload = {"binaryData": header + data}
            if self.export.year == 2024:
                payload = {"jsonTextId": self.export.string(text)}
            if self.export.year == 2022:
                payload = {"jsonText": text}
        registered = self.export.string(name)
        self.range(None, start, end, textId=registered, domain=1, **payload)

    def _place(self, start: int, end: int, correlation: int, stream: int) -> dict[str, Any]:
        return {
            "start": start,
            "end": end,
            "deviceId": self.device,
            "contextId": self.context,
            "streamId": stream,
            "correlationId": correlation,
            "globalPid": self.process,
        }


ALL_REDUCE = (
    "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<(unsigned long)4096>)"
)
SEND_RECV = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<(unsigned long)4096>)"
PRODUCT = "void cutlass::Kernel2<cutlass_80_tensorop_s16816gemm_f16_64x64>(T1::Params)"
SUM = "void at::native::vectorized_elementwise_kernel<(int)4, at::native::AddFunctor<float>>(int)"


def steps(process: Process, rank: int, late: int = 0) -> None:
    """Two steps; `late`: by how much this process starts its all-reduces later."""
    process.nccl("ncclCommInitRankConfig", 1_000, 9_000, 1, 2, rank)
    process.kernel(SUM, 10_000, 12_000, 3)  # launched before the recording
    for k in range(2):
        begin, corr, op = 100_000 + 100_000 * k, 10 + 20 * k, 50 + 10 * k
        process.range(f"step {k + 4}", begin, begin + 90_000)
        process.range("forward", begin + 1_000, begin + 30_000)
        process.range(f"aten::linear, seq = {k + 7}, op_id = {op}", begin + 2_000, begin + 20_000)
        process.range(
            f"aten::mm, seq = {k + 7}, op_id = {op + 1}, sizes = [[64, 32], [32, 16]], "
            f"input_op_ids = [({op},0), (,-1)]",
            begin + 3_000,
            begin + 19_000,
        )
        process.call("cudaMemcpyAsync_v3020", begin + 3_500, begin + 4_500, corr)
        process.copy(4_096, begin + 5_000, begin + 6_000, corr)
        process.call("cuLaunchKernelEx", begin + 6_000, begin + 7_000, corr + 1)
        process.kernel(PRODUCT, begin + 8_000, begin + 18_000 + late // 2, corr + 1, gridX=8)
        process.call("cudaLaunchKernel_v7000", begin + 9_000, begin + 10_000, corr + 2)
        process.kernel(SUM, begin + 30_000, begin + 33_000, corr + 2)
        backward = f"autograd::engine::evaluate_function: MmBackward0, seq = {k + 7}"
        process.range(f"{backward}, op_id = {op + 2}", begin + 31_000, begin + 45_000, thread=1)
        process.call("cudaLaunchKernel_v7000", begin + 32_000, begin + 33_000, corr + 3, thread=1)
        process.kernel(PRODUCT, begin + 34_000, begin + 50_000, corr + 3)
        process.call("cudaMemsetAsync_v3020", begin + 36_000, begin + 36_500, corr + 4, thread=1)
        process.set(256, begin + 50_000, begin + 50_500, corr + 4)
        _communicate(process, begin, corr, rank, late)


def _communicate(process: Process, begin: int, corr: int, rank: int, late: int) -> None:
    """An all-reduce, and a message to and from the other rank in one group."""
    process.range(f"nccl:all_reduce, op_id = {begin}", begin + 50_500 + late, begin + 56_000 + late)
    process.nccl("ncclAllReduce", begin + 51_000 + late, begin + 55_000 + late, 2, 1 << 20)
    process.call(
        "cudaLaunchKernelExC_v11060", begin + 52_000 + late, begin + 53_000 + late, corr + 5
    )
    process.kernel(ALL_REDUCE, begin + 54_000 + late, begin + 74_000, corr + 5, stream=20)
    process.nccl("ncclGroupStart", begin + 60_000, begin + 60_100)
    process.nccl("ncclSend", begin + 60_200, begin + 60_300, 3, 3_000, 1 - rank)
    process.nccl("ncclRecv", begin + 60_400, begin + 60_500, 3, 5_000, 1 - rank)
    process.nccl("ncclGroupEnd", begin + 60_600, begin + 64_000)
    process.call("cudaLaunchKernelExC_v11060", begin + 61_000, begin + 62_000, corr + 6)
    process.kernel(SEND_RECV, begin + 75_000, begin + 80_000, corr + 6, stream=20)
    process.call("cudaStreamWaitEvent_v3020", begin + 65_000, begin + 65_400, corr + 7)
    process.sync(2, begin + 65_000, begin + 65_400, corr + 7, stream=7, eventId=5, eventSyncId=corr)
    process.call("cudaEventRecord_v3020", begin + 64_000, begin + 64_200, corr + 8)
    process.export.add(
        "CUPTI_ACTIVITY_KIND_CUDA_EVENT",
        timestamp=0,
        deviceId=process.device,
        contextId=process.context,
        streamId=20,
        correlationId=corr + 8,
        globalPid=process.process,
        eventId=5,
        eventSyncId=corr,
    )
    process.call("cudaStreamSynchronize_v3020", begin + 66_000, begin + 80_500, corr + 9)
    process.sync(3, begin + 66_000, begin + 80_400, corr + 9, stream=7)


def two_ranks(path: Path, year: int = 2026) -> None:
    """The sample: rank 1's all-reduces begin 3 us later."""
    export = Export(path, year)
    export.header(["torchrun", "--nnodes=1", "--nproc_per_node=2", "train.py"])
    for rank, pid in enumerate((4001, 4002)):
        process = Process(export, pid, rank)
        steps(process, rank, late=3_000 * rank)
        export.add(
            "PROFILER_OVERHEAD",
            start=290_000,
            end=295_000,
            globalTid=process.thread(2),
            nameId=export.string("CUPTI buffer"),
            overheadType=3,
        )
    Process(export, 4000, 0).range("launcher", 500, 600)  # a process without GPU work
    export.close()


if __name__ == "__main__":
    (HERE / "nsight").mkdir(exist_ok=True)
    two_ranks(HERE / "nsight" / "two_ranks.sqlite")
