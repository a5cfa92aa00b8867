"""The planes of an XLA profile: lines of events, whose names and facts stand in tables beside."""

import re
import struct
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from htk.parsers.common.log_records import Issues
from htk.parsers.common.span_tables import FARTHEST_NS
from htk.parsers.common.wire import BYTES, EIGHT_BYTES, Cut, Field, fields, signed

_GPU = re.compile(r"^/device:GPU:(\d{1,6})")
_STREAM = re.compile(r"^Stream #(\d{1,18})")
_CALL = re.compile(r"^(cuda[A-Z]|cu[A-Z]|hip[A-Z])")
_DIMENSIONS = re.compile(r"\b(grid|block):(\d+),(\d+),(\d+)")
_SIZE = re.compile(r"\bsize:(\d{1,18})")
_COPY = re.compile(r"kind_src:(\w+) kind_dst:(\w+)")
_DIRECTION = re.compile(r"^Memcpy([HDP])(?:2|to)([HDP])", re.IGNORECASE)
_WANTED = ("correlation_id", "step_num", "hlo_op", "kernel_details")
_DETAILS = ("memcpy_details", "memset_details")
_MOST_PLANES = 100_000


@dataclass(frozen=True, slots=True)
class PlaneEvent:
    """An event; times in ns as the profile counts them."""

    name: str
    start: int
    end: int
    thread: str = ""
    correlation: int = -1
    device: int = -1
    stream: int = -1
    activity: int = -1  # 0 kernel, 1 copy, 2 set
    size: int = -1
    step: int = -1
    hlo: str = ""
    grid: str | None = None
    block: str | None = None


@dataclass
class Space:
    """The parts of a profile that are read."""

    on_gpu: list[PlaneEvent] = field(default_factory=list)
    calls: list[PlaneEvent] = field(default_factory=list)
    host: list[PlaneEvent] = field(default_factory=list)
    steps: list[PlaneEvent] = field(default_factory=list)
    python: list[PlaneEvent] = field(default_factory=list)
    devices: dict[int, dict[str, object]] = field(default_factory=dict)
    unread: Counter[str] = field(default_factory=Counter)
    began_ns: int = 0
    hostname: str | None = None

    def events(self) -> Iterator[PlaneEvent]:
        for events in (self.on_gpu, self.calls, self.host, self.steps, self.python):
            yield from events


@dataclass(frozen=True)
class _Plane:
    """A plane's tables, and where its lines lie."""

    name: str
    lines: list[Field]
    events: Mapping[int, str]
    facts: Mapping[int, str]  # names of facts
    stats: Mapping[str, object]


def read_space(data: bytes, issues: Issues) -> Space:
    """Return all planes; what follows a break is left out and counted."""
    space = Space()
    try:
        for k, field in enumerate(fields(data, 0, len(data))):
            if field.number == 1 and field.kind == BYTES and k < _MOST_PLANES:
                _read_plane(data, field, space, issues)
            elif field.number == 4 and field.kind == BYTES:
                space.hostname = space.hostname or _text(data, field)
    except Cut:
        issues.add("truncated", "the profile ends within a plane; complete ones are kept")
    return space


def _read_plane(data: bytes, field: Field, space: Space, issues: Issues) -> None:
    try:
        plane = _plane(data, field)
    except Cut:
        issues.add("broken_event", "a plane ends early", field.start)
        return
    gpu = _GPU.match(plane.name)
    began = plane.stats.get("profile_start_time")
    if isinstance(began, int) and 0 < began < FARTHEST_NS:
        space.began_ns = began
    if gpu:
        space.devices[int(gpu[1])] = dict(plane.stats)
    elif plane.name.startswith("/device:"):
        if plane.lines:
            space.unread[plane.name] += len(plane.lines)
        return
    elif not plane.name.startswith("/host:"):
        return
    for line in plane.lines:
        try:
            _read_line(data, line, plane, int(gpu[1]) if gpu else -1, space)
        except Cut:
            issues.add("broken_event", f"a line of {plane.name} ends early", line.start)


def _plane(data: bytes, field: Field) -> _Plane:
    name = ""
    lines = []
    stats = []
    events: dict[int, str] = {}
    facts: dict[int, str] = {}
    for part in fields(data, field.start, field.end):
        if part.kind != BYTES:
            continue
        if part.number == 2:
            name = _text(data, part)
        elif part.number == 3:
            lines.append(part)
        elif part.number == 4:
            events.update(_named(data, part))
        elif part.number == 5:
            facts.update(_named(data, part))
        elif part.number == 6:
            stats.append(part)
    pairs = [_stat(data, part, facts) for part in stats]
    return _Plane(name, lines, events, facts, {k: v for k, v in pairs if k})


def _named(data: bytes, entry: Field) -> dict[int, str]:
    """Return an entry of a table: its number and name (the one to be shown, if there is one)."""
    key = 0
    name = ""
    shown = ""
    for part in fields(data, entry.start, entry.end):
        if part.number == 1:
            key = part.value
        elif part.number == 2 and part.kind == BYTES:
            for of in fields(data, part.start, part.end):
                if of.number == 2 and of.kind == BYTES:
                    name = _text(data, of)
                elif of.number == 4 and of.kind == BYTES:
                    shown = _text(data, of)
    return {key: shown or name}


