"""The planes of an XLA profile: what each holds."""

import re
from dataclasses import replace

from htk.base.mappings import Fields
from htk.parsers.common.log_records import Issues
from htk.parsers.common.span_tables import FARTHEST_NS
from htk.parsers.common.wire import BYTES, Cut, Field, read_fields
from htk.parsers.xplane.space import (
    Plane,
    PlaneEvent,
    PlaneLine,
    RawEvent,
    Space,
    as_count,
    as_text,
    open_line,
    open_plane,
    read_events,
    read_text,
)
from htk.parsers.xplane.tpu import TpuCore, launch_programs

_GPU = re.compile(r"^/device:GPU:(\d{1,6})")
_TPU = re.compile(r"^/device:TPU:(\d{1,6})(?: SparseCore (\d{1,3}))?$")
_STREAM = re.compile(r"^Stream #(\d{1,18})")
_CALL = re.compile(r"^(cuda[A-Z]|cu[A-Z]|hip[A-Z])")
_DIMENSIONS = re.compile(r"\b(grid|block):(\d+),(\d+),(\d+)")
_SIZE = re.compile(r"\bsize:(\d{1,18})")
_COPY = re.compile(r"kind_src:(\w+) kind_dst:(\w+)")
_DIRECTION = re.compile(r"^Memcpy([HDP])(?:2|to)([HDP])", re.IGNORECASE)
_DETAILS = ("memcpy_details", "memset_details")
_MOST_PLANES = 100_000


def read_space(data: bytes, issues: Issues) -> Space:
    """Return all planes; what follows a break is left out and counted."""
    space = Space()
    try:
        for k, field in enumerate(read_fields(data, 0, len(data))):
            if field.number == 1 and field.kind == BYTES and k < _MOST_PLANES:
                _read_plane(data, field, space, issues)
            elif field.number == 4 and field.kind == BYTES:
                space.hostname = space.hostname or read_text(data, field)
    except Cut:
        issues.add("truncated", "the profile ends within a plane; complete ones are kept")
    launch_programs(space)
    return space


def _read_plane(data: bytes, field: Field, space: Space, issues: Issues) -> None:
    try:
        plane = open_plane(data, field)
    except Cut:
        issues.add("broken_event", "a plane ends early", field.start)
        return
    gpu = _GPU.match(plane.name)
    tpu = _TPU.match(plane.name)
    began = plane.stats.get("profile_start_time")
    if isinstance(began, int) and 0 < began < FARTHEST_NS:
        space.began_ns = began
    if gpu or (tpu and tpu[2] is None):
        space.devices[int((gpu or tpu)[1])] = dict(plane.stats)  # type: ignore[index]
    elif plane.name.startswith("/device:") and not tpu:
        if plane.lines:
            space.unread_lines[plane.name] += len(plane.lines)
        return
    elif not tpu and not plane.name.startswith("/host:"):
        return
    core = TpuCore(plane, tpu[1], tpu[2]) if tpu else None
    for part in plane.lines:
        try:
            line = open_line(data, part)
            if gpu:
                _read_stream(data, line, plane, int(gpu[1]), space)
            elif core:
                core.read(data, line, space)
            else:
                _read_thread(data, line, plane, space)
        except Cut:
            issues.add("broken_event", f"a line of {plane.name} ends early", part.start)
    if core:
        core.finish(space)


def _read_stream(data: bytes, line: PlaneLine, plane: Plane, device: int, space: Space) -> None:
    """Read the events of a stream; those of a GPU's other lines are derived from these."""
    if stream := _STREAM.match(line.name):
        for raw in read_events(data, line, plane):
            space.on_gpu.append(_on_gpu(raw, device, int(stream[1])))


def _read_thread(data: bytes, line: PlaneLine, plane: Plane, space: Space) -> None:
    for event, facts in read_events(data, line, plane):
        _on_host(replace(event, thread=line.name), facts, space)


def _on_gpu(raw: RawEvent, device: int, stream: int) -> PlaneEvent:
    event, facts = raw
    copied, filled = (as_text(facts.get(name)) for name in _DETAILS)
    activity = 1 if copied or event.name.startswith("Memcpy") else 0
    activity = 2 if filled or event.name.startswith("Memset") else activity
    size = _SIZE.search(copied or filled)
    details = as_text(facts.get("kernel_details"))
    shape = {m[1]: f"[{m[2]},{m[3]},{m[4]}]" for m in _DIMENSIONS.finditer(details)}
    name = _copy_name(event.name, copied) if activity == 1 else event.name.removesuffix(".kd")
    return replace(
        event,
        name=name,
        device=device,
        stream=stream,
        activity=activity,
        correlation=as_count(facts.get("correlation_id")),
        size=int(size[1]) if size else -1,
        grid=shape.get("grid"),
        block=shape.get("block"),
    )


def _on_host(event: PlaneEvent, facts: Fields, space: Space) -> None:
    step = as_count(facts.get("step_num"))
    if event.name.startswith("$"):
        space.python.append(replace(event, name=event.name[1:]))
    elif step >= 0:
        space.steps.append(replace(event, step=step))
    elif _CALL.match(event.name):
        correlation = as_count(facts.get("correlation_id"))
        space.calls.append(replace(event, correlation=correlation))
    else:
        space.host.append(event)
        if "_p" in facts:
            space.launching[facts.get("_pt"), facts["_p"]] = event


def _copy_name(name: str, details: str) -> str:
    """Return a copy's name as Kineto writes it, where the profile tells enough."""
    direction = _DIRECTION.match(name)
    ends = _COPY.search(details)
    if not direction:
        return name
    source, target = (e.capitalize() for e in ends.groups()) if ends else ("Unknown", "Unknown")
    return f"Memcpy {direction[1].upper()}to{direction[2].upper()} ({source} -> {target})"
