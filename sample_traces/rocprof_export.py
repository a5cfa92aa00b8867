"""Writes what rocprofv3 writes, of a job that is made up: as JSON, databases, a Perfetto trace.

python sample_traces/rocprof_export.py    # rocprof_json/, rocpd/ and rocprof_perfetto/

One process drives GPU 1 of a node with two; two steps, each of a copy, two products, an all-reduce
and a copy back. Times are nanoseconds since the machine booted.
"""

import json
import sqlite3
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
BOOT_NS = 63_000_000_000_000
PID, MAIN, OTHER = 908, 908, 973
SYMBOLS = {  # kernel -> name as the compiler made it, vector registers
    7: ("void gemm<float>(float*) [clone .kd]", (64, 8)),
    8: ("ncclDevKernel_Generic_1(ncclDevKernelArgsStorage<4096ul>)", (32, 0)),
}
CPU, GPU_0, GPU_1 = 40, 42, 41  # agents; their numbers tell nothing of their order
KINDS: dict[str, list[str]] = {
    "NONE": [],
    "HIP_RUNTIME_API": ["hipLaunchKernel", "hipMemcpyAsync", "hipStreamSynchronize"],
    "MARKER_CORE_API": ["roctxMarkA", "roctxRangePushA", "roctxThreadRangeA"],
    "MEMORY_COPY": ["MEMORY_COPY_NONE", "MEMORY_COPY_HOST_TO_DEVICE", "MEMORY_COPY_DEVICE_TO_HOST"],
    "KERNEL_DISPATCH": ["KERNEL_DISPATCH_NONE", "", "KERNEL_DISPATCH_COMPLETE"],
    "RCCL_API": ["ncclAllReduce", "ncclGroupStart"],
    "MARKER_CORE_RANGE_API": ["", "", "roctxThreadRangeA"],
}
Row = dict[str, Any]


def job() -> dict[str, list[Row]]:
    """Dispatches, copies and calls, with the id that a call shares with what it launched."""
    rows: dict[str, list[Row]] = {"kernel": [], "copy": [], "call": []}

    def call(kind: str, name: str, begin: int, end: int, corr: int, **more: Any) -> None:
        rows["call"].append(
            {"kind": kind, "name": name, "start": begin, "end": end, "corr": corr}
            | {"thread": MAIN, "message": None}
            | more
        )

    def kernel(symbol: int, begin: int, end: int, corr: int, stream: int) -> None:
        rows["kernel"].append(
            {"symbol": symbol, "start": begin, "end": end, "corr": corr, "stream": stream}
        )

    def copy(name: str, ends: tuple[int, int], begin: int, end: int, corr: int, size: int) -> None:
        rows["copy"].append(
            {"name": name, "from": ends[0], "to": ends[1], "start": begin, "end": end}
            | {"corr": corr, "size": size, "stream": 3}
        )

    hip, ranged = "HIP_RUNTIME_API", "MARKER_CORE_RANGE_API"
    for k in range(2):
        begin, corr = BOOT_NS + 100_000 * k, 100 * k + 1
        marked = {"message": f"step {k + 3}"}
        call(ranged, "roctxThreadRangeA", begin, begin + 90_000, corr + 90, **marked)
        call("MARKER_CORE_API", "roctxRangePushA", begin, begin + 100, corr + 91, **marked)
        call(hip, "hipMemcpyAsync", begin + 1_000, begin + 2_000, corr)
        copy("MEMORY_COPY_HOST_TO_DEVICE", (CPU, GPU_1), begin + 3_000, begin + 5_000, corr, 8_000)
        call(hip, "hipLaunchKernel", begin + 4_000, begin + 5_000, corr + 1)
        kernel(7, begin + 6_000, begin + 16_000, corr + 1, 3)
        call(hip, "hipLaunchKernel", begin + 5_500, begin + 6_500, corr + 2, thread=OTHER)
        kernel(7, begin + 12_000, begin + 20_000, corr + 2, 4)
        call("RCCL_API", "ncclAllReduce", begin + 7_000, begin + 9_000, corr + 3)
        call(hip, "hipLaunchKernel", begin + 7_500, begin + 8_500, corr + 4)
        kernel(8, begin + 18_000, begin + 40_000, corr + 4, 5)
        call(hip, "hipMemcpyAsync", begin + 10_000, begin + 11_000, corr + 5)
        copy(
            "MEMORY_COPY_DEVICE_TO_HOST", (GPU_1, CPU), begin + 41_000, begin + 42_000, corr + 5, 4
        )
        call(hip, "hipStreamSynchronize", begin + 12_000, begin + 43_000, corr + 6)
    return rows


