"""JAX and XLA profiles: `*.xplane.pb`, as jax.profiler and TensorFlow's profiler write them.

One file a process (a host), with a plane for each GPU or core of a TPU and one for the host's
threads. Read: kernels, copies and sets of GPU streams, calls of CUDA and HIP, events of the host
(XLA's runtime, TraceMe and TraceAnnotation) as operators, Python calls, StepTraceAnnotation as
steps. HLO operators are operators too. Not read: planes of custom devices, HLO modules, lines that
are derived from others.

Of TPUs: XLA's operators are kernels, in order on one stream of each core. Collectives and copies
that run beside them are on streams of their own, from their start to their done; a copy may have
ended before. Operators nest: of a `while`, `conditional` or `call` those in it count, any other
counts alone. Category and text of an operator tell its kind, sizes of collectives and copies, and
which copies go to or from the host. The host's event that launched a program is its call; pauses
within a program are those "inside graphs". The line of steps counts where the host marks none.
Not read, and counted: TraceMe, overlays, counters and the other lines of a core. The
form is that of XLA's sources and of the legible parts of TPU recordings in openxla/xprof; no whole
recording was at hand.
"""

from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import build_numbers, build_texts, match_texts
from htk.base.columns.types import Ints
from htk.base.core.parser import Head, Parsed, ParseOptions, Source
from htk.base.errors import MalformedTrace
from htk.base.mappings import Fields
from htk.base.schema import INT32, INT64
from htk.parsers.common.log_records import Issues, compact_json, read_whole
from htk.parsers.common.nccl_ranges import FACTS, build_collectives
from htk.parsers.common.span_tables import (
    build_activities,
    build_empty_table,
    build_optional,
    build_process_table,
    build_recording,
)
from htk.parsers.common.wire import BYTES, VARINT, Cut, read_fields
from htk.parsers.xplane.launching import with_operators
from htk.parsers.xplane.planes import read_space
from htk.parsers.xplane.space import PlaneEvent, Space

NAME = "xplane"

_PLANES = (b"/host:", b"/device:", b"Task Environment")
_EPOCH_NS = 10**15  # smaller times count from the profile's start
_PROCESS = "0"


def sniff(head: Head) -> bool:
    """Return whether the first plane is named as in a profile."""
    try:
        plane = next(read_fields(head.data, 0, len(head.data)), None)
    except Cut:  # a plane longer than the head
        plane = None
    if not head.data.startswith(b"\n"):
        return False
    start = plane.start if plane else _past_length(head.data)
    try:
        for field in read_fields(head.data, start, len(head.data)):
            if field.number == 2 and field.kind == BYTES:
                return head.data[field.start : field.end].startswith(_PLANES)
            if field.number != 1 or field.kind != VARINT:
                return False
    except Cut:
        pass
    return False


def _past_length(data: bytes) -> int:
    offset = 1
    while offset < min(len(data), 11) and data[offset] >= 0x80:
        offset += 1
    return offset + 1


def parse(source: Source, options: ParseOptions) -> Parsed:
    issues = Issues(options.keep_overruns)
    space = read_space(read_whole(source, issues, options.progress), issues)
    base = _base_ns(space)
    calls, operators = with_operators(space.calls, space.on_gpu, space.host)
    tables = {
        "kernels": _build_kernels(space, base, issues),
        "launches": _build_launches(calls, base),
        "cpu_ops": _build_operators([*space.host, *operators], base),
        "annotations": pa.concat_tables(
            [_build_steps(space, base), _device_ranges(space, base)]
        ).unify_dictionaries(),
        "python_calls": _python_calls(space, base),
    }
    if not any(t.num_rows for t in tables.values()):
        others = ", ".join(sorted(space.unread_lines))
        words = f", only those of {others}, which htk does not read" if others else ""
        raise MalformedTrace(f"{source.name}: an XLA profile without device or host events{words}")
    recorded = build_recording(tables, _collect_facts(space, base), None, issues)
    own = dict(recorded.tables)
    unknown = {c: pa.nulls(0, pa.uint64() if c == "comm" else INT64) for c in FACTS}
    nothing = own["cpu_ops"].slice(0, 0).select(["name", "process", "thread", "start_ns", "end_ns"])
    no_calls = pa.table({**{n: nothing[n] for n in nothing.column_names}, **unknown})
    own["collectives"] = build_collectives(
        NAME,
        own["kernels"],
        own["launches"],
        no_calls,
        own["annotations"],
        _list_stated(space, own["kernels"]),
    )
    return Parsed(own, None, None, recorded.facts)


def _list_stated(space: Space, kernels: pa.Table) -> Iterator[Fields]:
    """Yield what the text of each collective says, kernel by kernel; nothing where another one was
    left out of those of its name and stream."""
    facts_of: dict[tuple[object, ...], deque[Fields]] = defaultdict(deque)
    for event in sorted(space.on_tpu, key=lambda event: event.start):
        if event.collective is not None:
            facts_of[event.name, event.device, event.stream].append(event.collective)
    rows = kernels.filter(pa.array(match_texts(kernels["kind"], "comm".__eq__)))
    columns = (rows[name].to_pylist() for name in ("name", "device", "stream"))
    keys = [*zip(*columns, strict=True)]
    count = Counter(keys)
    complete = {key for key, facts in facts_of.items() if len(facts) == count[key]}
    for key in keys:
        yield facts_of[key].popleft() if key in complete else {}


