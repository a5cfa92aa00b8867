"""Nsight Systems: the SQLite database that `nsys export --type sqlite` writes (2021 on).

A report of several processes becomes one recording for each process with GPU work. Read: kernels,
copies and sets, graphs traced as a whole, calls of CUDA and (by the same threads) of the operating
system, synchronisations, NVTX ranges (PyTorch's operators with sequence numbers and sizes, NCCL's
calls with their payloads), profiler overhead, samples of GPU metrics, GPUs and the environment. Not
read: samples of CPUs, graphics.

The export holds sizes of NCCL's calls if it was made with --include-blobs=true or
--include-json=true.
"""

import pyarrow as pa

from htk.base.core.parser import Head, Parsed, ParseOptions, Source
from htk.base.errors import MalformedTrace, UnknownFormat
from htk.parsers.common.log_records import Issues
from htk.parsers.common.nccl_ranges import build_collectives
from htk.parsers.common.span_tables import build_recording
from htk.parsers.common.sqlite_file import MAGIC, open_database
from htk.parsers.nsight.metrics import of_devices, read_metrics
from htk.parsers.nsight.nvtx import Ranges
from htk.parsers.nsight.processes import Launcher, Machine
from htk.parsers.nsight.report import NsightReport
from htk.parsers.nsight.tables import (
    Devices,
    read_kernels,
    read_launches,
    read_overheads,
    read_syncs,
)

NAME = "nsight"
_ON_GPU = ("kernels", "copies", "sets", "graphs")
_WHOLE_GRAPH = (
    "CUDA graph of which kernels, communication and gaps are not told apart: record"
    " with --cuda-graph-trace=node"
)

_MARKS = ("CUPTI_ACTIVITY_KIND_", "NVTX_EVENTS", "META_DATA_EXPORT", "ANALYSIS_DETAILS")


def sniff(head: Head) -> bool:
    others = (b"rocpd_", b"STRING_IDS")  # of rocprofv3 and of Ascend
    return head.data.startswith(MAGIC) and not any(mark in head.data for mark in others)


def parse(source: Source, options: ParseOptions) -> Parsed:
    issues = Issues(options.keep_overruns)
    with open_database(source, issues, options.progress) as database:
        if not database.columns:
            raise MalformedTrace(f"{source.name}: an SQLite database without tables")
        if not any(name.startswith(_MARKS) for name in database.columns):
            raise UnknownFormat(
                f"{source.name}: an SQLite database, but not an export of Nsight Systems; "
                "write one with: nsys export --type sqlite REPORT.nsys-rep"
            )
        report = NsightReport.from_database(database, issues)
        machine = Machine.from_database(database)
        metrics = read_metrics(database, report.base_ns)
        unread = database.count_unread("start", "timestamp", "rawTimestamp")
        unread.pop("DIAGNOSTIC_EVENT", None)  # Nsight's own
    if not report.processes(*_ON_GPU):  # else they are beside the point
        for name, count in unread.items():
            issues.add("unread_events", f"table {name} is not read", count=count)
    processes = _list_processes(report, issues)
    if not processes:
        raise MalformedTrace(
            f"{source.name}: an Nsight Systems export without CUDA work or NVTX ranges; "
            "record with: nsys profile --trace=cuda,nvtx"
        )
    launcher = Launcher.from_machine(machine)
    ranks = launcher.ranks(len(processes))
    recordings = [
        _build_process(
            report,
            machine,
            metrics,
            launcher,
            process,
            rank,
            issues if not k else Issues(options.keep_overruns),
        )
        for k, (process, rank) in enumerate(zip(processes, ranks, strict=True))
    ]
    first, *others = recordings
    facts = {**first.facts, "unread_tables": unread}
    return Parsed(first.tables, first.rank, first.world_size, facts, tuple(others))


def _list_processes(report: NsightReport, issues: Issues) -> list[int]:
    """Processes with GPU work, by their first device; without any, those that ran ranges."""
    on_gpu = report.processes(*_ON_GPU)
    other = sorted(set(report.processes("runtime", "nvtx")) - set(on_gpu))
    if not on_gpu:
        return other
    for process in other:
        count = sum(int((report.spans[n].process == process).sum()) for n in ("runtime", "nvtx"))
        issues.add(
            "process_without_gpu_work", f"process {report.pid(process)} is left out", count=count
        )
    return sorted(on_gpu, key=lambda process: (report.first_device(process), process))


def _build_process(
    report: NsightReport,
    machine: Machine,
    metrics: pa.Table,
    launcher: Launcher,
    process: int,
    rank: int | None,
    issues: Issues,
) -> Parsed:
    own = report.of_process(process)
    devices = Devices.from_report(own)
    ranges = Ranges.from_report(own, issues)
    if graphs := len(own.spans["graphs"]):
        issues.add("whole_graph", _WHOLE_GRAPH, count=graphs)
    tables = {
        "kernels": read_kernels(own),
        "launches": read_launches(own),
        "syncs": read_syncs(own, devices),
        "cpu_ops": ranges.operators(),
        "annotations": ranges.annotations(),
        "overheads": read_overheads(own),
        "counters": of_devices(metrics, devices.devices),
    }
    facts = machine.facts(report.pid(process), devices.first, base_ns=report.base_ns)
    facts["truncated"] = report.truncated
    facts["world_size"] = launcher.world_size
    facts["rank_from"] = launcher.rank_from
    recorded = build_recording(tables, facts, rank, issues)
    filled = dict(recorded.tables)
    filled["collectives"] = build_collectives(
        "nsight", filled["kernels"], filled["launches"], ranges.calls(), filled["annotations"]
    )
    return Parsed(filled, rank, recorded.world_size, recorded.facts)