def as_json(path: Path) -> None:
    rows, kinds = job(), list(KINDS)

    def numbered(kind: str, name: str) -> Row:
        return {"kind": kinds.index(kind), "operation": KINDS[kind].index(name)}

    def common(row: Row) -> Row:
        return {
            "thread_id": row.get("thread", MAIN),
            "correlation_id": {"internal": row["corr"], "external": 0},
            "start_timestamp": row["start"],
            "end_timestamp": row["end"],
        }

    def axes(x: int) -> Row:
        return {"x": x, "y": 1, "z": 1}

    sorts = {"HIP_RUNTIME_API": "hip_api", "RCCL_API": "rccl_api"}
    records: dict[str, list[Row]] = {"hsa_api": [], "hip_api": [], "marker_api": [], "rccl_api": []}
    for row in rows["call"]:
        sort = sorts.get(row["kind"], "marker_api")
        records[sort].append(numbered(row["kind"], row["name"]) | common(row))
    records["kernel_dispatch"] = [
        numbered("KERNEL_DISPATCH", "KERNEL_DISPATCH_COMPLETE")
        | common(row)
        | {"stream_id": {"handle": row["stream"]}}
        | {
            "dispatch_info": {
                "agent_id": {"handle": GPU_1},
                "queue_id": {"handle": 17},
                "kernel_id": row["symbol"],
                "group_segment_size": 512,
                "workgroup_size": axes(256),
                "grid_size": axes(1_000),
            }
        }
        for row in rows["kernel"]
    ]
    records["memory_copy"] = [
        numbered("MEMORY_COPY", row["name"])
        | common(row)
        | {"src_agent_id": {"handle": row["from"]}, "dst_agent_id": {"handle": row["to"]}}
        | {"bytes": row["size"], "stream_id": {"handle": row["stream"]}}
        for row in rows["copy"]
    ]
    symbols = [
        {
            "kernel_id": k,
            "formatted_kernel_name": n,
            "arch_vgpr_count": r[0],
            "accum_vgpr_count": r[1],
        }
        for k, (n, r) in SYMBOLS.items()
    ]
    gpus = [
        {"id": {"handle": h}, "type": kind, "logical_node_type_id": number, "cu_count": 256}
        | {"name": "gfx950", "product_name": "AMD Instinct MI350X" if kind == 2 else "AMD EPYC"}
        for h, kind, number in ((CPU, 1, 0), (GPU_1, 2, 1), (GPU_0, 2, 0))
    ]
    process = {
        "metadata": {"node": {"hostname": "node7"}, "pid": PID, "init_time": BOOT_NS},
        "agents": gpus,
        "strings": {
            "buffer_records": [{"kind": k, "operations": v} for k, v in KINDS.items()],
            "marker_api": [
                {"key": row["corr"], "value": row["message"]}
                for row in rows["call"]
                if row["message"]
            ],
        },
        "kernel_symbols": [{"kernel_id": 0, "formatted_kernel_name": 0}, *symbols],
        "buffer_records": records,
    }
    path.write_text(json.dumps({"rocprofiler-sdk-tool": [process]}))


_SCHEMA = {
    "string": "id string:TEXT",
    "info_node": "id hostname:TEXT",
    "info_process": "id nid pid environment:TEXT",
    "info_thread": "id pid tid",
    "info_agent": "id type:TEXT type_index name:TEXT product_name:TEXT",
    "info_kernel_symbol": (
        "id kernel_name:TEXT display_name:TEXT arch_vgpr_count accum_vgpr_count"
    ),
    "event": "id category_id stack_id extdata:TEXT",
    "region": "id nid pid tid start end name_id event_id",
    "kernel_dispatch": (
        "id nid pid tid agent_id kernel_id queue_id stream_id start end group_segment_size "
        "workgroup_size_x workgroup_size_y workgroup_size_z grid_size_x grid_size_y grid_size_z "
        "event_id"
    ),
    "memory_copy": (
        "id nid pid tid start end name_id dst_agent_id src_agent_id size queue_id stream_id "
        "event_id"
    ),
}


_IN_TRACK = ("nid", "pid", "tid", "agent_id", "queue_id", "stream_id")
_SCHEMA_4 = _SCHEMA | {
    "track": " ".join(("id", *_IN_TRACK)),
    "info_category": "id name:TEXT",
    **{
        table: " ".join(
            ["id", "track_id", *(c for c in _SCHEMA[table].split()[1:] if c not in _IN_TRACK)]
        )
        for table in ("region", "kernel_dispatch", "memory_copy")
    },
}