def _base_ns(space: Space) -> int:
    """Return the instant from which the profile's times count, in ns; 0 if they are absolute."""
    latest = max((e.start for e in space.events()), default=0)
    return space.began_ns if latest < _EPOCH_NS else 0


def _build_kernels(space: Space, base: int, issues: Issues) -> pa.Table:
    """Return the work of GPU streams."""
    parts = []
    for activity in range(3):
        events = [e for e in space.on_gpu if e.activity == activity]
        if not events:
            continue
        sizes = _build_ints(e.size for e in events)
        parts.append(
            build_activities(
                activity,
                build_texts([e.name for e in events]),
                *_read_times(events, base),
                _build_ints(e.device for e in events),
                _build_ints(e.stream for e in events),
                _build_ints(e.correlation for e in events),
                size_bytes=build_optional(sizes, sizes >= 0),
                grid=build_texts([e.grid for e in events]),
                block=build_texts([e.block for e in events]),
            )
        )
    parts += [_of_tpus(space, activity, base) for activity in range(2)]
    if space.unread_lines:
        names = ", ".join(sorted(space.unread_lines))
        issues.add("unread_plane", f"lines of {names}", count=space.unread_lines.total())
    if space.unread_events:
        names = ", ".join(sorted(space.unread_events))
        text = f"events of TPUs' lines {names} are not read"
        issues.add("unread_events", text, count=space.unread_events.total())
    return pa.concat_tables(parts).unify_dictionaries()


def _of_tpus(space: Space, activity: int, base: int) -> pa.Table:
    """Return kernels or copies of TPUs, whose kinds more than their names tells."""
    events = [e for e in space.on_tpu if e.activity == activity]
    if not events:
        return build_empty_table("kernels")
    sizes = _build_ints(e.size for e in events)
    return build_activities(
        activity,
        build_texts([e.name for e in events]),
        *_read_times(events, base),
        _build_ints(e.device for e in events),
        _build_ints(e.stream for e in events),
        _build_ints(e.correlation for e in events),
        size_bytes=build_optional(sizes, sizes >= 0),
        kind=build_texts([e.kind for e in events]),
        family=build_texts([e.family for e in events]),
    )


def _build_launches(events: list[PlaneEvent], base: int) -> pa.Table:
    correlation = _build_ints(e.correlation for e in events)
    api = [_find_library(e.name) for e in events]
    return build_process_table(
        "launches",
        {
            **_on_thread(events, base),
            "api": build_texts(api),
            "correlation": build_optional(correlation, correlation > 0),
        },
        len(events),
    )


def _find_library(call: str) -> str:
    """Return the API that a call is of, as Kineto names it."""
    if call.startswith("hip"):
        return "hip_runtime"
    if not call.startswith("cu"):
        return "tpu_runtime"
    return "cuda_driver" if call.startswith("cu") and call[2:3].isupper() else "cuda_runtime"


def _build_operators(events: list[PlaneEvent], base: int) -> pa.Table:
    return build_process_table("cpu_ops", _on_thread(events, base), len(events))


def _build_steps(space: Space, base: int) -> pa.Table:
    steps = _build_ints(e.step for e in space.steps)
    return build_process_table(
        "annotations",
        {
            **_on_thread(space.steps, base),
            "on_gpu": pa.array(np.zeros(len(space.steps), bool)),
            "step": build_optional(steps, steps >= 0, INT32),
        },
        len(space.steps),
    )


def _device_ranges(space: Space, base: int) -> pa.Table:
    """Return programs, operators that run others, and steps, as devices tell them."""
    events = space.device_ranges
    start, end = _read_times(events, base)
    step = _build_ints(e.step for e in events)
    stream = _build_ints(e.stream for e in events)
    columns = {
        "name": build_texts([e.name for e in events]),
        "on_gpu": pa.array(np.ones(len(events), bool)),
        "device": build_optional(
            _build_ints(e.device for e in events), np.ones(len(events), bool), INT32
        ),
        "stream": build_optional(stream, stream >= 0),
        "start_ns": build_numbers(start, INT64),
        "end_ns": build_numbers(end, INT64),
        "step": build_optional(step, step >= 0, INT32),
    }
    return build_process_table("annotations", columns, len(events))


def _python_calls(space: Space, base: int) -> pa.Table:
    return build_process_table("python_calls", _on_thread(space.python, base), len(space.python))


def _on_thread(events: list[PlaneEvent], base: int) -> dict[str, pa.Array]:
    start, end = _read_times(events, base)
    return {
        "name": build_texts([e.name for e in events]),
        "process": build_texts([_PROCESS] * len(events)),
        "thread": build_texts([e.thread for e in events]),
        "start_ns": build_numbers(start, INT64),
        "end_ns": build_numbers(end, INT64),
    }


def _read_times(events: list[PlaneEvent], base: int) -> tuple[Ints, Ints]:
    return _build_ints(e.start + base for e in events), _build_ints(e.end + base for e in events)


def _build_ints(values: object) -> Ints:
    return np.array(list(values), np.int64)  # type: ignore[call-overload]


def _collect_facts(space: Space, base: int) -> Mapping[str, object]:
    listed = [{"id": d, **facts} for d, facts in sorted(space.devices.items())]
    kinds = {str(facts["device_type_string"]) for facts in listed if "device_type_string" in facts}
    return {
        "host": space.hostname,
        "device_name": kinds.pop() if len(kinds) == 1 else None,
        "device_count": len(listed) or None,
        "device_properties": compact_json(listed) if listed else None,
        "base_time_ns": base,
    }
