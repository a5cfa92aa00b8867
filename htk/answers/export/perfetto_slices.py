"""What Perfetto shows of one rank: slices and instants by track, with Kineto's arguments."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import read_booleans, read_numbers
from htk.base.columns.types import NONE, Ints
from htk.base.mappings import Fields, NamedTables
from htk.base.schema.profile import ALLOCATION

HOST = ("cpu_ops", "annotations", "python_calls", "launches", "overheads")
_Moments = Callable[[pa.Table, str], Ints]


class Json(str):
    """A text that is JSON: a list of sizes, say."""


class Track(NamedTuple):
    """Where slices stand: a thread, or a line of the process."""

    name: str
    thread: str | None = None


class Instant(NamedTuple):
    """Something without a length."""

    name: str
    category: str
    time: int
    arguments: Fields


@dataclass
class Slices:
    """What stands on one track and its lines."""

    name: list[str] = field(default_factory=list)
    category: list[str] = field(default_factory=list)
    start: list[int] = field(default_factory=list)
    end: list[int] = field(default_factory=list)
    arguments: list[Fields] = field(default_factory=list)
    flows: list[tuple[int, ...]] = field(default_factory=list)


# Columns of each table under the names that Kineto gives them.
_LINKS = {"correlation": "correlation", "external_id": "External id"}
_ON_DEVICE = {"device": "device", "stream": "stream"}
_ARGUMENTS: dict[str, Mapping[str, str]] = {
    "cpu_ops": {
        "external_id": "External id",
        "sequence": "Sequence number",
        "forward_thread": "Fwd thread id",
        "record_function_id": "Record function id",
        "input_dims": "Input Dims",
        "input_types": "Input type",
        "input_strides": "Input Strides",
        "concrete_inputs": "Concrete Inputs",
        "call_stack": "Call stack",
        "module_hierarchy": "Module Hierarchy",
        "kernel_file": "kernel_file",
        "kernel_backend": "kernel_backend",
    },
    "annotations": {"external_id": "External id"},
    "python_calls": {
        "python_id": "Python id",
        "python_parent": "Python parent id",
        "module_id": "Python module id",
    },
    "launches": _LINKS,
    "overheads": {},
    "kernels": {
        **_ON_DEVICE,
        **_LINKS,
        "context": "context",
        "queued_ns": "queued",
        "grid": "grid",
        "block": "block",
        "registers": "registers per thread",
        "shared_memory_bytes": "shared memory",
        "blocks_per_sm": "blocks per SM",
        "warps_per_sm": "warps per SM",
        "occupancy_pct": "est. achieved occupancy %",
        "size_bytes": "bytes",
        "bandwidth_gbps": "memory bandwidth (GB/s)",
        "graph_id": "graph id",
        "graph_node": "graph node id",
        "priority": "priority",
        "graph_annotation": "name",
    },
    "syncs": {
        **_ON_DEVICE,
        "correlation": "correlation",
        "wait_stream": "wait_on_stream",
        "wait_correlation": "wait_on_cuda_event_record_corr_id",
        "wait_event_id": "wait_on_cuda_event_id",
    },
    "memory": {
        "address": "Addr",
        "size_bytes": "Bytes",
        "allocated_bytes": "Total Allocated",
        "reserved_bytes": "Total Reserved",
        "device_type": "Device Type",
        "device": "Device Id",
    },
    "collectives": {
        "type": "Collective name",
        "dtype": "dtype",
        "in_elements": "In msg nelems",
        "out_elements": "Out msg nelems",
        "in_split": "In split size",
        "out_split": "Out split size",
        "group_size": "Group size",
        "group": "Process Group Name",
        "group_desc": "Process Group Description",
        "group_ranks": "Process Group Ranks",
        "seq": "Seq",
        "comms_id": "Comms Id",
        "is_async": "Is asynchronized op",
    },
}
_AS_JSON = {
    "input_dims",
    "input_types",
    "input_strides",
    "concrete_inputs",
    "grid",
    "block",
}
_CATEGORIES = {
    "cpu_ops": "cpu_op",
    "annotations": "user_annotation",
    "python_calls": "python_function",
    "overheads": "overhead",
    "syncs": "cuda_sync",
}
_PEERS = {"send": "Dst Rank", "recv": "Src Rank"}
_ACTIVITIES = {"kernel": "kernel", "copy": "gpu_memcpy", "set": "gpu_memset"}


def gather_tracks(tables: NamedTables, moments: _Moments, flow: int) -> dict[Track, Slices]:
    """Return the slices of threads, streams, ranges and waits on them.

    A launch begins an arrow for each activity that it started; they are numbered from `flow` on.
    """
    tracks: dict[Track, Slices] = defaultdict(Slices)
    launched = read_numbers(tables["kernel_links"]["launch_row"], NONE)
    arrows: dict[int, list[int]] = defaultdict(list)
    for activity, call in enumerate(launched.tolist()):  # a packet each: see the writer
        if call != NONE:
            arrows[call].append(flow + activity)
    ends = {int(k): [flow + int(k)] for k in np.flatnonzero(launched != NONE)}
    annotations = tables["annotations"]
    on_gpu = read_booleans(annotations["on_gpu"])
    of_calls = _read_collectives(tables)
    for name in HOST:
        table = annotations.filter(pa.array(~on_gpu)) if name == "annotations" else tables[name]
        places = [Track(f"thread {tid}", str(tid)) for tid in table["thread"].to_pylist()]
        flows = arrows if name == "launches" else {}
        more = of_calls if name == "cpu_ops" else {}
        _add_slices(tracks, name, table, places, moments, flows, more)
    _add_slices(
        tracks,
        "kernels",
        tables["kernels"],
        _list_stream_tracks(tables["kernels"]),
        moments,
        ends,
        of_calls,
    )
    ranges = annotations.filter(pa.array(on_gpu))
    _add_slices(
        tracks, "annotations", ranges, _list_stream_tracks(ranges, ", ranges"), moments, {}, {}
    )
    waits = tables["syncs"]
    _add_slices(tracks, "syncs", waits, _list_stream_tracks(waits, ", waits"), moments, {}, {})
    return dict(sorted(tracks.items(), key=lambda entry: entry[0].name))


def gather_instants(tables: NamedTables, moments: _Moments) -> dict[Track, list[Instant]]:
    """Return allocations and releases of memory by thread."""
    memory = tables["memory"]
    instants: dict[Track, list[Instant]] = defaultdict(list)
    times = moments(memory, "time_ns").tolist()
    rows = zip(memory["name"].to_pylist(), memory["thread"].to_pylist(), times, strict=True)
    for (name, thread, time), arguments in zip(
        rows, _read_arguments("memory", memory), strict=True
    ):
        track = Track(f"thread {thread}, memory")
        instants[track].append(Instant(name or ALLOCATION, "cpu_instant_event", time, arguments))
    return dict(instants)


def _list_stream_tracks(table: pa.Table, suffix: str = "") -> list[Track]:
    devices = table["device"].to_pylist()
    streams = table["stream"].to_pylist()
    return [
        Track(f"GPU {device}, stream {stream}{suffix}")
        for device, stream in zip(devices, streams, strict=True)
    ]


def _add_slices(
    tracks: dict[Track, Slices],
    table_name: str,
    table: pa.Table,
    places: list[Track],
    moments: _Moments,
    flows: Mapping[int, list[int]],
    more: Mapping[int, Fields],
) -> None:
    """Add the rows of a table to their tracks; `more` arguments stand under the event's number."""
    columns = {
        "name": table["name"].to_pylist(),
        "category": _name_categories(table_name, table),
        "start": moments(table, "start_ns").tolist(),
        "end": moments(table, "end_ns").tolist(),
        "event": table["event"].to_pylist(),
    }
    arguments = list(_read_arguments(table_name, table))
    for row, track in enumerate(places):  # the format is row by row
        slices = tracks[track]
        start = columns["start"][row]
        slices.name.append(columns["name"][row] or "unnamed")
        slices.category.append(columns["category"][row])
        slices.start.append(start)
        slices.end.append(max(columns["end"][row], start))
        slices.arguments.append({**arguments[row], **more.get(columns["event"][row], {})})
        slices.flows.append(tuple(flows.get(row, ())))