class Database:
    """A database that is being written; each run has tables of its own name."""

    def __init__(self, path: Path, *, fresh: bool = True, schema: int = 3) -> None:
        self.schema = schema
        self._tracks: dict[tuple[Any, ...], int] = {}
        if fresh:
            path.unlink(missing_ok=True)
        self.connection = sqlite3.connect(path)
        self.connection.execute("PRAGMA page_size = 1024")
        self.connection.execute("PRAGMA foreign_keys = OFF")

    def run(self, suffix: str, environment: Row, pid: int = PID, late: int = 0) -> None:
        """The job as one run; `late`: by how much all of it comes later."""
        for table, listed in (_SCHEMA_4 if self.schema == 4 else _SCHEMA).items():
            typed = [c.partition(":") for c in listed.split()]
            declared = ", ".join(f'"{n}" {kind or "INTEGER"}' for n, _, kind in typed)
            self.connection.execute(f'CREATE TABLE "rocpd_{table}{suffix}" ({declared})')
        self._strings: dict[str, int] = {}
        self._events, self._suffix = 0, suffix
        self.add("info_node", id=1, hostname="node7")
        self.add("info_process", id=5, nid=1, pid=pid, environment=json.dumps(environment))
        for number, thread in enumerate((MAIN, OTHER), 1):
            self.add("info_thread", id=number, pid=5, tid=thread)
        for number, kind, type_index in ((CPU, "CPU", 0), (GPU_1, "GPU", 1), (GPU_0, "GPU", 0)):
            product = "AMD Instinct MI350X" if kind == "GPU" else "AMD EPYC"
            self.add(
                "info_agent",
                id=number,
                type=kind,
                type_index=type_index,
                name="gfx950",
                product_name=product,
            )
        for symbol, (name, (own, accumulated)) in SYMBOLS.items():
            self.add(
                "info_kernel_symbol",
                id=symbol,
                kernel_name="_Z" + name,
                display_name=name,
                arch_vgpr_count=own,
                accum_vgpr_count=accumulated,
            )
        self._rows(late)

    def _rows(self, late: int) -> None:
        rows = job()
        for row in rows["call"]:
            message = json.dumps({"message": row["message"]} if row["message"] else {})
            self.add(
                "region",
                **self._span(row, row["kind"], late, message),
                name_id=self.string(row["name"]),
                tid=1 if row["thread"] == MAIN else 2,
            )
        for row in rows["kernel"]:
            self.add(
                "kernel_dispatch",
                **self._span(row, "KERNEL_DISPATCH", late),
                tid=1,
                agent_id=GPU_1,
                kernel_id=row["symbol"],
                queue_id=17,
                stream_id=row["stream"],
                group_segment_size=512,
                grid_size_x=1_000,
                workgroup_size_x=256,
                **{f"{w}_size_{a}": 1 for w in ("grid", "workgroup") for a in "yz"},
            )
        for row in rows["copy"]:
            self.add(
                "memory_copy",
                **self._span(row, "MEMORY_COPY", late),
                tid=1,
                name_id=self.string(row["name"]),
                src_agent_id=row["from"],
                dst_agent_id=row["to"],
                size=row["size"],
                stream_id=row["stream"],
            )

    def _span(self, row: Row, category: str, late: int, extdata: str = "{}") -> Row:
        self._events += 1
        self.add(
            "event",
            id=self._events,
            category_id=self.category(category),
            stack_id=row["corr"],
            extdata=extdata,
        )
        span = {"start": row["start"] + late, "end": row["end"] + late}
        return span | {"nid": 1, "pid": 5, "event_id": self._events}

    def category(self, name: str) -> int:
        if self.schema == 3:
            return self.string(name)
        kinds = list(KINDS)
        if name not in self._strings:  # numbers of their own, which strings have too
            self._strings[name] = kinds.index(name) + 1
            self.add("info_category", id=self._strings[name], name=name)
        return self._strings[name]

    def _track(self, values: Row) -> int:
        """The track that has what a row of schema 3 says itself."""
        key = tuple(values.pop(name, None) for name in _IN_TRACK)
        if key not in self._tracks:
            self._tracks[key] = len(self._tracks) + 100
            self.add("track", id=self._tracks[key], **dict(zip(_IN_TRACK, key, strict=True)))
        return self._tracks[key]

    def string(self, value: str) -> int:
        if value not in self._strings:
            self._strings[value] = len(self._strings) + 1
            self.add("string", id=self._strings[value], string=value)
        return self._strings[value]

    def add(self, table: str, **values: Any) -> None:
        if self.schema == 4 and table in ("region", "kernel_dispatch", "memory_copy"):
            values["track_id"] = self._track(values)
        names = ", ".join(f'"{name}"' for name in values)
        marks = ", ".join("?" * len(values))
        self.connection.execute(
            f'INSERT INTO "rocpd_{table}{self._suffix}" ({names}) VALUES ({marks})',
            tuple(values.values()),
        )

    def close(self) -> None:
        self.connection.execute("CREATE VIEW top_kernels AS SELECT abs(-9223372036854775808)")
        self.connection.commit()
        self.connection.close()