def _read_line(data: bytes, line: Field, plane: _Plane, device: int, space: Space) -> None:
    """Read events of a thread or a stream; those of a GPU's other lines are derived from these."""
    name = ""
    shown = ""
    began = 0
    events = []
    for part in fields(data, line.start, line.end):
        if part.number == 2 and part.kind == BYTES:
            name = _text(data, part)
        elif part.number == 11 and part.kind == BYTES:
            shown = _text(data, part)
        elif part.number == 3:
            began = signed(part.value)
        elif part.number == 4 and part.kind == BYTES:
            events.append(part)
    stream = _STREAM.match(shown or name)
    if device >= 0 and not stream:
        return
    for part in events:  # the wire format is read one field after the other
        event = _event(data, part, plane, began)
        if event is None:
            continue
        if stream:
            space.on_gpu.append(_on_gpu(event, device, int(stream[1])))
        else:
            _on_host(event[0], shown or name, event[1], space)


_Raw = tuple[PlaneEvent, dict[str, object]]


def _event(data: bytes, field: Field, plane: _Plane, began: int) -> _Raw | None:
    """Return an event with the facts that are read of it; a mark (without a length) is none."""
    kind = 0
    offset = 0
    duration = 0
    stats = []
    for part in fields(data, field.start, field.end):
        if part.number == 1:
            kind = part.value
        elif part.number == 2:
            offset = signed(part.value)
        elif part.number == 3:
            duration = signed(part.value)
        elif part.number == 4 and part.kind == BYTES:
            stats.append(part)
    start = began + offset // 1000
    end = began + (offset + duration) // 1000
    if duration <= 0 or abs(start) > FARTHEST_NS or abs(end) > FARTHEST_NS:
        return None
    facts = {}
    for part in stats:
        fact, value = _stat(data, part, plane.facts)
        if fact in _WANTED or fact in _DETAILS:
            facts[fact] = value
    name = plane.events.get(kind) or f"event {kind}"
    return PlaneEvent(name, start, end, hlo=_said(facts.get("hlo_op"))), facts


def _on_gpu(raw: _Raw, device: int, stream: int) -> PlaneEvent:
    event, facts = raw
    copied, filled = (_said(facts.get(name)) for name in _DETAILS)
    activity = 1 if copied or event.name.startswith("Memcpy") else 0
    activity = 2 if filled or event.name.startswith("Memset") else activity
    size = _SIZE.search(copied or filled)
    shape = {m[1]: f"[{m[2]},{m[3]},{m[4]}]" for m in _DIMENSIONS.finditer(_details(facts))}
    name = _copy_name(event.name, copied) if activity == 1 else event.name.removesuffix(".kd")
    return replace(
        event,
        name=name,
        device=device,
        stream=stream,
        activity=activity,
        correlation=_whole(facts.get("correlation_id")),
        size=int(size[1]) if size else -1,
        grid=shape.get("grid"),
        block=shape.get("block"),
    )


def _on_host(event: PlaneEvent, thread: str, facts: Mapping[str, object], space: Space) -> None:
    event = replace(event, thread=thread)
    step = _whole(facts.get("step_num"))
    correlation = _whole(facts.get("correlation_id"))
    if event.name.startswith("$"):
        space.python.append(replace(event, name=event.name[1:]))
    elif step >= 0:
        space.steps.append(replace(event, step=step))
    elif _CALL.match(event.name):
        space.calls.append(replace(event, correlation=correlation))
    else:
        space.host.append(event)


def _copy_name(name: str, details: str) -> str:
    """Return a copy's name as Kineto writes it, where the profile tells enough."""
    direction = _DIRECTION.match(name)
    ends = _COPY.search(details)
    if not direction:
        return name
    source, target = (e.capitalize() for e in ends.groups()) if ends else ("Unknown", "Unknown")
    return f"Memcpy {direction[1].upper()}to{direction[2].upper()} ({source} -> {target})"


def _details(facts: Mapping[str, object]) -> str:
    return _said(facts.get("kernel_details"))


def _stat(data: bytes, field: Field, names: Mapping[int, str]) -> tuple[str, object]:
    """Return a fact by its name: a number, a text, or a text that the table of names holds."""
    name = ""
    value = None
    for part in fields(data, field.start, field.end):
        if part.number == 1:
            name = names.get(part.value, "")
        elif part.number == 2 and part.kind == EIGHT_BYTES:
            (value,) = struct.unpack_from("<d", data, part.start)
        elif part.number == 3:
            value = part.value
        elif part.number == 4:
            value = signed(part.value)
        elif part.number == 5 and part.kind == BYTES:
            value = _text(data, part)
        elif part.number == 7:
            value = names.get(part.value, "")
    return name, value


def _text(data: bytes, field: Field) -> str:
    return data[field.start : field.end].decode("utf8", "replace")


def _said(value: object) -> str:
    return value if isinstance(value, str) else ""


def _whole(value: object) -> int:
    return value if isinstance(value, int) and 0 <= value < 1 << 62 else -1
