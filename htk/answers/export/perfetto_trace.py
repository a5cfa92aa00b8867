"""A trace in Perfetto's own format (protobuf), from the tables: whatever the ranks were read from.

Each rank is a process with its threads (operators, ranges, Python and runtime calls) and GPU
streams; arrows lead from a launch to what it started. Clocks are aligned where they could be
compared. What does not nest on a thread or a stream stands on a line below it, at its own time.
"""

import struct
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import numpy as np
import pyarrow as pa

from htk.answers.export.rewrite import part_of
from htk.base.columns.arrow import numbers, truths
from htk.base.columns.types import NONE, Ints
from htk.base.errors import MissingTable
from htk.quantities.derived.clocks import corrections
from htk.traces.trace.trace import Trace

_HOST = ("cpu_ops", "annotations", "python_calls", "launches")
_SEQUENCE = 1
# Fields of trace_packet.proto, track_descriptor.proto, track_event.proto, interned_data.proto.
_PACKET, _TIME, _SEQUENCE_ID, _FLAGS, _EVENT, _INTERNED, _DESCRIPTOR = 1, 8, 10, 13, 11, 12, 60
_CLEARED, _NEEDED = 1, 2  # of sequence_flags
_BEGIN, _END = 1, 2  # of TrackEvent.type
_FLOW = 47
_FLOW_END = 48


@dataclass
class _Slices:
    """What stands on one track and its lines."""

    name: list[str] = field(default_factory=list)
    start: list[int] = field(default_factory=list)
    end: list[int] = field(default_factory=list)
    flows: list[tuple[int, ...]] = field(default_factory=list)


def write_perfetto(trace: Trace, folder: Path) -> tuple[Path, int]:
    """Write folder/trace.pftrace; the file, and how many slices it holds."""
    target = folder / "trace.pftrace"
    starts = [trace.tables[name]["start_ns"] for name in (*_HOST, "kernels")]
    if not any(len(column) for column in starts):
        raise MissingTable("no operator, range, call or GPU activity to draw")
    clocks = trace.tables["rank_clocks"]
    earliest = min(int(numbers(c).min()) for c in starts if len(c))
    shifts = corrections(clocks, np.array(trace.ranks), np.full(len(trace.ranks), earliest))
    origin = earliest + min(int(shifts.min(initial=0)), 0)
    with part_of(target) as out:
        writer = _Writer(out.write)
        for rank in trace.ranks:
            _write_rank(trace.sel(ranks=[rank]), rank, clocks, origin, writer)
    return target, writer.slices


def _write_rank(trace: Trace, rank: int, clocks: pa.Table, origin: int, writer: "_Writer") -> None:
    def moments(table: pa.Table, column: str) -> Ints:
        times = numbers(table[column])
        moved = times + corrections(clocks, np.full(len(times), rank), times) - origin
        return np.maximum(moved, 0)

    process = writer.process(rank)
    flow = writer.reserve_flows(trace.tables["kernels"].num_rows)
    for name, slices in _threads(trace, moments, flow).items():
        writer.track(slices, name, process, rank)
    for name, slices in _streams(trace, moments, flow).items():
        writer.track(slices, name, process)


_Moments = Callable[[pa.Table, str], Ints]


def _threads(trace: Trace, moments: _Moments, flow: int) -> dict[str, _Slices]:
    """Calls and ranges by thread; a launch begins an arrow for each activity that it started."""
    launched = numbers(trace.tables["kernel_links"]["launch_row"], NONE)
    arrows: dict[int, list[int]] = defaultdict(list)
    for activity, call in enumerate(launched.tolist()):  # a packet each: see _Writer
        if call != NONE:
            arrows[call].append(flow + activity)
    slices: dict[str, _Slices] = defaultdict(_Slices)
    for table_name in _HOST:
        table = trace.tables[table_name]
        if table_name == "annotations":
            table = table.filter(pa.array(~truths(table["on_gpu"])))
        flows = arrows if table_name == "launches" else {}
        _gather(slices, table, moments, [table["process"], table["thread"]], "thread {1}", flows)
    return dict(slices)


def _streams(trace: Trace, moments: _Moments, flow: int) -> dict[str, _Slices]:
    kernels = trace.tables["kernels"]
    launched = numbers(trace.tables["kernel_links"]["launch_row"], NONE) != NONE
    flows = {int(k): [flow + int(k)] for k in np.flatnonzero(launched)}
    slices: dict[str, _Slices] = defaultdict(_Slices)
    places = [kernels["device"], kernels["stream"]]
    _gather(slices, kernels, moments, places, "GPU {0}, stream {1}", flows)
    return dict(sorted(slices.items()))