def _name_categories(table_name: str, table: pa.Table) -> list[str]:
    if table_name == "kernels":
        return [_ACTIVITIES.get(kind, "kernel") for kind in table["activity"].to_pylist()]
    if table_name == "launches":
        return [api or "cuda_runtime" for api in table["api"].to_pylist()]
    if table_name == "annotations" and table.num_rows and read_booleans(table["on_gpu"]).all():
        return ["gpu_user_annotation"] * table.num_rows
    return [_CATEGORIES[table_name]] * table.num_rows


def _read_arguments(table_name: str, table: pa.Table) -> Iterable[Fields]:
    """Yield what each row has of Kineto's arguments."""
    keys = {
        column: key
        for column, key in _ARGUMENTS[table_name].items()
        if table[column].null_count < table.num_rows
    }
    columns = {column: table[column].to_pylist() for column in keys}
    for row in range(table.num_rows):
        yield {
            key: Json(value) if column in _AS_JSON else value
            for column, key in keys.items()
            if (value := columns[column][row]) is not None
        }


def _read_collectives(tables: NamedTables) -> dict[int, Fields]:
    """Return the arguments of each call's kernel and operator, by the number of the event.

    What was inferred is left out: it was not recorded, and is inferred again.
    """
    calls = tables["collectives"]
    recorded = calls.filter(pa.array(read_numbers(calls["event"], NONE) != NONE))
    arguments: dict[int, Fields] = {}
    events = zip(recorded["event"].to_pylist(), recorded["op_event"].to_pylist(), strict=True)
    rows = zip(events, _read_arguments("collectives", recorded), strict=True)
    peers = recorded["peer"].to_pylist()
    inferred = recorded["inferred_columns"].to_pylist()
    for k, ((kernel, operator), written) in enumerate(rows):
        guesses = (inferred[k] or "").split(",")
        guessed = {_ARGUMENTS["collectives"].get(name) for name in guesses}
        of_call = {key: value for key, value in written.items() if key not in guessed}
        key = _PEERS.get(str(written.get("Collective name")))
        if key is not None and peers[k] is not None:
            of_call[key] = peers[k]
        for event in (kernel, operator):
            if event is not None:
                arguments[event] = of_call
    return arguments
