"""A folder as torch_npu's profiler leaves it, of a job whose every microsecond is known."""

import csv
import json
import sqlite3
from pathlib import Path
from typing import Any, NamedTuple

BEGAN_US = 1_760_000_000_000_000
PID, TID, ENGINE_TID = 4000, 4001, 4002
RANKS = (3, 7)  # of the group, of which the first is recorded


class Task(NamedTuple):
    """What an NPU does, and the operator that launched it; in whole µs."""

    name: str
    kind: str  # compute, comm, copy
    start: int
    length: int
    operator: str
    elements: int = 0


# Two steps: collectives beside products, alone, and gaps.
STEPS = ((1, 0, 400), (2, 400, 900))
TASKS = (
    Task("aclnnMatmul_MatMulV2", "compute", 20, 100, "aten::mm"),
    Task("hcom_allReduce__501_0_1", "comm", 80, 90, "c10d::allreduce_", 1024),
    Task("MEMCPY_ASYNC", "copy", 200, 30, "aten::copy_", 4096),
    Task("aclnnMatmul_MatMulV2", "compute", 300, 80, "aten::mm"),
    Task("aclnnAdd_AddAiCore_Add", "compute", 420, 50, "aten::add"),
    Task("hcom_allGather__501_1_1", "comm", 460, 240, "c10d::_allgather_base_", 2048),
    Task("aclnnMatmul_MatMulV2", "compute", 600, 60, "aten::mm"),
    Task("aclnnAdd_AddAiCore_Add", "compute", 760, 40, "aten::add"),
)


def moments(*kinds: str) -> set[int]:
    """Return the microseconds in which anything of some kinds runs, one by one."""
    return {
        moment
        for task in TASKS
        if task.kind in kinds
        for moment in range(task.start, task.start + task.length)
    }


def sums() -> dict[str, int]:
    """Return what the profiler's own table sums up of the whole, in µs."""
    compute, comm = moments("compute"), moments("comm")
    busy = compute | comm
    window = range(min(busy), max(busy) + 1)
    return {
        "Computing": len(compute),
        "Communication(Not Overlapped)": len(comm - compute),
        "Overlapped": len(comm & compute),
        "Communication": len(comm),
        "Free": len(set(window) - busy),
        "Stage": len(window),
    }


def write_folder(folder: Path, *, texts: bool = True, database: bool = True) -> Path:
    """Write HOST_ascend_pt with one or both exports, and its tables; return it."""
    top = folder / "host_4000_20260101_ascend_pt"
    output = top / "ASCEND_PROFILER_OUTPUT"
    output.mkdir(parents=True)
    (top / f"profiler_info_{RANKS[0]}.json").write_text("{}")
    raw = top / "PROF_000001_2026_ABC/mindstudio_profiler_output"
    raw.mkdir(parents=True)
    if texts:
        (output / "trace_view.json").write_text(json.dumps(timeline()))
        (raw / "msprof_20260101.json").write_text(json.dumps(timeline()))
    if database:
        _write_database(output / f"ascend_pytorch_profiler_{RANKS[0]}.db")
        sqlite3.connect(output / "analysis.db").execute("CREATE TABLE CommAnalyzerTime (a)")
    for name in ("communication.json", "communication_matrix.json"):
        (output / name).write_text(json.dumps({"step1": {"p2p": {}, "collective": {}}}))
    with (output / "step_trace_time.csv").open("w", newline="") as file:
        table = csv.DictWriter(file, ["Device_id", "Step", *sums()])
        table.writeheader()
        table.writerow({"Device_id": 0, "Step": "", **sums()})
    with (output / "kernel_details.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["Name", "Start Time(us)", "Duration(us)"])
        rows.writerows([t.name, f"{BEGAN_US + t.start}.000\t", t.length] for t in TASKS)
    return top


def timeline() -> list[dict[str, Any]]:
    """Return the events of `trace_view.json`."""
    events: list[dict[str, Any]] = [
        {"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": name}}
        for pid, name in ((PID, "python3"), (2, "CANN"), (3, "Ascend Hardware"), (4, "HCCL"))
    ]
    events.append(_named_thread(4, 12, "Group 0 Communication"))
    for step, start, end in STEPS:
        events.append(_event(f"ProfilerStep#{step}", PID, TID, start, end - start, cat="cpu_op"))
    for number, task in enumerate(TASKS, 1):
        launched = task.start - 10
        lane = (4, 12) if task.kind == "comm" else (3, 2)
        arguments = {"Task Type": "MEMCPY_ASYNC" if task.kind == "copy" else "AI_CORE"}
        events += [
            _event(task.operator, PID, TID, launched - 5, 8, cat="cpu_op"),
            _event("Node@launch", 2, ENGINE_TID, launched, 2),
            _event(task.name, *lane, task.start, task.length, args=arguments),
        ]
        for cat, start in (("HostToDevice", (2, ENGINE_TID, launched)),
                           ("async_npu", (PID, TID, launched - 5))):  # fmt: skip
            for phase, (pid, tid, moment) in (("s", start), ("f", (*lane, task.start))):
                arrow = {"ph": phase, "cat": cat, "id": number, "name": cat}
                events.append({**arrow, "pid": pid, "tid": tid, "ts": f"{BEGAN_US + moment}.000"})
    return events


