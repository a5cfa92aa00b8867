"""Columns of Nsight's tables, each by hand: what is there, what is not, what is 0."""

from pathlib import Path
from typing import Any

import pytest

from htk.traces.trace.trace import Trace
from sample_traces.nsight_export import SESSION_NS, Export, Process
from tests.parsers.opened_files import opened, rows

NAME = "void sum<int>(int)"


def job(path: Path, year: int = 2026) -> Process:
    """A process on device 3, whose context is 4."""
    export = Export(path, year)
    export.header()
    return Process(export, 900, 3)


def read(process: Process, path: Path) -> Trace:
    process.export.close()
    return opened(path)


def columns(row: dict[str, Any], *names: str) -> tuple[Any, ...]:
    return tuple(row[name] for name in names)


def test_a_kernel_and_what_is_not_said_of_it(tmp_path: Path) -> None:
    process = job(tmp_path / "t.sqlite")
    axes: dict[str, Any] = {"gridX": 2, "gridY": 3, "gridZ": 4, "blockX": 5, "blockY": 6}
    process.kernel(NAME, 10, 15, 1, stream=9, **axes, blockZ=7, graphId=0, graphNodeId=0)
    process.kernel(NAME, 20, 26, 2, stream=0, graphId=8, graphNodeId=6, dynamicSharedMemory=None)
    process.kernel(NAME, 30, 37, 0, registersPerThread=None, staticSharedMemory=None)
    process.kernel(NAME, 40, 48, 3, gridY=None)
    process.kernel(NAME, 50, 59, 4, blockZ=None)
    lost = ["staticSharedMemory", "dynamicSharedMemory", "demangledName"]
    places = ["shortName", "mangledName", "deviceId", "streamId", "correlationId"]
    for start, names in ((40, lost), (50, lost + places)):
        nothing = ", ".join(f"{name} = NULL" for name in names)
        process.export.connection.execute(
            f"UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET {nothing} WHERE start = {start}"
        )
    found = rows(read(process, tmp_path / "t.sqlite"), "kernels")
    assert [(k["start_ns"] - SESSION_NS, k["end_ns"] - SESSION_NS) for k in found] == [
        (10, 15), (20, 26), (30, 37), (40, 48), (50, 59),
    ]  # fmt: skip
    assert [k["name"] for k in found] == [NAME, NAME, NAME, "void sum", None]
    assert columns(found[0], "grid", "block") == ("[2,3,4]", "[5,6,7]")
    assert columns(found[3], "grid", "block") == (None, "[128,1,1]")
    assert columns(found[4], "grid", "block") == ("[1,1,1]", None)
    assert [columns(k, "device", "stream", "correlation", "context") for k in found] == [
        (3, 9, 1, 4), (3, 0, 2, 4), (3, 7, None, 4), (3, 7, 3, 4), (None, None, None, 4),
    ]  # fmt: skip
    assert [k["registers"] for k in found] == [32, 32, None, 32, 32]
    assert [k["shared_memory_bytes"] for k in found] == [65, 1, 64, None, None]
    assert [(k["graph_id"], k["graph_node"]) for k in found] == [
        (None, 0), (8, 6), *[(None, None)] * 3,
    ]  # fmt: skip


def test_copies_and_sets_their_names_and_rates(tmp_path: Path) -> None:
    process = job(tmp_path / "t.sqlite")
    process.copy(600, 10, 40, 1, kind=1, source=0)  # 20 bytes a nanosecond
    process.copy(600, 50, 50, 2, kind=8, source=2)  # at once: no rate
    process.copy(0, 60, 61, 3, kind=2, source=4)
    process.copy(5, 70, 71, 4, kind=99, source=99)
    process.copy(5, 80, 81, 5, kind=0, source=3)
    process.set(90, 90, 120, 6)
    process.copy(5, 130, 131, 7)
    process.export.connection.execute(
        "UPDATE CUPTI_ACTIVITY_KIND_MEMCPY SET bytes = NULL, copyKind = NULL, dstKind = NULL "
        "WHERE start = 130"
    )
    found = rows(read(process, tmp_path / "t.sqlite"), "kernels")
    told = ("activity", "name", "size_bytes", "bandwidth_gbps")
    assert [columns(k, *told) for k in found] == [
        ("copy", "Memcpy HtoD (Pageable -> Device)", 600, 20.0),
        ("copy", "Memcpy DtoD (Device -> Device)", 600, None),
        ("copy", "Memcpy DtoH (Managed -> Device)", 0, 0.0),
        ("copy", "Memcpy Unknown (Unknown -> Device)", 5, 5.0),
        ("copy", "Memcpy Unknown (Array -> Device)", 5, 5.0),
        ("set", "Memset (Device)", 90, 3.0),
        ("copy", "Memcpy Unknown (Pinned -> Unknown)", None, None),
    ]


