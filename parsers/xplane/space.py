"""An XLA profile as it lies in a file: planes, their lines, and events, whose names and facts stand
in tables beside them."""

import struct
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from htk.base.mappings import Fields
from htk.parsers.common.span_tables import FARTHEST_NS
from htk.parsers.common.wire import BYTES, EIGHT_BYTES, Field, read_fields, read_signed

_WANTED = frozenset(
    (
        "correlation_id",
        "step_num",
        "hlo_op",
        "kernel_details",
        "memcpy_details",
        "memset_details",
        "flow",
        # What a host's event starts and a device's event follows, and of which kind that is.
        "_p",
        "_pt",
        "_c",
        "_ct",
    )
)


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
    description: int = 0  # where the plane's table describes it
    kind: str = ""  # where it is known from more than the name
    family: str = ""
    collective: Fields | None = None  # columns of `collectives`


Launch = tuple[object, object]  # the kind and number that a launch shares with what it starts


@dataclass
class Space:
    """The parts of a profile that are read."""

    on_gpu: list[PlaneEvent] = field(default_factory=list)
    on_tpu: list[PlaneEvent] = field(default_factory=list)
    device_ranges: list[PlaneEvent] = field(default_factory=list)
    calls: list[PlaneEvent] = field(default_factory=list)
    host: list[PlaneEvent] = field(default_factory=list)
    steps: list[PlaneEvent] = field(default_factory=list)
    python: list[PlaneEvent] = field(default_factory=list)
    launching: dict[Launch, PlaneEvent] = field(default_factory=dict)
    programs: list[tuple[Launch, PlaneEvent]] = field(default_factory=list)  # of TPUs
    devices: dict[int, dict[str, object]] = field(default_factory=dict)
    unread_lines: Counter[str] = field(default_factory=Counter)  # of a plane
    unread_events: Counter[str] = field(default_factory=Counter)  # of a line of TPUs
    began_ns: int = 0
    hostname: str | None = None

    def events(self) -> Iterator[PlaneEvent]:
        lists = (self.on_gpu, self.on_tpu, self.calls, self.host, self.steps, self.python)
        for events in lists:
            yield from events


@dataclass(frozen=True)
class Plane:
    """A plane's tables, and where its lines lie."""

    name: str
    lines: list[Field]
    events: Mapping[int, str]
    descriptions: Mapping[int, Field]  # of events
    facts: Mapping[int, str]  # names of facts
    stats: Mapping[str, object]


@dataclass(frozen=True)
class PlaneLine:
    """A line of a plane, and where its events lie."""

    name: str
    began: int
    events: list[Field]


def open_plane(data: bytes, field: Field) -> Plane:
    name = ""
    lines = []
    stats = []
    events: dict[int, str] = {}
    descriptions: dict[int, Field] = {}
    facts: dict[int, str] = {}
    for part in read_fields(data, field.start, field.end):
        if part.kind != BYTES:
            continue
        if part.number == 2:
            name = read_text(data, part)
        elif part.number == 3:
            lines.append(part)
        elif part.number == 4:
            key, described, events[key] = _read_entry(data, part)
            if described is not None:
                descriptions[key] = described
        elif part.number == 5:
            key, _, facts[key] = _read_entry(data, part)
        elif part.number == 6:
            stats.append(part)
    pairs = [read_stat(data, part, facts) for part in stats]
    return Plane(name, lines, events, descriptions, facts, {k: v for k, v in pairs if k})


def _read_entry(data: bytes, entry: Field) -> tuple[int, Field | None, str]:
    """Return an entry of a table: its number, where it lies, and its name (the one to be shown, if
    there is one)."""
    key = 0
    described = None
    name = ""
    shown = ""
    for part in read_fields(data, entry.start, entry.end):
        if part.number == 1:
            key = part.value
        elif part.number == 2 and part.kind == BYTES:
            described = part
            for of in read_fields(data, part.start, part.end):
                if of.number == 2 and of.kind == BYTES:
                    name = read_text(data, of)
                elif of.number == 4 and of.kind == BYTES:
                    shown = read_text(data, of)
    return key, described, shown or name


def open_line(data: bytes, line: Field) -> PlaneLine:
    name = ""
    shown = ""
    began = 0
    events = []
    for part in read_fields(data, line.start, line.end):
        if part.number == 2 and part.kind == BYTES:
            name = read_text(data, part)
        elif part.number == 11 and part.kind == BYTES:
            shown = read_text(data, part)
        elif part.number == 3:
            began = read_signed(part.value)
        elif part.number == 4 and part.kind == BYTES:
            events.append(part)
    return PlaneLine(shown or name, began, events)


RawEvent = tuple[PlaneEvent, Fields]


def read_events(data: bytes, line: PlaneLine, plane: Plane) -> Iterator[RawEvent]:
    """Yield the events of a line with the facts that are read of them."""
    for part in line.events:  # the wire format is read one field after the other
        event = _read_event(data, part, plane, line.began)
        if event is not None:
            yield event


def _read_event(data: bytes, field: Field, plane: Plane, began: int) -> RawEvent | None:
    """Return an event; a mark (without a length) is none."""
    kind = 0
    offset = 0
    duration = 0
    stats = []
    for part in read_fields(data, field.start, field.end):
        if part.number == 1:
            kind = part.value
        elif part.number == 2:
            offset = read_signed(part.value)
        elif part.number == 3:
            duration = read_signed(part.value)
        elif part.number == 4 and part.kind == BYTES:
            stats.append(part)
    start = began + offset // 1000
    end = began + (offset + duration) // 1000
    if duration <= 0 or abs(start) > FARTHEST_NS or abs(end) > FARTHEST_NS:
        return None
    facts = {}
    for part in stats:
        fact, value = read_stat(data, part, plane.facts)
        if fact in _WANTED:
            facts[fact] = value
    name = plane.events.get(kind) or f"event {kind}"
    hlo = as_text(facts.get("hlo_op"))
    return PlaneEvent(name, start, end, hlo=hlo, description=kind), facts


def read_description(data: bytes, plane: Plane, number: int) -> tuple[str, Fields]:
    """Return what a plane's table says of an event: its long name, and facts."""
    name = ""
    facts = {}
    described = plane.descriptions.get(number)
    if described is not None:
        for part in read_fields(data, described.start, described.end):
            if part.number == 2 and part.kind == BYTES:
                name = read_text(data, part)
            elif part.number == 5 and part.kind == BYTES:
                fact, value = read_stat(data, part, plane.facts)
                facts[fact] = value
    return name, facts


def read_stat(data: bytes, field: Field, names: Mapping[int, str]) -> tuple[str, object]:
    """Return a fact by its name: a number, a text, or a text that the table of names holds."""
    name = ""
    value = None
    for part in read_fields(data, field.start, field.end):
        if part.number == 1:
            name = names.get(part.value, "")
        elif part.number == 2 and part.kind == EIGHT_BYTES:
            (value,) = struct.unpack_from("<d", data, part.start)
        elif part.number == 3:
            value = part.value
        elif part.number == 4:
            value = read_signed(part.value)
        elif part.number == 5 and part.kind == BYTES:
            value = read_text(data, part)
        elif part.number == 7:
            value = names.get(part.value, "")
    return name, value


def read_text(data: bytes, field: Field) -> str:
    return data[field.start : field.end].decode("utf8", "replace")


def as_text(value: object) -> str:
    return value if isinstance(value, str) else ""


def as_count(value: object) -> int:
    return value if isinstance(value, int) and 0 <= value < 1 << 62 else -1
