"""CUDA memory snapshots: `torch.cuda.memory._dump_snapshot("snapshot.pickle")`.

A pickle of plain containers: `segments` (what the allocator held when it was written) and, where
`_record_memory_history` was on, `device_traces` (each allocation and release with its stack, since
torch 2.0). It is read by an unpickler that knows no global. Not read: private pools, the
allocator's settings, annotations.

What was held before the history began is told by the end: held at the end less what the history
added. Times are microseconds of the host's clock; snapshots without history hold none.
"""

import io
from collections.abc import Iterator, Mapping
from typing import Any

from htk.core.parser import Head, Parsed, ParseOptions, Source
from htk.errors import MalformedTrace
from htk.parsers.common.log_records import Issues, read_whole, table_of, whole_number
from htk.parsers.common.safe_pickle import PlainUnpickler, Refused, is_pickle

NAME = "memory_snapshot"

_CUDA = 1  # c10::DeviceType
_FRAMES = 12  # of a stack
_KEPT = {"active_allocated", "active_pending_free", "active_awaiting_free"}


def sniff(head: Head) -> bool:
    return is_pickle(head.data) and b"segments" in head.data[:200] and _marked(head.data)


def _marked(data: bytes) -> bool:
    return b"device_traces" in data or b"total_size" in data


def parse(source: Source, options: ParseOptions) -> Parsed:
    issues = Issues()
    snapshot = _unpickled(read_whole(source, issues, options.progress), source.name)
    segments = [s for s in _listed(snapshot, "segments") if isinstance(s, dict)]
    traces = _listed(snapshot, "device_traces")
    devices = {whole_number(s.get("device")) or 0 for s in segments}
    rows: list[dict[str, Any]] = []
    for device in sorted(devices | {k for k, t in enumerate(traces) if t}):
        trace = traces[device] if device < len(traces) else []
        held = [s for s in segments if (whole_number(s.get("device")) or 0) == device]
        rows += _history(device, held, trace if isinstance(trace, list) else [], issues)
    if not rows:
        raise MalformedTrace(f"{source.name}: a memory snapshot that holds no memory")
    for event, row in enumerate(rows):
        row["event"] = event
    times = [row["time_ns"] for row in rows]
    facts: dict[str, object] = {"events": len(rows), "recorded": "memory_history"}
    facts |= {"start_ns": min(times), "end_ns": max(times)}
    table = table_of("memory", rows, of_one_rank=True)
    return Parsed({"memory": table, "parse_issues": issues.table()}, facts=facts)


def _history(
    device: int, segments: list[dict[str, Any]], trace: list[Any], issues: Issues
) -> Iterator[dict[str, Any]]:
    """The events of a device in order; first what it held before, or all that it holds."""
    events = [e for e in trace if isinstance(e, dict) and _is_event(e)]
    if len(events) < len(trace):
        issues.add("broken_event", "no size or time", count=len(trace) - len(events))
    end = sum(_size(b) for s in segments for b in _blocks(s) if b.get("state") in _KEPT)
    end_reserved = sum(whole_number(s.get("total_size")) or 0 for s in segments)
    allocated = end - sum(_grown(e) for e in events)
    reserved = end_reserved - sum(_reserved(e) for e in events)
    start = events[0]["time_us"] * 1000 if events else 0
    common = {"device_type": _CUDA, "device": device}
    yield common | {
        "name": "[memory]",
        "time_ns": start,
        "size_bytes": allocated,
        "allocated_bytes": allocated,
        "reserved_bytes": reserved,
    }
    for event in events:
        allocated += _grown(event)
        reserved += _reserved(event)
        failed = event.get("action") == "oom"
        yield common | {
            "name": "[OutOfMemory]" if failed else "[memory]",
            "time_ns": event["time_us"] * 1000,
            "address": str(event.get("addr")),
            "size_bytes": event["size"] if failed else _grown(event),
            "allocated_bytes": allocated,
            "reserved_bytes": reserved,
            "call_stack": _stack(event.get("frames")),
        }


def _grown(event: Mapping[str, Any]) -> int:
    sign = {"alloc": 1, "free_completed": -1}.get(event.get("action", ""), 0)
    return int(sign * event["size"])


def _reserved(event: Mapping[str, Any]) -> int:
    sign = {"segment_alloc": 1, "segment_map": 1, "segment_free": -1, "segment_unmap": -1}
    return int(sign.get(event.get("action", ""), 0) * event["size"])


def _is_event(event: Mapping[str, Any]) -> bool:
    known = isinstance(event.get("action"), str)
    return known and all(whole_number(event.get(k)) is not None for k in ("size", "time_us"))


def _blocks(segment: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [b for b in segment.get("blocks") or [] if isinstance(b, dict)]


def _size(block: Mapping[str, Any]) -> int:
    return whole_number(block.get("size")) or 0


def _stack(frames: Any) -> str | None:
    """Python frames as `file(line): function`, innermost first."""
    if not isinstance(frames, list):
        return None
    lines = [
        f"{f.get('filename')}({f.get('line')}): {f.get('name')}"
        for f in frames
        if isinstance(f, dict) and str(f.get("filename")).endswith(".py")
    ]
    return ";".join(lines[:_FRAMES]) or None


def _unpickled(data: bytes, name: str) -> dict[str, Any]:
    try:
        found = PlainUnpickler(io.BytesIO(data)).load()
    except MemoryError:
        raise
    except Refused as refused:
        raise MalformedTrace(
            f"{name}: cut or broken memory snapshot (asks for {refused})"
        ) from None
    except Exception as error:  # a broken pickle can fail in any way
        raise MalformedTrace(f"{name}: cut or broken memory snapshot ({error})") from None
    if not isinstance(found, dict):
        raise MalformedTrace(f"{name}: a memory snapshot is a dict")
    return found


def _listed(snapshot: Mapping[str, Any], key: str) -> list[Any]:
    found = snapshot.get(key)
    return found if isinstance(found, list) else []
