"""Kineto's events in Perfetto's format (protobuf): `.pftrace` and `.pftrace.gz`.

Written by the second back end of torch 2.15's profiler and by `htk convert --to perfetto`. The
packets are told again as Kineto's JSON, which its parser reads: arguments have one reader. Read:
slices with categories and arguments, instants, arrows, counters, and GPU work (render stages, as
torch writes it). Not in torch's files: the rank, the GPUs' properties, directions of copies. What
htk draws itself (its process says so) is left out.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

import msgspec

from htk.base.core.parser import Head, Parsed, ParseOptions, Source
from htk.base.errors import MalformedTrace
from htk.base.mappings import Fields
from htk.parsers.common.log_records import Issues, read_whole
from htk.parsers.common.perfetto_arguments import (
    Packet,
    read_argument,
    read_double,
    read_packets,
    read_text,
)
from htk.parsers.common.wire import BYTES, EIGHT_BYTES, VARINT, Cut, Field, read_fields, read_signed
from htk.parsers.kineto.processes import KEY as RANKS_KEY
from htk.parsers.kineto.retold import parse_retold, to_stamp

NAME = "kineto_perfetto"

DRAWN = "htk"  # the process of what htk draws: not recorded
HEADER = "recording"  # an instant of a process that htk writes, with what the file said of itself

# Fields of trace_packet.proto, track_descriptor.proto, track_event.proto, interned_data.proto,
# debug_annotation.proto, gpu_render_stage_event.proto and gpu_counter_event.proto.
_PACKET, _TIME, _SEQUENCE, _EVENT, _INTERNED, _FLAGS, _DESCRIPTOR = 1, 8, 10, 11, 12, 13, 60
_COUNTERS, _GPU_WORK = 52, 53
_BEGIN, _END, _INSTANT, _COUNTER = 1, 2, 3, 4
_CATEGORIES, _NAMES, _STAGES, _COUNTER_SPECS = 1, 2, 24, 47
_KERNELS, _LAUNCH_KEYS = 1000, 1001  # of torch's extension
_FLOW, _FLOW_END = 47, 48
_LAUNCH_ARGUMENTS = {
    "registers_per_thread": "registers per thread",
    "shared_mem_dynamic": "shared memory",
}
_EXTRA = {
    "device id": "device",
    "context id": "context",
    "stream id": "stream",
    "correlation": "correlation",
    "bytes": "bytes",
}
_ACTIVITIES = {"Kernel": "kernel", "Memcpy": "gpu_memcpy", "Memset": "gpu_memset"}
_FIRST_PACKETS = {6, _TIME, _SEQUENCE, _INTERNED, _FLAGS, 33, 36, _DESCRIPTOR, 58, 59}


def sniff(head: Head) -> bool:
    """Look for a packet that describes the file or a track, as no text begins."""
    data = head.data
    try:
        packet = next(read_fields(data, 0, len(data)))
        if packet.number != _PACKET or packet.kind != BYTES or b"begin_ns" in data:
            return False
        numbers = {part.number for part in read_fields(data, packet.start, packet.end)}
    except (Cut, StopIteration):
        return False
    return bool(numbers) and numbers <= _FIRST_PACKETS


@dataclass
class _Track:
    """Whose slices stand on a track, and its name."""

    name: str = ""
    parent: int = 0
    pid: int | None = None
    tid: int | None = None
    is_drawn: bool = False


class _Mark(NamedTuple):
    """The begin of a slice, or an end (no event)."""

    time: int
    event: dict[str, Any] | None


@dataclass
class _Reader:
    """Events of a file, as Kineto's JSON has them."""

    data: bytes
    issues: Issues
    events: list[dict[str, Any]] = field(default_factory=list)
    ranks: list[dict[str, Any]] = field(default_factory=list)
    _tracks: dict[int, _Track] = field(default_factory=lambda: defaultdict(_Track))
    _marks: dict[int, list[_Mark]] = field(default_factory=lambda: defaultdict(list))
    _open: Counter[int] = field(default_factory=Counter)
    _texts: dict[int, dict[int, dict[int, Any]]] = field(default_factory=dict)

    def read(self) -> None:
        read_packets(self.data, self.issues, self._read_packet)
        for uuid in list(self._marks):
            self._pair(uuid)

    def _read_packet(self, packet: Packet) -> None:
        if packet.clears_text or packet.sequence not in self._texts:
            self._texts[packet.sequence] = defaultdict(dict)
        texts = self._texts[packet.sequence]
        parts = packet.parts
        time = packet.time
        if _INTERNED in parts:
            self._intern_texts(parts[_INTERNED], texts)
        if _DESCRIPTOR in parts:
            self._describe(parts[_DESCRIPTOR])
        if _EVENT in parts:
            self._read_event(parts[_EVENT], time, texts)
        if _GPU_WORK in parts:
            self._read_gpu_work(parts[_GPU_WORK], time, texts)
        if _COUNTERS in parts:
            self._read_counters(parts[_COUNTERS], time, texts)

    def _intern_texts(self, interned: Field, texts: dict[int, dict[int, Any]]) -> None:
        for entry in self._read_parts(interned):
            number = 0
            text: str | None = None
            specs = {}
            for part in self._read_parts(entry) if entry.kind == BYTES else ():
                if part.number == 1 and part.kind == VARINT:
                    number = part.value
                elif part.number in (2, 3) and part.kind == BYTES:
                    if entry.number == _COUNTER_SPECS:
                        specs = self._read_specs(part)
                    else:
                        text = read_text(self.data, part)
            texts[entry.number][number] = specs if entry.number == _COUNTER_SPECS else text or ""

    def _read_specs(self, descriptor: Field) -> dict[int, str]:
        """Return the names of a device's counters by their numbers."""
        names: dict[int, str] = {}
        for spec in self._read_parts(descriptor):
            if spec.number == 1 and spec.kind == BYTES:
                inner = {part.number: part for part in self._read_parts(spec)}
                if 1 in inner and 2 in inner:
                    names[inner[1].value] = read_text(self.data, inner[2])
        return names

    def _describe(self, descriptor: Field) -> None:
        track = _Track()
        uuid = 0
        for part in self._read_parts(descriptor):
            if part.kind == VARINT and part.number == 1:
                uuid = part.value
            elif part.kind == VARINT and part.number == 5:
                track.parent = part.value
            elif part.kind == BYTES and part.number == 2:
                track.name = read_text(self.data, part)
            elif part.kind == BYTES and part.number in (3, 4):
                inner = {inside.number: inside for inside in self._read_parts(part)}
                if 1 in inner:
                    track.pid = inner[1].value
                if part.number == 4 and 2 in inner:
                    track.tid = inner[2].value
                name = inner.get(6)
                track.is_drawn = part.number == 3 and name is not None
                track.is_drawn = track.is_drawn and read_text(self.data, inner[6]) == DRAWN
        self._tracks[uuid] = track

    def _find_owner(self, uuid: int) -> tuple[int, int | str, bool]:
        """Return the process and thread of a track, its own or its parent's, and whether htk drew
        it."""
        track = self._tracks[uuid]
        parent = self._tracks[track.parent] if track.parent else track
        pid = track.pid if track.pid is not None else parent.pid
        numbers = (tid for tid in (track.tid, parent.tid) if tid is not None)
        return pid or 0, next(numbers, track.name), track.is_drawn or parent.is_drawn

    def _read_event(self, event: Field, time: int, texts: dict[int, dict[int, Any]]) -> None:
        kind = 0
        uuid = 0
        value: float | int = 0
        name = ""
        category = ""
        arguments: dict[str, Any] = {}
        arrows: list[tuple[str, int]] = []
        for part in self._read_parts(event):
            if part.number == 9 and part.kind == VARINT:
                kind = part.value
            elif part.number == 11:
                uuid = part.value
            elif part.number == 10:
                name = texts[_NAMES].get(part.value, "")
            elif part.number == 23 and part.kind == BYTES:
                name = read_text(self.data, part)
            elif part.number == 3:
                category = texts[_CATEGORIES].get(part.value, "")
            elif part.number == 22 and part.kind == BYTES:
                category = read_text(self.data, part)
            elif part.number == 4 and part.kind == BYTES:
                key, argument = read_argument(self.data, part, texts)
                arguments[key] = argument
            elif part.number in (_FLOW, _FLOW_END) and part.kind == EIGHT_BYTES:
                number = int.from_bytes(self.data[part.start : part.end], "little")
                arrows.append(("s" if part.number == _FLOW else "f", number))
            elif part.number == 30 and part.kind == VARINT:
                value = read_signed(part.value)
            elif part.number == 44 and part.kind == EIGHT_BYTES:
                value = read_double(self.data, part)
        pid, tid, is_drawn = self._find_owner(uuid)
        if is_drawn:
            return
        if kind == _END:
            self._marks[uuid].append(_Mark(time, None))
            self._open[uuid] -= 1
            if self._open[uuid] <= 0:
                self._pair(uuid)
            return
        event_fields = {"name": name, "cat": category, "pid": pid, "tid": tid, "ts": to_stamp(time)}
        if kind == _BEGIN:
            self._marks[uuid].append(_Mark(time, {**event_fields, "ph": "X", "args": arguments}))
            self._open[uuid] += 1
            for phase, number in arrows:
                arrow = {**event_fields, "cat": "ac2g", "ph": phase, "id": number}
                self.events.append(arrow | ({"bp": "e"} if phase == "f" else {}))
        elif kind == _INSTANT and name == HEADER:
            self._take_header(pid, arguments)
        elif kind == _INSTANT:
            self.events.append({**event_fields, "ph": "i", "args": arguments})
        elif kind == _COUNTER:
            counter = {"name": self._tracks[uuid].name, "args": {"": value}}
            self.events.append({**event_fields, **counter, "ph": "C"})

    def _pair(self, uuid: int) -> None:
        """Give the slices of a track that are complete by now their lengths.

        In order of time an end is that of the slice that began last. torch writes all begins of a
        kind and then, in the same order, all their ends.
        """
        marks = self._marks.pop(uuid, [])
        self._open[uuid] = 0
        begins = [mark for mark in marks if mark.event is not None]
        ends = [mark for mark in marks if mark.event is None]
        in_order = all(a.time <= b.time for a, b in pairwise(marks))
        if not in_order and marks == [*begins, *ends]:
            pairs = list(zip(begins, ends, strict=False))
        else:
            pairs = _pair_nested(marks if in_order else sorted(marks, key=lambda mark: mark.time))
        for begin, end in pairs:
            assert begin.event is not None
            length = to_stamp(max(end.time - begin.time, 0))
            self.events.append({**begin.event, "dur": length})
        lost = len(marks) - 2 * len(pairs)
        if lost:
            self.issues.add("no_duration", "slices without a begin or an end, left out", count=lost)

    def _take_header(self, pid: int, arguments: dict[str, Any]) -> None:
        """Take what htk wrote of a rank; the parser of Kineto's JSON trusts nothing in it."""
        try:
            header = msgspec.json.decode(str(arguments.get("header", "{}")))
        except msgspec.DecodeError:
            return
        if isinstance(header, dict):
            self.ranks.append({"processes": [pid], "header": header})

    def _read_gpu_work(self, event: Field, time: int, texts: dict[int, dict[int, Any]]) -> None:
        """Take a kernel, copy or set, of which torch writes a render stage."""
        length = 0
        stage = ""
        name = ""
        arguments: dict[str, Any] = {}
        for part in self._read_parts(event):
            if part.number == 2:
                length = part.value
            elif part.number == 14:
                stage = texts[_STAGES].get(part.value, "")
            elif part.number == 19:
                name = texts[_KERNELS].get(part.value, "")
            elif part.number == 21 and part.kind == BYTES:
                arguments |= self._launch_arguments(part, texts)
            elif part.number == 6 and part.kind == BYTES:
                texts_of = [inner for inner in self._read_parts(part) if inner.kind == BYTES]
                pair = {inner.number: read_text(self.data, inner) for inner in texts_of}
                key = _EXTRA.get(pair.get(1, ""))
                if key and pair.get(2, "").isdigit():
                    arguments[key] = int(pair[2])
        if stage not in _ACTIVITIES:
            return
        where = {"pid": arguments.get("device", 0), "tid": arguments.get("stream", 0)}
        times = {"ts": to_stamp(time), "dur": to_stamp(length)}
        event_fields = {"ph": "X", "cat": _ACTIVITIES[stage], "name": name or stage}
        self.events.append({**event_fields, **where, **times, "args": arguments})

    def _launch_arguments(self, launch: Field, texts: dict[int, dict[int, Any]]) -> dict[str, Any]:
        """Return the grid, the block and what else a kernel was launched with."""
        arguments: dict[str, Any] = {}
        for part in self._read_parts(launch):
            inner = {inside.number: inside.value for inside in self._read_parts(part)}
            if part.number in (1, 2):
                arguments["grid" if part.number == 1 else "block"] = [
                    inner.get(axis, 1) for axis in (1, 2, 3)
                ]
            elif part.number == 3:
                key = _LAUNCH_ARGUMENTS.get(texts[_LAUNCH_KEYS].get(inner.get(1, 0), ""))
                if key:
                    arguments[key] = inner.get(4, 0)
        return arguments

    def _read_counters(self, event: Field, time: int, texts: dict[int, dict[int, Any]]) -> None:
        specs: dict[int, str] = {}
        values = []
        for part in self._read_parts(event):
            if part.number == 4 and part.kind == VARINT:
                specs = texts[_COUNTER_SPECS].get(part.value, {})
            elif part.number == 2 and part.kind == BYTES:
                values.append({inner.number: inner for inner in self._read_parts(part)})
        for counter in values:
            name = specs.get(counter[1].value) if 1 in counter else None
            if name is None:
                continue
            written = counter.get(2) or counter.get(3)
            value: float | int = 0
            if written is not None:
                is_whole = written.kind == VARINT
                value = read_signed(written.value) if is_whole else read_double(self.data, written)
            where = {"pid": "GPU 0 Counters", "ts": to_stamp(time)}
            self.events.append({"ph": "C", "name": name, **where, "args": {"": value}})

    def _read_parts(self, message: Field) -> Iterator[Field]:
        return read_fields(self.data, message.start, message.end)