@pytest.mark.parametrize(
    ("number", "name"),
    [
        (1, "HtoD"), (2, "DtoH"), (3, "HtoA"), (4, "AtoH"), (5, "AtoA"), (6, "AtoD"), (7, "DtoA"),
        (8, "DtoD"), (9, "HtoH"), (10, "PtoP"), (11, "HtoD"), (12, "DtoH"), (13, "DtoD"),
    ],
)  # fmt: skip
def test_directions_of_exports_without_enumerations(tmp_path: Path, number: int, name: str) -> None:
    """As CUPTI_ACTIVITY_MEMCPY_KIND numbers them; spaces are not numbered alike in all versions,
    and a copy to the device tells whose numbers they are."""
    process = job(tmp_path / "t.sqlite", 2022)
    process.copy(6, 10, 12, 1, kind=number)
    (copy,) = rows(read(process, tmp_path / "t.sqlite"), "kernels")
    spaces = "Pinned -> Device" if number == 1 else "Unknown -> Unknown"
    assert copy["name"] == f"Memcpy {name} ({spaces})"


def test_calls_their_library_thread_and_correlation(tmp_path: Path) -> None:
    process = job(tmp_path / "t.sqlite")
    names = ("cudaMemcpyAsync_ptsz_v7000", "cuLaunchKernel", "cudaFree_v3020", "cublasLt", "cu")
    for k, name in enumerate(names):
        process.call(name, 10 * k, 10 * k + 3, k, thread=k)
    process.kernel(NAME, 90, 95, 2)
    process.export.connection.execute(
        "UPDATE CUPTI_ACTIVITY_KIND_RUNTIME SET globalTid = NULL WHERE start = 40"
    )
    found = rows(read(process, tmp_path / "t.sqlite"), "launches")
    told = ("name", "api", "process", "thread", "correlation")
    assert [columns(c, *told) for c in found][:4] == [
        ("cudaMemcpyAsync", "cuda_runtime", "900", "900", None),
        ("cuLaunchKernel", "cuda_driver", "900", "901", 1),
        ("cudaFree", "cuda_runtime", "900", "902", 2),
        ("cublasLt", "cuda_runtime", "900", "903", 3),
    ]
    assert [c["end_ns"] - c["start_ns"] for c in found] == [3] * len(found)


def test_synchronisations_and_the_records_that_they_wait_for(tmp_path: Path) -> None:
    """Event 5 was recorded once with number 61, twice with 62, and once without a number."""
    process = job(tmp_path / "t.sqlite")
    process.kernel(NAME, 1, 2, 1)
    for correlation, number in ((71, 61), (72, 62), (73, 62), (74, 0)):
        process.export.add(
            "CUPTI_ACTIVITY_KIND_CUDA_EVENT",
            timestamp=0,
            deviceId=3,
            contextId=4,
            streamId=correlation - 50,
            correlationId=correlation,
            globalPid=process.process,
            eventId=5,
            eventSyncId=number,
        )
    waits = ((1, 61), (2, 62), (3, 63), (4, 0), (7, 61))
    for k, (kind, number) in enumerate(waits):
        more = {"stream": k} if k < 4 else {}
        event = 5 if k != 4 else 6
        process.sync(kind, 10 * k + 10, 10 * k + 15, k, eventId=event, eventSyncId=number, **more)
    process.sync(3, 60, 65, 9, stream=2, eventId=0)
    process.export.connection.execute(
        "UPDATE CUPTI_ACTIVITY_KIND_SYNCHRONIZATION SET contextId = 99 WHERE start = 60"
    )
    found = rows(read(process, tmp_path / "t.sqlite"), "syncs")
    told = ("name", "device", "stream", "correlation", "wait_event_id")
    assert [columns(s, *told, "wait_stream", "wait_correlation") for s in found] == [
        ("Event Sync", 3, 0, None, 5, 21, 71),
        ("Stream Wait Event", 3, 1, 1, 5, None, None),
        ("Stream Sync", 3, 2, 2, 5, None, None),
        ("Context Sync", 3, 3, 3, 5, None, None),
        ("Sync 7", 3, None, 4, 6, None, None),
        ("Stream Sync", 0, 2, 9, None, None, None),  # of a context without work
    ]


def test_overhead_has_names_and_a_thread(tmp_path: Path) -> None:
    process = job(tmp_path / "t.sqlite")
    process.kernel(NAME, 1, 2, 1)
    for start, kind, thread in ((10, 3, 2), (20, 9, 0)):
        process.export.add(
            "PROFILER_OVERHEAD",
            start=start,
            end=start + 4,
            globalTid=process.thread(thread),
            overheadType=kind,
        )
    found = rows(read(process, tmp_path / "t.sqlite"), "overheads")
    assert [columns(o, "name", "process", "thread") for o in found] == [
        ("Buffer Flush", "900", "902"),
        ("Unknown", "900", "900"),
    ]