def _gather(
    tracks: dict[str, _Slices],
    table: pa.Table,
    moments: _Moments,
    places: list[pa.ChunkedArray],
    pattern: str,
    flows: dict[int, list[int]],
) -> None:
    columns = [table["name"].to_pylist(), *(column.to_pylist() for column in places)]
    times = [moments(table, "start_ns").tolist(), moments(table, "end_ns").tolist()]
    rows = zip(*columns, *times, strict=True)
    for row, (name, first, second, start, end) in enumerate(rows):  # the format is row by row
        slices = tracks[pattern.format(first, second)]
        slices.name.append(name or "unnamed")
        slices.start.append(start)
        slices.end.append(max(end, start))
        slices.flows.append(tuple(flows.get(row, ())))


class _Writer:
    """Packets of one sequence; names are numbered as they occur."""

    def __init__(self, write: Callable[[bytes], object]) -> None:
        self._write = write
        self._names: dict[str, int] = {}
        self._uuids = count(1)
        self._threads = count(1)
        self._head = _number(_SEQUENCE_ID, _SEQUENCE) + _number(_FLAGS, _NEEDED)
        self._flows = 1
        self.slices = 0
        self._packet(_number(_SEQUENCE_ID, _SEQUENCE) + _number(_FLAGS, _CLEARED))

    def reserve_flows(self, activities: int) -> int:
        """Return the first of as many arrows' numbers, which no other rank uses."""
        first = self._flows
        self._flows += activities
        return first

    def process(self, rank: int) -> int:
        uuid = next(self._uuids)
        described = _number(1, rank + 1) + _bytes(6, f"rank {rank}")
        self._descriptor(_number(1, uuid) + _bytes(3, described))
        return uuid

    def track(self, slices: _Slices, name: str, process: int, rank: int | None = None) -> None:
        """A thread (of a rank's process), or a line of its own below the process."""
        for k, rows in enumerate(_lines(slices)):
            uuid = next(self._uuids)
            described = _number(1, uuid) + _number(5, process)
            if rank is not None and k == 0:
                thread = _number(1, rank + 1) + _number(2, next(self._threads)) + _bytes(5, name)
                described += _bytes(4, thread)
            else:
                described += _bytes(2, name if rank is None else f"{name}, not nested")
            self._descriptor(described)
            self._events(slices, rows, uuid, _FLOW if rank is not None else _FLOW_END)

    def _events(self, slices: _Slices, rows: list[int], uuid: int, flow: int) -> None:
        """Begins and ends in the order in which they nest."""
        begin, end = (_number(9, kind) + _number(11, uuid) for kind in (_BEGIN, _END))
        closing = _bytes(_EVENT, end)
        still_open: list[int] = []
        for row in rows:
            start = slices.start[row]
            while still_open and slices.end[still_open[-1]] <= start:
                closed = slices.end[still_open.pop()]
                self._packet(_number(_TIME, closed) + self._head + closing)
            number, interned = self._name(slices.name[row])
            arrows = b"".join(_fixed(flow, k) for k in slices.flows[row])
            event = _bytes(_EVENT, begin + _number(10, number) + arrows)
            self._packet(_number(_TIME, start) + self._head + interned + event)
            still_open.append(row)
            self.slices += 1
        for row in reversed(still_open):
            self._packet(_number(_TIME, slices.end[row]) + self._head + closing)

    def _name(self, name: str) -> tuple[int, bytes]:
        """Return the number of a name, and what tells it where it is new."""
        interned = self._names.get(name)
        if interned is not None:
            return interned, b""
        number = self._names[name] = len(self._names) + 1
        entry = _number(1, number) + _bytes(2, name)
        return number, _bytes(_INTERNED, _bytes(2, entry))

    def _descriptor(self, data: bytes) -> None:
        self._packet(_number(_SEQUENCE_ID, _SEQUENCE) + _bytes(_DESCRIPTOR, data))

    def _packet(self, data: bytes) -> None:
        self._write(_bytes(_PACKET, data))


def _lines(slices: _Slices) -> Iterator[list[int]]:
    """Rows that nest in each other, line by line: each on the first line that it fits."""
    order = sorted(range(len(slices.start)), key=lambda k: (slices.start[k], -slices.end[k]))
    lines: list[list[int]] = []
    open_until: list[list[int]] = []
    for row in order:  # what is open depends on all that came before
        start = slices.start[row]
        end = slices.end[row]
        line = next((k for k, ends in enumerate(open_until) if _fits(ends, start, end)), None)
        if line is None:
            line = len(lines)
            lines.append([])
            open_until.append([])
        lines[line].append(row)
        open_until[line].append(end)
    yield from lines


def _fits(open_until: list[int], start: int, end: int) -> bool:
    """Return whether a slice nests in what is still open when it begins; what ended is let go."""
    while open_until and open_until[-1] <= start:
        open_until.pop()
    return not open_until or end <= open_until[-1]


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _number(field_number: int, value: int) -> bytes:
    return _varint(field_number << 3) + _varint(value)


def _bytes(field_number: int, data: bytes | str) -> bytes:
    data = data.encode("utf8", "replace") if isinstance(data, str) else data
    return _varint(field_number << 3 | 2) + _varint(len(data)) + data


def _fixed(field_number: int, value: int) -> bytes:
    return _varint(field_number << 3 | 1) + struct.pack("<Q", value)