def _event(name: str, pid: int, tid: int, start: int, length: int, **more: Any) -> dict[str, Any]:
    stamp = f"{BEGAN_US + start}.000"
    return {"ph": "X", "name": name, "pid": pid, "tid": tid, "ts": stamp, "dur": length, **more}


def _named_thread(pid: int, tid: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "args": {"name": name}}


_TABLES = {
    "STRING_IDS": "id, value",
    "ENUM_API_TYPE": "id, name",
    "ENUM_HCCL_DATA_TYPE": "id, name",
    "ENUM_MEMCPY_OPERATION": "id, name",
    "META_DATA": "name, value",
    "RANK_DEVICE_MAP": "rankId, deviceId",
    "CONNECTION_IDS": "id, connectionId",
    "PYTORCH_API": "startNs, endNs, globalTid, connectionId, name, sequenceNumber, fwdThreadId,"
    " inputDtypes, inputShapes, callchainId, type",
    "CANN_API": "startNs, endNs, type, globalTid, connectionId, name",
    "TASK": "startNs, endNs, deviceId, connectionId, globalTaskId, globalPid, taskType, contextId,"
    " streamId, taskId, modelId",
    "COMPUTE_TASK_INFO": "name, globalTaskId, taskType, opType, inputShapes",
    "COMMUNICATION_TASK_INFO": "name, globalTaskId, taskType",
    "COMMUNICATION_OP": "opName, startNs, endNs, connectionId, groupName, opId, count, dataType,"
    " opType",
    "MEMCPY_INFO": "globalTaskId, size, memcpyOperation",
    "STEP_TIME": "id, startNs, endNs",
}  # fmt: skip


def _write_database(path: Path) -> None:
    texts: dict[str, int] = {}

    def of(text: str) -> int:
        return texts.setdefault(text, 100 + len(texts))

    rows: dict[str, list[tuple[Any, ...]]] = {name: [] for name in _TABLES}
    rows["ENUM_API_TYPE"] = [(20000, "node"), (50001, "op"), (50002, "queue")]
    rows["ENUM_HCCL_DATA_TYPE"] = [(4, "FP32"), (10, "BFP16")]
    rows["ENUM_MEMCPY_OPERATION"] = [(1, "host to device")]
    rows["RANK_DEVICE_MAP"] = [(RANKS[0], 5)]
    group = {"group_9%enp": {"group_name": "dp", "group_rank": 0, "global_ranks": [*RANKS]}}
    rows["META_DATA"] = [("parallel_group_info", json.dumps(group))]
    rows["STEP_TIME"] = [(step, _ns(start), _ns(end)) for step, start, end in STEPS]
    for number, task in enumerate(TASKS, 1):
        span, launched = (_ns(task.start), _ns(task.start + task.length)), task.start - 10
        connection = 900 + number
        rows["CONNECTION_IDS"].append((number, connection))
        rows["PYTORCH_API"].append(
            (_ns(launched - 5), _ns(launched + 3), PID << 32 | TID, number, of(task.operator),
             None, None, None, of("8,64;64,32"), None, 50001)
        )  # fmt: skip
        rows["CANN_API"].append(
            (_ns(launched), _ns(launched + 2), 20000, PID << 32 | ENGINE_TID, connection,
             of("launch"))
        )  # fmt: skip
        kind = of("MEMCPY_ASYNC" if task.kind == "copy" else "AI_CORE")
        rows["TASK"].append((*span, 5, connection, number, PID, kind, 0, 2, number, 0))
        if task.kind == "compute":
            rows["COMPUTE_TASK_INFO"].append((of(task.name), number, kind, of("op"), None))
        elif task.kind == "copy":
            rows["MEMCPY_INFO"].append((number, task.elements, 1))
        else:
            rows["COMMUNICATION_TASK_INFO"].append((of(task.name), number, kind))
            rows["COMMUNICATION_OP"].append(
                (of(task.name), *span, connection, of("group_9%enp"), number, task.elements, 10,
                 of(task.name.split("__")[0]))
            )  # fmt: skip
    rows["STRING_IDS"] = [(number, text) for text, number in texts.items()]
    with sqlite3.connect(path) as database:
        database.execute("PRAGMA page_size = 512")
        for name, columns in _TABLES.items():
            database.execute(f"CREATE TABLE {name} ({columns})")
            marks = ", ".join("?" for _ in columns.split(","))
            database.executemany(f"INSERT INTO {name} VALUES ({marks})", rows[name])
    database.close()


def _ns(moment: int) -> int:
    return (BEGAN_US + moment) * 1000