def _pair_nested(marks: list[_Mark]) -> list[tuple[_Mark, _Mark]]:
    """Return begins and ends, each end that of the slice which began last."""
    pairs = []
    still_open: list[_Mark] = []
    for mark in marks:
        if mark.event is not None:
            still_open.append(mark)
        elif still_open:
            pairs.append((still_open.pop(), mark))
    return pairs


def tell_as_kineto(data: bytes, issues: Issues, more: Fields | None = None) -> bytes:
    """Return the packets of a file as Kineto's JSON, with `more` in its header; nothing where they
    hold no slice."""
    reader = _Reader(data, issues)
    reader.read()
    if not reader.events:
        return b""
    header = reader.ranks[0]["header"] if reader.ranks else {}
    listed = {RANKS_KEY: reader.ranks} if len(reader.ranks) > 1 else {}
    return msgspec.json.encode({**header, **listed, **(more or {}), "traceEvents": reader.events})


def parse(source: Source, options: ParseOptions) -> Parsed:
    issues = Issues()
    text = tell_as_kineto(read_whole(source, issues, options.progress), issues)
    if not text:
        raise MalformedTrace(
            f"{source.name}: a Perfetto trace without slices, expected events of PyTorch's "
            "profiler; `htk formats` shows what htk reads"
        )
    return parse_retold(text, source, options, issues)
