"""A trace in Perfetto's own format (protobuf), from the tables: whatever the ranks were read from.

Each rank is a process with its threads (operators, ranges, Python and runtime calls, memory), GPU
streams, ranges and waits on them, and recorded counters; slices have Kineto's categories and
arguments, and arrows lead from a launch to what it started. A process of htk's own has counters
and the critical path. Clocks are aligned where they could be compared. What does not nest on a
thread or a stream stands on a line below it, at its own time. htk reads
the file again; steps of other recorders than PyTorch's are ranges then.
"""

import json
import struct
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import numpy as np
import pyarrow as pa

from htk.answers.export.merged import describe_rank
from htk.answers.export.perfetto_slices import (
    HOST,
    Instant,
    Json,
    Slices,
    gather_instants,
    gather_tracks,
)
from htk.answers.export.rewrite import part_of
from htk.base.columns.arrow import read_numbers, read_times
from htk.base.columns.types import Ints
from htk.base.errors import HtkError, MissingTable
from htk.base.mappings import Fields
from htk.parsers.kineto_perfetto import DRAWN, HEADER
from htk.quantities.derived.clocks import compute_corrections
from htk.quantities.graph.fidelity import draw_path
from htk.quantities.measures.counter_series import CounterSeries, counter_series, recorded_series
from htk.traces.trace.trace import Trace

_SEQUENCE = 1
# Fields of trace_packet.proto, track_descriptor.proto, track_event.proto, interned_data.proto.
_PACKET, _TIME, _SEQUENCE_ID, _FLAGS, _EVENT, _INTERNED, _DESCRIPTOR = 1, 8, 10, 13, 11, 12, 60
_CLEARED, _NEEDED = 1, 2  # of sequence_flags
_BEGIN, _END, _INSTANT, _COUNTER = 1, 2, 3, 4  # of TrackEvent.type
_CATEGORY, _ARGUMENT, _FLOW, _FLOW_END, _DOUBLE = 22, 4, 47, 48, 44
_MOST_IDENTITY = 1 << 31

_Moments = Callable[[pa.Table, str], Ints]


def write_perfetto(trace: Trace, folder: Path, *, align: bool = True) -> tuple[Path, int]:
    """Write folder/trace.pftrace; the file, and how many slices it holds. Without `align` each rank
    keeps its own clock."""
    target = folder / "trace.pftrace"
    starts = [trace.tables[name]["start_ns"] for name in (*HOST, "kernels")]
    if not any(len(column) for column in starts):
        raise MissingTable("no operator, range, call or GPU activity to draw")
    clocks = trace.tables["rank_clocks"]
    clocks = clocks if align else clocks.slice(0, 0)
    earliest = min(int(read_numbers(c).min()) for c in starts if len(c))
    shifts = compute_corrections(clocks, np.array(trace.ranks), np.full(len(trace.ranks), earliest))
    origin = earliest + min(int(shifts.min(initial=0)), 0)

    def on_common_clock(ranks: Ints, times: Ints) -> Ints:
        return np.asarray(np.maximum(times + compute_corrections(clocks, ranks, times) - origin, 0))

    with part_of(target) as out:
        writer = _Writer(out.write)
        drawn = writer.process(0, DRAWN)
        for rank in trace.ranks:
            file = next(file for file in trace.selected_files if file.rank == rank)
            header = {**describe_rank(file), "baseTimeNanoseconds": origin}
            process = writer.process(rank + 1, f"rank {rank}", header)
            _write_rank(trace.sel(ranks=[rank]), process, drawn, on_common_clock, writer)
        _write_path(trace, drawn, on_common_clock, writer)
    return target, writer.slices


def _write_rank(
    trace: Trace, process: int, drawn: int, align: Callable[[Ints, Ints], Ints], writer: "_Writer"
) -> None:
    (rank,) = trace.ranks

    def align_moments(table: pa.Table, column: str) -> Ints:
        times = read_numbers(table[column])
        return align(np.full(len(times), rank), times)

    flow = writer.reserve_flows(trace.tables["kernels"].num_rows)
    for track, slices in gather_tracks(trace.tables, align_moments, flow).items():
        writer.track(slices, track.name, process, track.thread, rank)
    for track, instants in gather_instants(trace.tables, align_moments).items():
        writer.instants(instants, track.name, process)

    def draw_counter(series: CounterSeries, name: str, owner: int) -> None:
        times = align(np.full(len(series.time), rank), series.time)
        writer.counter(series, name, owner, times)

    for series in recorded_series(trace.tables["counters"]):
        draw_counter(series, series.name, process)
    tables = (trace.tables[name] for name in ("kernels", "kernel_links", "memory"))
    for series in counter_series(*tables):
        name = f"rank {rank}: {series.name}" + (f", {series.unit}" if series.unit else "")
        draw_counter(series, name, drawn)


