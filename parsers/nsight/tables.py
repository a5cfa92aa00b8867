"""GPU work, CUDA calls, synchronisations and overhead of one process, in the vocabulary."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import (
    build_nulls,
    build_numbers,
    codes_of,
    decode_texts,
    map_texts,
    mark_valid,
    read_numbers,
)
from htk.base.columns.groups import Groups
from htk.base.columns.types import NONE, Ints, fill_none, take_or
from htk.base.schema import FLOAT64, INT32, INT64, STRING
from htk.parsers.common.span_tables import (
    build_activities,
    build_empty_table,
    build_optional,
    build_process_table,
    int_texts,
    spell_dimensions,
)
from htk.parsers.nsight.report import NsightReport, ReportRows
from htk.quantities.derived.host_states import OF_SYSTEM
from htk.quantities.derived.links import look_up

_NOWHERE = 0xFFFFFFFF  # of a synchronisation with no stream of its own
_VERSION = re.compile(r"(_ptsz|_ptds)?_v\d{4,}$")  # cudaLaunchKernel_v7000
_DIRECTION = re.compile(r"KIND_(?:UVM_)?([HDAP])TO([HDAP])$")
_SPACES = {  # in the order of their numbers
    "PAGEABLE": "Pageable",
    "PINNED": "Pinned",
    "DEVICE": "Device",
    "ARRAY": "Array",
    "MANAGED": "Managed",
    "DEVICE_STATIC": "Device Static",
    "MANAGED_STATIC": "Managed Static",
}
# Numbers of exports that carry no enumerations.
_DIRECTIONS = {1: "HtoD", 2: "DtoH", 3: "HtoA", 4: "AtoH", 5: "AtoA", 6: "AtoD", 7: "DtoA"}
_DIRECTIONS |= {8: "DtoD", 9: "HtoH", 10: "PtoP", 11: "HtoD", 12: "DtoH", 13: "DtoD"}
_SYNCS = {1: "Event Sync", 2: "Stream Wait Event", 3: "Stream Sync", 4: "Context Sync"}
_CALL_CLASSES = ("cuda_runtime", "cuda_driver")


@dataclass(frozen=True)
class Devices:
    """Which device each context of a process is on: synchronisations name only their context."""

    contexts: Ints
    devices: Ints

    @classmethod
    def from_report(cls, report: NsightReport) -> "Devices":
        rows = [report.spans[name] for name in ("kernels", "copies", "sets", "graphs")]
        context = np.concatenate([read_numbers(r.table["contextId"], NONE) for r in rows])
        device = np.concatenate([read_numbers(r.table["deviceId"], NONE) for r in rows])
        contexts, first = np.unique(context, return_index=True)
        return cls(contexts, device[first])

    @property
    def first(self) -> int | None:
        return int(self.devices.min()) if len(self.devices) else None

    def of_context(self, context: Ints, otherwise: Ints) -> Ints:
        position = look_up(self.contexts, np.arange(len(self.contexts)), context)
        return np.where(position >= 0, take_or(self.devices, position), otherwise)


def read_kernels(report: NsightReport) -> pa.Table:
    """Return the kernels, copies, sets, and graphs that were traced as a whole."""
    makers = (
        ("kernels", _build_kernels),
        ("copies", _build_copies),
        ("sets", _build_sets),
        ("graphs", _build_graphs),
    )
    parts = [maker(report, report.spans[n]) for n, maker in makers if len(report.spans[n])]
    return pa.concat_tables(parts).unify_dictionaries() if parts else build_empty_table("kernels")


def _build_kernels(report: NsightReport, rows: ReportRows) -> pa.Table:
    """A kernel is called by its demangled name, else the short one."""
    strings = report.strings
    codes = fill_none(len(rows))
    for name in ("demangledName", "shortName", "mangledName"):
        codes = np.where(codes < 0, strings.codes(rows.table[name]), codes)
    axes = [f"{what}{axis}" for what in ("grid", "block") for axis in "XYZ"]
    columns = [read_numbers(rows.table[name], NONE) for name in axes]
    static = rows.table["staticSharedMemory"]
    dynamic = rows.table["dynamicSharedMemory"]
    shared = build_optional(
        read_numbers(static) + read_numbers(dynamic), mark_valid(static) | mark_valid(dynamic)
    )
    return _build_activity_rows(
        rows,
        0,
        strings.texts(codes),
        grid=spell_dimensions(columns[:3]),
        block=spell_dimensions(columns[3:]),
        registers=_read_integers(rows, "registersPerThread"),
        shared_memory_bytes=shared,
        graph_id=_read_integers(rows, "graphId", positive=True),
        graph_node=_read_integers(rows, "graphNodeId"),
    )


def _build_copies(report: NsightReport, rows: ReportRows) -> pa.Table:
    """Copies are called as Kineto calls them: `Memcpy HtoD (Pageable -> Device)`."""
    labels = report.labels
    directions = {**_DIRECTIONS, **_name_labels(labels["ENUM_CUDA_MEMCPY_OPER"], _parse_direction)}
    spaces = _read_spaces(report)
    kinds = np.stack(
        [read_numbers(rows.table[c], NONE) for c in ("copyKind", "srcKind", "dstKind")], 1
    )
    distinct, name_of_row = np.unique(kinds, axis=0, return_inverse=True)
    names = [
        f"Memcpy {directions.get(kind, 'Unknown')} "
        f"({spaces.get(source, 'Unknown')} -> {spaces.get(target, 'Unknown')})"
        for kind, source, target in distinct.tolist()
    ]
    name = decode_texts(name_of_row.ravel(), pa.array(names, STRING))
    return _build_moved(rows, 1, name)


def _build_sets(report: NsightReport, rows: ReportRows) -> pa.Table:
    spaces = _read_spaces(report)
    distinct, name_of_row = np.unique(
        read_numbers(rows.table["memKind"], NONE), return_inverse=True
    )
    names = [f"Memset ({spaces.get(kind, 'Unknown')})" for kind in distinct.tolist()]
    return _build_moved(rows, 2, decode_texts(name_of_row, pa.array(names, STRING)))


def _build_moved(rows: ReportRows, activity: int, name: pa.Array) -> pa.Table:
    size = read_numbers(rows.table["bytes"], NONE)
    taken = rows.end - rows.start
    has_rate = (size >= 0) & (taken > 0)
    rate = np.where(has_rate, size / np.where(has_rate, taken, 1), 0.0)  # bytes per ns are GB/s
    return _build_activity_rows(
        rows,
        activity,
        name,
        size_bytes=build_optional(size, size >= 0),
        bandwidth_gbps=build_numbers(rate, FLOAT64, has_rate),
        graph_id=_read_integers(rows, "graphId", positive=True),
        graph_node=_read_integers(rows, "graphNodeId"),
    )


def _build_graphs(report: NsightReport, rows: ReportRows) -> pa.Table:
    """Graphs of which only begin and end were traced (--cuda-graph-trace=graph)."""
    ids = int_texts(read_numbers(rows.table["graphId"], NONE))
    return _build_activity_rows(
        rows, 0, map_texts(ids, "CUDA Graph {}".format), graph_id=_read_integers(rows, "graphId")
    )


def _build_activity_rows(
    rows: ReportRows, activity: int, name: pa.Array, **more: pa.Array
) -> pa.Table:
    device = read_numbers(rows.table["deviceId"], NONE)
    stream = read_numbers(rows.table["streamId"], NONE)
    correlation = read_numbers(rows.table["correlationId"], NONE)
    context = _read_integers(rows, "contextId")
    return build_activities(
        activity, name, rows.start, rows.end, device, stream, correlation, context=context, **more
    )


def read_launches(report: NsightReport) -> pa.Table:
    """Return the calls of the CUDA runtime and driver, without the version in their names, and of
    the operating system by the threads that make these; what else waits launches nothing."""
    parts = []
    of_cuda = report.spans["runtime"]
    of_system = report.spans["system"]
    callers = read_numbers(of_cuda.table["globalTid"], NONE)
    thread = read_numbers(of_system.table["globalTid"], NONE)
    of_system = of_system.where(np.flatnonzero(np.isin(thread, callers)))
    for rows, class_of in ((of_cuda, _class_of), (of_system, lambda _: OF_SYSTEM)):
        raw = report.strings.texts(report.strings.codes(rows.table["nameId"]))
        name = map_texts(raw, lambda n: _VERSION.sub("", n))
        columns = {
            "name": name,
            "api": map_texts(name, class_of),
            **split_threads(rows),
            **rows.times,
            "correlation": _read_integers(rows, "correlationId", positive=True),
        }
        parts.append(build_process_table("launches", columns, len(rows)))
    return pa.concat_tables(parts).unify_dictionaries()


def _class_of(name: str) -> str:
    return _CALL_CLASSES[name.startswith("cu") and name[2:3].isupper()]


def read_syncs(report: NsightReport, devices: Devices) -> pa.Table:
    """Return what a stream, or the host, waited for."""
    rows = report.spans["syncs"]
    kind = read_numbers(rows.table["syncType"], NONE)
    distinct, name_of_row = np.unique(kind, return_inverse=True)
    names = pa.array([_SYNCS.get(k, f"Sync {k}") for k in distinct.tolist()], STRING)
    stream = read_numbers(rows.table["streamId"], NONE)
    context = read_numbers(rows.table["contextId"], NONE)
    device = devices.of_context(context, read_numbers(rows.table["deviceId"], NONE))
    recorded = _recorded_events(report, rows)
    return build_process_table(
        "syncs",
        {
            "name": decode_texts(name_of_row, names),
            "device": build_optional(device, device >= 0, INT32),
            "stream": build_optional(stream, (stream >= 0) & (stream < _NOWHERE)),
            **rows.times,
            "correlation": _read_integers(rows, "correlationId", positive=True),
            "wait_event_id": _read_integers(rows, "eventId", positive=True),
            **recorded,
        },
        len(rows),
    )


def _recorded_events(report: NsightReport, rows: ReportRows) -> dict[str, pa.Array]:
    """Stream and call that recorded the event of each wait, where the export ties them."""
    events = report.cuda_events.filter(
        pa.array(
            np.isin(read_numbers(report.cuda_events["globalPid"], NONE), np.unique(rows.process))
        )
    )
    keys = [
        np.stack([read_numbers(t[c], NONE) for c in ("eventId", "eventSyncId")], axis=1)
        for t in (events, rows.table)
    ]
    number_of = Groups.by_keys(np.concatenate(keys)).group_ids
    of_event = number_of[: len(events)]
    of_wait = number_of[len(events) :]
    distinct, first, count = np.unique(of_event, return_index=True, return_counts=True)
    once = (count == 1) & (keys[0][first, 1] > 0) if len(events) else np.empty(0, bool)
    event_row = look_up(distinct[once], first[once], of_wait)
    columns = {}
    for column, source in (("wait_stream", "streamId"), ("wait_correlation", "correlationId")):
        values = take_or(read_numbers(events[source], NONE), event_row)
        columns[column] = build_optional(values, (event_row >= 0) & (values >= 0))
    return columns


def read_overheads(report: NsightReport) -> pa.Table:
    """Return the profiler's own work, and CUDA compiling or loading code."""
    labels = report.labels["ENUM_CUPTI_OVERHEAD_TYPE"]
    parts = []
    for source in ("profiler", "cuda"):
        rows = report.spans[source]
        distinct, name_of_row = np.unique(
            read_numbers(rows.table["overheadType"], NONE), return_inverse=True
        )
        names = pa.array([_name_overhead(labels.get(k, "")) for k in distinct.tolist()], STRING)
        columns = {
            "name": decode_texts(name_of_row, names),
            **split_threads(rows),
            **rows.times,
        }
        parts.append(build_process_table("overheads", columns, len(rows)))
    return pa.concat_tables(parts).unify_dictionaries()