def as_database(path: Path, schema: int = 3) -> None:
    """One run, as rank 1 of 2."""
    database = Database(path, schema=schema)
    database.run("_0a1b", {"RANK": "1", "WORLD_SIZE": "2"})
    database.close()


_MARKER_KINDS = {"MARKER_CORE_API": 7, "MARKER_CORE_RANGE_API": 32}
_SORTS = {"HIP_RUNTIME_API": "hip_api", "RCCL_API": "rccl_api"}
_OF_AGENT = {CPU: "CPU-0", GPU_0: "GPU-0", GPU_1: "GPU-1"}


class Perfetto:
    """Packets of one sequence, as Perfetto's SDK writes them: names are interned."""

    def __init__(self) -> None:
        self.data = bytearray()
        self._interned: dict[int, dict[str, int]] = {1: {}, 2: {}, 3: {}}
        thread = _field(1, PID) + _field(2, MAIN)
        self.packet(_field(13, 1) + _field(60, _field(1, 77) + _field(4, thread)))

    def packet(self, body: bytes) -> None:
        self.data += _field(1, _field(10, 3) + body)

    def event(self, category: str, name: str, values: Row) -> None:
        new = b""
        event = _field(9, 1) + _field(11, 77)
        for table, number, text in ((1, 3, category), (2, 10, name)):
            code, definition = self._number(table, text)
            event, new = event + _field(number, code), new + definition
        for key, value in values.items():
            code, definition = self._number(3, key)
            new += definition
            event += _field(4, _field(1, code) + _field(6 if isinstance(value, str) else 3, value))
        stamp = _field(8, values["begin_ns"])
        self.packet(stamp + _field(13, 2) + (_field(12, new) if new else b"") + _field(11, event))
        end = _field(11, _field(9, 2) + _field(11, 77))
        self.packet(_field(8, values["end_ns"]) + _field(13, 2) + end)

    def _number(self, table: int, text: str) -> tuple[int, bytes]:
        codes = self._interned[table]
        if text in codes:
            return codes[text], b""
        codes[text] = len(codes) + 1
        return codes[text], _field(table, _field(1, codes[text]) + _field(2, text))


def _field(number: int, value: int | bytes | str) -> bytes:
    """A field of a protocol buffer: a number, or a text or message with its length."""
    if isinstance(value, int):
        return _varint(number << 3) + _varint(value)
    data = value.encode() if isinstance(value, str) else value
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def as_perfetto(path: Path) -> None:
    trace, rows = Perfetto(), job()

    def common(row: Row) -> Row:
        times = {"begin_ns": row["start"], "end_ns": row["end"]}
        return times | {"tid": row.get("thread", MAIN), "corr_id": row["corr"]}

    for row in rows["call"]:
        kind = _MARKER_KINDS.get(row["kind"], 5)
        values = common(row) | {"kind": kind, "operation": 1}
        trace.event(_SORTS.get(row["kind"], "marker_api"), row["message"] or row["name"], values)
    for row in rows["copy"]:
        agents = {"src_agent": _OF_AGENT[row["from"]], "dst_agent": _OF_AGENT[row["to"]]}
        more = agents | {"copy_bytes": row["size"], "stream_ID": row["stream"]}
        trace.event("memory_copy", row["name"], common(row) | more)
    for row in rows["kernel"]:
        name, (own, accumulated) = SYMBOLS[row["symbol"]]
        more = {"agent": _OF_AGENT[GPU_1], "agent_type": "GPU", "queue": 16, "LDS_Block_Size": 512}
        more |= {"VGPR_Count": own, "Accum_VGPR_Count": accumulated, "stream_ID": row["stream"]}
        trace.event("kernel_dispatch", name, common(row) | more | {"grid_size": 1_000})
    path.write_bytes(trace.data)


if __name__ == "__main__":
    for folder in ("rocprof_json", "rocpd", "rocprof_perfetto"):
        (HERE / folder).mkdir(exist_ok=True)
    as_json(HERE / "rocprof_json" / "two_steps.json")
    as_database(HERE / "rocpd" / "two_steps.db")
    as_perfetto(HERE / "rocprof_perfetto" / "two_steps.pftrace")
