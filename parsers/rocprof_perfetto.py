"""rocprofv3: the Perfetto trace that `rocprofv3 --output-format pftrace` writes, one a process.

Read: kernel dispatches, memory copies, calls of HIP and HSA, ranges of roctx, calls of RCCL. Every
event of rocprofv3 has its times, thread and correlation among its annotations, so that neither
tracks nor the clocks of packets are needed. Not in the file: extents of grids (only their product),
names of GPUs, the rank. A device is the number of its agent, as `--agent-index` counts them. Where
kernels of one queue overlap, rocprofv3 moves their ends in this output; its database keeps them.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from htk.base.columns.arrow import build_texts
from htk.base.columns.types import Ints, fill_none
from htk.base.core.parser import Head, Parsed, ParseOptions, Source
from htk.base.core.stated_counts import DEVICE, INDEX
from htk.base.errors import MalformedTrace
from htk.parsers.common.log_records import Issues, read_whole
from htk.parsers.common.perfetto_arguments import (
    KEYS,
    TEXTS,
    Packet,
    read_argument,
    read_packets,
    read_text,
)
from htk.parsers.common.rocprof_tables import ApiCalls, GpuWork, kernel_name, one_process
from htk.parsers.common.span_tables import FARTHEST_NS
from htk.parsers.common.wire import BYTES, VARINT, Field, read_fields

NAME = "rocprof_perfetto"

# Fields of trace_packet.proto, track_event.proto, debug_annotation.proto, interned_data.proto and
# track_descriptor.proto.
_EVENT, _INTERNED, _DESCRIPTOR = 11, 12, 60
_BEGIN = 1  # of TrackEvent.type
_CATEGORY_ID, _ANNOTATION, _TYPE, _NAME_ID, _CATEGORY, _NAME = 3, 4, 9, 10, 22, 23
_CATEGORIES, _NAMES = 1, 2  # tables of interned text
_PROCESS = 3
_THREAD = 4
_LAST_MARKER_KIND = 9  # of the calls of roctx; ranges have a later one
_DOMAINS = {
    "hip_api": "HIP_RUNTIME_API",
    "hsa_api": "HSA_CORE_API",
    "rccl_api": "RCCL_API",
    "rocdecode_api": "ROCDECODE_API",
    "rocjpeg_api": "ROCJPEG_API",
}
_GPU_WORK = ("kernel_dispatch", "memory_copy")
_SORTS = (*_GPU_WORK, *_DOMAINS, "marker_api")
_MARKS = tuple(name.encode() for name in _SORTS)
_LAST_NUMBER = re.compile(r"(\d{1,9})\D*$")


def sniff(head: Head) -> bool:
    data = head.data
    return data[:1] == b"\n" and b"begin_ns" in data and any(mark in data for mark in _MARKS)


@dataclass
class _Event:
    """What an event says of itself."""

    sort: str
    name: str
    values: dict[str, Any]

    def number(self, *keys: str) -> int:
        """Return the first of the values that is a whole number, or -1."""
        for key in keys:
            value = self.values.get(key)
            if isinstance(value, int):
                return value
        return -1


@dataclass
class _Reader:
    """Events of a trace; interned text belongs to a sequence of packets."""

    data: bytes
    issues: Issues
    events: dict[str, list[_Event]] = field(default_factory=lambda: defaultdict(list))
    pid: int = 0
    _text: dict[int, dict[int, dict[int, str]]] = field(default_factory=dict)

    def read(self) -> None:
        read_packets(self.data, self.issues, self._read_packet)

    def _read_packet(self, packet: Packet) -> None:
        sequence = packet.sequence
        parts = packet.parts
        if packet.clears_text or sequence not in self._text:
            self._text[sequence] = {k: {} for k in (_CATEGORIES, _NAMES, KEYS, TEXTS)}
        text = self._text[sequence]
        if _INTERNED in parts:
            self._intern_texts(parts[_INTERNED], text)
        if _DESCRIPTOR in parts and not self.pid:
            self._describe(parts[_DESCRIPTOR])
        if _EVENT in parts:
            self._read_event(parts[_EVENT], text)

    def _intern_texts(self, interned: Field, text: dict[int, dict[int, str]]) -> None:
        for entry in read_fields(self.data, interned.start, interned.end):
            if entry.kind != BYTES or entry.number not in text:
                continue
            number = 0
            name = ""
            for part in read_fields(self.data, entry.start, entry.end):
                if part.number == 1 and part.kind == VARINT:
                    number = part.value
                elif part.number == 2 and part.kind == BYTES:
                    name = read_text(self.data, part)
            text[entry.number][number] = name

    def _describe(self, descriptor: Field) -> None:
        """Take the process from the description of the main thread's track."""
        for part in read_fields(self.data, descriptor.start, descriptor.end):
            if part.number in (_PROCESS, _THREAD) and part.kind == BYTES:
                for inner in read_fields(self.data, part.start, part.end):
                    if inner.number == 1 and inner.kind == VARINT and INDEX.believes(inner.value):
                        self.pid = self.pid or inner.value

    def _read_event(self, event: Field, text: dict[int, dict[int, str]]) -> None:
        category = name = ""
        kind = 0
        annotations = []
        for part in read_fields(self.data, event.start, event.end):
            if part.kind == VARINT:
                if part.number == _TYPE:
                    kind = part.value
                elif part.number == _CATEGORY_ID:
                    category = text[_CATEGORIES].get(part.value, "")
                elif part.number == _NAME_ID:
                    name = text[_NAMES].get(part.value, "")
            elif part.kind == BYTES:
                if part.number == _ANNOTATION:
                    annotations.append(part)
                elif part.number == _CATEGORY:
                    category = read_text(self.data, part)
                elif part.number == _NAME:
                    name = read_text(self.data, part)
        if kind == _BEGIN and category in _SORTS:
            values = dict(read_argument(self.data, part, text) for part in annotations)
            self.events[category].append(_Event(category, name or "unknown", values))