def split_threads(rows: ReportRows) -> dict[str, pa.Array]:
    """Process and thread: each 24 bits of the global thread id."""
    thread = read_numbers(rows.table["globalTid"], NONE)
    has_thread = thread >= 0
    named = {"process": int_texts(thread >> 24 & 0xFFFFFF), "thread": int_texts(thread & 0xFFFFFF)}
    if has_thread.all():
        return named
    return {
        column: decode_texts(np.where(has_thread, codes_of(values)[0], -1), codes_of(values)[1])
        for column, values in named.items()
    }


def _read_integers(rows: ReportRows, name: str, *, positive: bool = False) -> pa.Array:
    """Return a column of the export; `positive`: 0 says that there is none."""
    if name not in rows.table.column_names:
        return build_nulls(INT64, len(rows))
    column = rows.table[name]
    values = read_numbers(column)
    return build_optional(values, mark_valid(column) & ((values > 0) | ~np.bool_(positive)))


def _name_labels(labels: Mapping[int, str], to: Callable[[str], str | None]) -> dict[int, str]:
    return {k: name for k, label in labels.items() if (name := to(label)) is not None}


def _parse_direction(label: str) -> str | None:
    """CUDA_MEMCPY_KIND_HTOD -> HtoD"""
    match = _DIRECTION.search(label)
    return f"{match[1]}to{match[2]}" if match else None