def _write_path(
    trace: Trace, drawn: int, align: Callable[[Ints, Ints], Ints], writer: "_Writer"
) -> None:
    """Draw the critical path of the steadiest step, where there is one."""
    try:
        path = draw_path(trace.tables).pieces
    except HtkError:
        return
    start, end = read_times(path)
    ranks = read_numbers(path["rank"])
    slices = Slices()
    slices.name.extend(str(kind) for kind in path["kind"].to_pylist())
    slices.start.extend(align(ranks, start).tolist())
    slices.end.extend(align(ranks, end).tolist())
    slices.flows.extend([()] * len(slices.name))
    slices.category.extend(["critical_path"] * len(slices.name))
    slices.arguments.extend({"rank": rank} for rank in ranks.tolist())
    writer.track(slices, "critical path", drawn)


class _Writer:
    """Packets of one sequence; names are numbered as they occur."""

    def __init__(self, write: Callable[[bytes], object]) -> None:
        self._write = write
        self._names: dict[str, int] = {}
        self._uuids = count(1)
        self._threads = count(1)
        self._head = _encode_number(_SEQUENCE_ID, _SEQUENCE) + _encode_number(_FLAGS, _NEEDED)
        self._flows = 1
        self.slices = 0
        self._write_packet(
            _encode_number(_SEQUENCE_ID, _SEQUENCE) + _encode_number(_FLAGS, _CLEARED)
        )

    def reserve_flows(self, activities: int) -> int:
        """Return the first of as many arrows' numbers, which no other rank uses."""
        first = self._flows
        self._flows += activities
        return first

    def process(self, pid: int, name: str, header: Fields | None = None) -> int:
        """Describe a process, and what its recording said of itself."""
        uuid = next(self._uuids)
        described = _encode_number(1, pid) + _encode_bytes(6, name)
        self._write_descriptor(_encode_number(1, uuid) + _encode_bytes(3, described))
        if header is not None:
            text = json.dumps(header, ensure_ascii=False)
            self._write_event(
                0, _INSTANT, uuid, _encode_bytes(23, HEADER) + _encode_argument("header", text)
            )
        return uuid

    def track(
        self, slices: Slices, name: str, process: int, thread: str | None = None, rank: int = 0
    ) -> None:
        """A thread (of a rank's process), or a line of its own below the process."""
        parent = process
        for k, rows in enumerate(_split_into_lines(slices)):
            uuid = next(self._uuids)
            described = _encode_number(1, uuid) + _encode_number(5, parent)
            if thread is not None and k == 0:
                numbered = thread.isdigit() and int(thread) < _MOST_IDENTITY
                tid = int(thread) if numbered else next(self._threads)
                identity = (
                    _encode_number(1, rank + 1) + _encode_number(2, tid) + _encode_bytes(5, name)
                )
                described += _encode_bytes(4, identity)
                parent = uuid  # of what does not nest in it
            else:
                described += _encode_bytes(2, name if thread is None else f"{name}, not nested")
            self._write_descriptor(described)
            self._write_events(slices, rows, uuid, _FLOW if thread is not None else _FLOW_END)

    def instants(self, instants: list[Instant], name: str, process: int) -> None:
        uuid = next(self._uuids)
        self._write_descriptor(
            _encode_number(1, uuid) + _encode_number(5, process) + _encode_bytes(2, name)
        )
        for instant in instants:
            content = _encode_bytes(23, instant.name) + _encode_bytes(_CATEGORY, instant.category)
            self._write_event(
                instant.time, _INSTANT, uuid, content + _encode_arguments(instant.arguments)
            )

    def counter(self, series: CounterSeries, name: str, process: int, times: Ints) -> None:
        uuid = next(self._uuids)
        described = (
            _encode_number(1, uuid)
            + _encode_number(5, process)
            + _encode_bytes(2, name)
            + _encode_bytes(8, b"")
        )
        self._write_descriptor(described)
        for time, value in zip(times.tolist(), series.value.tolist(), strict=True):
            self._write_event(time, _COUNTER, uuid, _encode_double(_DOUBLE, float(value)))

    def _write_event(self, time: int, kind: int, uuid: int, content: bytes) -> None:
        event = _encode_bytes(_EVENT, _encode_number(9, kind) + _encode_number(11, uuid) + content)
        self._write_packet(_encode_number(_TIME, time) + self._head + event)

    def _write_events(self, slices: Slices, rows: list[int], uuid: int, flow: int) -> None:
        """Begins and ends in the order in which they nest."""
        begin = _encode_number(9, _BEGIN) + _encode_number(11, uuid)
        end = _encode_number(9, _END) + _encode_number(11, uuid)
        closing = _encode_bytes(_EVENT, end)
        still_open: list[int] = []
        for row in rows:
            start = slices.start[row]
            while still_open and slices.end[still_open[-1]] <= start:
                closed = slices.end[still_open.pop()]
                self._write_packet(_encode_number(_TIME, closed) + self._head + closing)
            number, interned = self._name(slices.name[row])
            arrows = b"".join(_encode_fixed(flow, k) for k in slices.flows[row])
            content = _encode_bytes(_CATEGORY, slices.category[row]) + _encode_arguments(
                slices.arguments[row]
            )
            event = _encode_bytes(_EVENT, begin + _encode_number(10, number) + content + arrows)
            self._write_packet(_encode_number(_TIME, start) + self._head + interned + event)
            still_open.append(row)
            self.slices += 1
        for row in reversed(still_open):
            self._write_packet(_encode_number(_TIME, slices.end[row]) + self._head + closing)

    def _name(self, name: str) -> tuple[int, bytes]:
        """Return the number of a name, and what tells it where it is new."""
        interned = self._names.get(name)
        if interned is not None:
            return interned, b""
        number = self._names[name] = len(self._names) + 1
        entry = _encode_number(1, number) + _encode_bytes(2, name)
        return number, _encode_bytes(_INTERNED, _encode_bytes(2, entry))

    def _write_descriptor(self, data: bytes) -> None:
        self._write_packet(
            _encode_number(_SEQUENCE_ID, _SEQUENCE) + _encode_bytes(_DESCRIPTOR, data)
        )

    def _write_packet(self, data: bytes) -> None:
        self._write(_encode_bytes(_PACKET, data))


