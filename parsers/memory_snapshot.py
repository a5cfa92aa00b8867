"""CUDA memory snapshots: `torch.cuda.memory._dump_snapshot("snapshot.pickle")`.

A pickle of plain containers: `segments` (what the allocator held when it was written) and, where
`_record_memory_history` was on, `device_traces` (each allocation and release with its stack, since
torch 2.0). It is read by an unpickler that knows no global. Not read: private pools, the
allocator's settings, annotations.

What was held before the history began is told by the end: held at the end less what the history
added. Times are microseconds of the host's clock; snapshots without history hold none.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from htk.base.core.parser import Head, Parsed, ParseOptions, Source
from htk.base.errors import MalformedTrace
from htk.base.mappings import Facts, Fields
from htk.base.schema.profile import ALLOCATION, FAILED_ALLOCATION
from htk.parsers.common.log_records import (
    Issues,
    read_whole,
    table_of,
    text_or_none,
    whole_number,
)
from htk.parsers.common.safe_pickle import RefusedPickle, is_pickle, load_plain

NAME = "memory_snapshot"

_CUDA = 1  # c10::DeviceType
_FRAMES = 12  # of a stack
_MOST_DEVICES = 1024
_MOST_FRAMES = 1000  # C++ ones between them
_TEXT = 1000  # characters of a name
_MOST_BYTES = 1 << 50  # of one allocation
_FURTHEST_US = (1 << 61) // 1000
_KEPT = {"active_allocated", "active_pending_free", "active_awaiting_free"}


def sniff(head: Head) -> bool:
    return is_pickle(head.data) and b"segments" in head.data[:200] and _is_marked(head.data)


def _is_marked(data: bytes) -> bool:
    return b"device_traces" in data or b"total_size" in data


def parse(source: Source, options: ParseOptions) -> Parsed:
    issues = Issues()
    snapshot = _unpickle_snapshot(read_whole(source, issues, options.progress), source.name)
    segments = [_read_segment(s, issues) for s in _read_dicts(snapshot, "segments", issues)]
    traces = _read_list(snapshot, "device_traces", issues)
    devices = {s.device for s in segments}
    rows: list[Fields] = []
    if len(traces) > _MOST_DEVICES or len(devices) > _MOST_DEVICES:
        raise MalformedTrace(
            f"{source.name}: a memory snapshot of more than {_MOST_DEVICES} devices"
        )
    for device in sorted(devices | {k for k, t in enumerate(traces) if t}):
        trace = traces[device] if device < len(traces) else []
        if not isinstance(trace, list):
            issues.add("mistyped_value", f"the history of device {device} is no list")
            trace = []
        held = [s for s in segments if s.device == device]
        rows += _list_history(device, held, trace, issues)
    if not rows:
        raise MalformedTrace(f"{source.name}: a memory snapshot without memory segments or events")
    for event, row in enumerate(rows):
        row["event"] = event
    times = [row["time_ns"] for row in rows]
    facts: dict[str, object] = {"events": len(rows), "recorded": "memory_history"}
    facts |= {"start_ns": min(times), "end_ns": max(times)}
    table = table_of("memory", rows, of_one_rank=True)
    return Parsed({"memory": table, "parse_issues": issues.table()}, facts=facts)


class _Segment(NamedTuple):
    """Memory that the allocator had reserved when the snapshot was written."""

    device: int
    reserved_bytes: int
    allocated_bytes: int


def _read_segment(segment: Facts, issues: Issues) -> _Segment:
    """Read a segment; what in it is of another type than it should be counts as an issue."""
    device = whole_number(segment.get("device"))
    if device is None or not 0 <= device < _MOST_DEVICES:
        issues.add("mistyped_value", f"device of a segment: {_type_of(segment, 'device')}")
        device = 0
    blocks = _read_dicts(segment, "blocks", issues)
    kept = [b for b in blocks if text_or_none(b.get("state")) in _KEPT]
    allocated = sum(_read_bytes(b, "size", issues) for b in kept)
    return _Segment(device, _read_bytes(segment, "total_size", issues), allocated)


def _read_bytes(holder: Facts, key: str, issues: Issues) -> int:
    size = whole_number(holder.get(key))
    if size is None or abs(size) >= _MOST_BYTES:
        issues.add("mistyped_value", f"{key}: {_type_of(holder, key)}")
        return 0
    return size


def _list_history(
    device: int, segments: list[_Segment], trace: list[Any], issues: Issues
) -> Iterator[Fields]:
    """The events of a device in order; first what it held before, or all that it holds."""
    events = [e for e in trace if isinstance(e, dict) and _is_event(e)]
    if len(events) < len(trace):
        issues.add("broken_event", "no size or time", count=len(trace) - len(events))
    allocated = sum(s.allocated_bytes for s in segments) - sum(_measure_growth(e) for e in events)
    reserved = sum(s.reserved_bytes for s in segments) - sum(_measure_reserved(e) for e in events)
    start = _read_time(events[0]) if events else 0
    common = {"device_type": _CUDA, "device": device}
    yield common | {
        "name": ALLOCATION,
        "time_ns": start,
        "size_bytes": allocated,
        "allocated_bytes": allocated,
        "reserved_bytes": reserved,
    }
    stacks: dict[int, str | None] = {}  # by the list of frames, which events share
    for event in events:
        allocated += _measure_growth(event)
        reserved += _measure_reserved(event)
        failed = event.get("action") == "oom"
        frames = event.get("frames")
        if id(frames) not in stacks:
            stacks[id(frames)] = _spell_stack(frames)
        yield common | {
            "name": FAILED_ALLOCATION if failed else ALLOCATION,
            "time_ns": _read_time(event),
            "address": _spell_address(event.get("addr")),
            "size_bytes": _read_size(event) if failed else _measure_growth(event),
            "allocated_bytes": allocated,
            "reserved_bytes": reserved,
            "call_stack": stacks[id(frames)],
        }


def _measure_growth(event: Facts) -> int:
    sign = {"alloc": 1, "free_completed": -1}.get(event.get("action", ""), 0)
    return sign * _read_size(event)


def _measure_reserved(event: Facts) -> int:
    sign = {"segment_alloc": 1, "segment_map": 1, "segment_free": -1, "segment_unmap": -1}
    return sign.get(event.get("action", ""), 0) * _read_size(event)


def _is_event(event: Facts) -> bool:
    size = whole_number(event.get("size"))
    micros = whole_number(event.get("time_us"))
    complete = isinstance(event.get("action"), str) and size is not None and micros is not None
    return complete and abs(size or 0) < _MOST_BYTES and abs(micros or 0) < _FURTHEST_US


def _read_time(event: Facts) -> int:
    return (whole_number(event.get("time_us")) or 0) * 1000


def _spell_address(value: Any) -> str | None:
    """Return an address as text; NCCL's and CUDA's have 64 bits."""
    return str(value) if isinstance(value, int) and abs(value) < 1 << 64 else None


def _read_size(block: Facts) -> int:
    size = whole_number(block.get("size")) or 0
    return size if abs(size) < _MOST_BYTES else 0


def _spell_stack(frames: Any) -> str | None:
    """Python frames as `file(line): function`, innermost first."""
    if not isinstance(frames, list):
        return None
    lines: list[str] = []
    for frame in frames[:_MOST_FRAMES]:
        if len(lines) == _FRAMES:
            break
        file = frame.get("filename") if isinstance(frame, dict) else None
        if isinstance(file, str) and file.endswith(".py"):
            line = whole_number(frame.get("line"))
            function = text_or_none(frame.get("name"))
            lines.append(f"{file[-_TEXT:]}({line}): {(function or '')[:_TEXT]}")
    return ";".join(lines) or None


def _unpickle_snapshot(data: bytes, name: str) -> Fields:
    try:
        snapshot = load_plain(data)
    except MemoryError:
        raise
    except RefusedPickle as refused:
        raise MalformedTrace(
            f"{name}: truncated or damaged memory snapshot (asks {refused})"
        ) from None
    except Exception as error:  # a broken pickle can fail in any way
        raise MalformedTrace(f"{name}: truncated or damaged memory snapshot ({error})") from None
    if not isinstance(snapshot, dict):
        raise MalformedTrace(f"{name}: a memory snapshot is a dict")
    return snapshot


def _type_of(holder: Facts, key: str) -> str:
    """Name the type: the text of a value may have no end (lists that hold one another)."""
    return f"{type(holder.get(key)).__name__}, or beyond what it can be"


def _read_list(holder: Facts, key: str, issues: Issues) -> list[Any]:
    items = holder.get(key, [])
    if isinstance(items, list):
        return items
    issues.add("mistyped_value", f"{key} is no list")
    return []


def _read_dicts(holder: Facts, key: str, issues: Issues) -> list[Fields]:
    items = _read_list(holder, key, issues)
    dicts = [item for item in items if isinstance(item, dict)]
    if len(dicts) < len(items):
        issues.add("mistyped_value", f"{key}: not a dict", count=len(items) - len(dicts))
    return dicts