def _read_spaces(report: NsightReport) -> dict[int, str]:
    """Return the kinds of memory by number. Of exports without enumerations the device's side of
    copies tells whose numbers they are: Nsight's own, or CUPTI's, which begin with `unknown`."""
    if labelled := _name_labels(report.labels["ENUM_CUDA_MEM_KIND"], _parse_space):
        return labelled
    copies = report.spans["copies"].table
    way, *sides = (read_numbers(copies[name], NONE) for name in ("copyKind", "dstKind", "srcKind"))
    of_device = {*sides[0][way == 1].tolist(), *sides[1][way == 2].tolist()}
    first = min(of_device, default=NONE) - list(_SPACES).index("DEVICE")
    is_told = len(of_device) == 1 and first in (0, 1)
    return dict(enumerate(_SPACES.values(), first)) if is_told else {}


def _parse_space(label: str) -> str | None:
    """CUDA_MEMOPR_MEMORY_KIND_PINNED -> Pinned"""
    return _SPACES.get(label.rpartition("_KIND_")[2])


def _name_overhead(label: str) -> str:
    """OVERHEAD_CUPTI_BUFFER_FLUSH -> Buffer Flush"""
    words = label.removeprefix("OVERHEAD_").removeprefix("CUPTI_").replace("_", " ")
    return words.title() or "Unknown"


__all__ = [
    "Devices",
    "read_kernels",
    "read_launches",
    "read_overheads",
    "read_syncs",
    "split_threads",
]