def _split_into_lines(slices: Slices) -> Iterator[list[int]]:
    """Rows that nest in each other, line by line: each on the first line that it fits."""
    order = sorted(range(len(slices.start)), key=lambda k: (slices.start[k], -slices.end[k]))
    lines: list[list[int]] = []
    open_until: list[list[int]] = []
    for row in order:  # what is open depends on all that came before
        start = slices.start[row]
        end = slices.end[row]
        line = next((k for k, ends in enumerate(open_until) if _is_nested(ends, start, end)), None)
        if line is None:
            line = len(lines)
            lines.append([])
            open_until.append([])
        lines[line].append(row)
        open_until[line].append(end)
    yield from lines


def _is_nested(open_until: list[int], start: int, end: int) -> bool:
    """Return whether a slice nests in what is still open when it begins; what ended is let go."""
    while open_until and open_until[-1] <= start:
        open_until.pop()
    return not open_until or end <= open_until[-1]


def _encode_varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _encode_number(field_number: int, value: int) -> bytes:
    return _encode_varint(field_number << 3) + _encode_varint(value)


def _encode_bytes(field_number: int, data: bytes | str) -> bytes:
    data = data.encode("utf8", "replace") if isinstance(data, str) else data
    return _encode_varint(field_number << 3 | 2) + _encode_varint(len(data)) + data


def _encode_fixed(field_number: int, value: int) -> bytes:
    return _encode_varint(field_number << 3 | 1) + struct.pack("<Q", value)


def _encode_double(field_number: int, value: float) -> bytes:
    return _encode_varint(field_number << 3 | 1) + struct.pack("<d", value)


def _encode_arguments(values: Fields) -> bytes:
    return b"".join(_encode_argument(key, value) for key, value in values.items())


def _encode_argument(key: str, value: object) -> bytes:
    """Return an argument: a text, a number, or a list as JSON."""
    encoded = _encode_bytes(10, key)
    if isinstance(value, bool):
        encoded += _encode_number(2, int(value))
    elif isinstance(value, int):
        encoded += _encode_number(4, value & 0xFFFFFFFFFFFFFFFF)
    elif isinstance(value, float):
        encoded += _encode_double(5, value)
    elif isinstance(value, Json):
        encoded += _encode_bytes(9, value)
    else:
        encoded += _encode_bytes(6, str(value))
    return _encode_bytes(_ARGUMENT, encoded)