def parse(source: Source, options: ParseOptions) -> Parsed:
    issues = Issues(options.keep_overruns)
    reader = _Reader(read_whole(source, issues, options.progress), issues)
    reader.read()
    timed = {
        sort: list(_select_timed(events, sort, issues)) for sort, events in reader.events.items()
    }
    if not any(timed.values()):
        raise MalformedTrace(
            f"{source.name}: a Perfetto trace without a kernel, copy, call or range of rocprofv3; "
            "record with: rocprofv3 --kernel-trace --hip-trace --output-format pftrace -- …"
        )
    gpus = {_read_agent(event, "agent") for event in timed.get("kernel_dispatch", ())}
    devices = {number for number in map(_parse_device, gpus) if number >= 0}
    facts: dict[str, object] = {"base_time_ns": 0}
    facts["host_device"] = devices.pop() if len(devices) == 1 else None
    calls = [event for sort in (*_DOMAINS, "marker_api") for event in timed.get(sort, ())]
    return one_process(
        NAME,
        reader.pid,
        _read_kernels(timed.get("kernel_dispatch", [])),
        _read_copies(timed.get("memory_copy", []), gpus),
        ApiCalls(
            build_texts([event.name for event in calls]),
            *_read_common(calls),
            _read_event_numbers(calls, "tid"),
            build_texts([_find_domain(event) for event in calls]),
        ),
        facts,
        None,
        issues,
    )


def _select_timed(events: Sequence[_Event], sort: str, issues: Issues) -> Iterator[_Event]:
    lost = 0
    for event in events:
        if 0 < event.number("begin_ns") <= event.number("end_ns") < FARTHEST_NS:
            yield event
        else:
            lost += 1
    if lost:
        issues.add("no_time", f"{sort}: without a usable time", count=lost)


def _read_kernels(events: Sequence[_Event]) -> GpuWork:
    own = _read_event_numbers(events, "VGPR_Count")
    accumulated = _read_event_numbers(events, "Accum_VGPR_Count")
    unknown = fill_none(len(events))
    return GpuWork(
        build_texts([kernel_name(event.name) for event in events]),
        *_read_common(events),
        np.array([_parse_device(_read_agent(event, "agent")) for event in events], np.int64),
        _read_event_numbers(events, "stream_ID", "queue"),
        _read_event_numbers(events, "LDS_Block_Size", "group_segment_size"),
        np.where((own >= 0) & (accumulated >= 0), own + accumulated, -1),
        (unknown, unknown, unknown),
        (unknown, unknown, unknown),
    )


def _read_copies(events: Sequence[_Event], gpus: set[str]) -> GpuWork:
    """Return a copy belongs to the GPU that it reaches, else to the one that it leaves."""
    unknown = fill_none(len(events))
    return GpuWork(
        build_texts([event.name for event in events]),
        *_read_common(events),
        np.array([_device_of_copy(event, gpus) for event in events], np.int64),
        _read_event_numbers(events, "stream_ID"),
        _read_event_numbers(events, "copy_bytes"),
        unknown,
        (unknown, unknown, unknown),
        (unknown, unknown, unknown),
    )


def _device_of_copy(event: _Event, gpus: set[str]) -> int:
    for key in ("dst_agent", "src_agent"):
        agent = _read_agent(event, key)
        if agent in gpus or agent.startswith("GPU"):
            return _parse_device(agent)
    return -1


def _read_agent(event: _Event, key: str) -> str:
    """Return an agent as the file writes it: `GPU-1`, `Agent-5`, or 5."""
    return str(event.values.get(key, ""))


def _parse_device(agent: str) -> int:
    number = _LAST_NUMBER.search(agent)
    return int(number[1]) if number and DEVICE.believes(int(number[1])) else -1


def _find_domain(event: _Event) -> str:
    if event.sort != "marker_api":
        return _DOMAINS[event.sort]
    later = event.number("kind") > _LAST_MARKER_KIND
    return "MARKER_CORE_RANGE_API" if later else "MARKER_CORE_API"


def _read_common(events: Sequence[_Event]) -> tuple[Ints, Ints, Ints]:
    return (
        _read_event_numbers(events, "begin_ns"),
        _read_event_numbers(events, "end_ns"),
        _read_event_numbers(events, "corr_id"),
    )


def _read_event_numbers(events: Sequence[_Event], *keys: str) -> Ints:
    return np.array([event.number(*keys) for event in events], np.int64)
