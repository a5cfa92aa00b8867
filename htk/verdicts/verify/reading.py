"""A Kineto file read a second time, by json and Decimal, event by event.

Slow on purpose, and apart from the parser: it shares no table, no column and no link with it, so
that a mistake there is not made again here.
"""

import json
from dataclasses import dataclass, field
from decimal import Context, Decimal, InvalidOperation
from typing import NamedTuple

from htk.base.core.humanize import format_bytes
from htk.base.core.parser import Source
from htk.base.io.decompress import open_stream
from htk.base.mappings import Facts, Fields
from htk.verdicts.verify.tally import NotApplicable

STEP = "ProfilerStep#"
_DAY_NS = 24 * 3600 * 10**9  # a longer event is an overflowed counter, and counts as 0
_EXACT = Context(prec=60)
_CHUNK = 1 << 20
_GPU = ("kernel", "gpu_memcpy", "gpu_memset", "memcpy", "memset", "collective_comm")
_RUNTIMES = ("cuda", "hip", "xpu", "privateuse1")
_TABLES = {
    **dict.fromkeys((*_GPU, "mtia_ccp_events"), "kernels"),
    **dict.fromkeys(("cpu_op", "operator"), "cpu_ops"),
    **dict.fromkeys(("runtime", "mtia_runtime", "glow_runtime", "hpu_op"), "launches"),
    **{f"{vendor}_{layer}": "launches" for vendor in _RUNTIMES for layer in ("runtime", "driver")},
    **dict.fromkeys(("cuda_sync", "xpu_sync"), "syncs"),
    **dict.fromkeys(("user_annotation", "gpu_user_annotation"), "annotations"),
    **dict.fromkeys(("python_function", "python"), "python_calls"),
    "overhead": "overheads",
}
TABLES = tuple(dict.fromkeys(_TABLES.values()))
_ARGUMENTS = {
    *("correlation", "External id", "external id", "Python id", "Fwd thread id"),
    *("device", "stream", "original_stream", "sycl queue", "copy kind"),
}


class Span(NamedTuple):
    """A complete event; times are absolute, in ns."""

    name: str
    category: str
    thread: tuple[str | None, str | None]  # process and thread
    start: int
    end: int
    arguments: Facts

    @property
    def length(self) -> int:
        return self.end - self.start

    def number(self, *names: str) -> int | None:
        """Return the first of these arguments that is a whole number."""
        values = (_parse_integer(self.arguments.get(name)) for name in names)
        return next((value for value in values if value is not None), None)

    @property
    def device(self) -> int | None:
        return self._viewer_number("device", self.thread[0])

    @property
    def stream(self) -> int | None:
        for name in ("original_stream", "sycl queue"):
            if (own := self.number(name)) is not None:
                return own
        return self._viewer_number("stream", self.thread[1])

    @property
    def step(self) -> int | None:
        digits = self.name.removeprefix(STEP)
        return int(digits) if self.name.startswith(STEP) and digits.isdigit() else None

    @property
    def on_gpu(self) -> bool:
        return self.category.startswith("gpu_")

    def _viewer_number(self, name: str, row: str | None) -> int | None:
        """Return the argument, else the number of the viewer's row; -1 stands for none."""
        value = self.number(name)
        if value is None:
            value = int(row) if row is not None and row.isdigit() else None
        return value if value is not None and 0 <= value < 0xFFFFFFFF else None


class Arrow(NamedTuple):
    """The start of an arrow from a launch to its GPU activity."""

    correlation: int
    thread: tuple[str | None, str | None]
    time: int


@dataclass
class EventsByKind:
    """What a file holds, sorted by what it is."""

    events: int = 0
    read_bytes: int = 0
    spans: dict[str, list[Span]] = field(default_factory=lambda: {name: [] for name in TABLES})
    arrows: list[Arrow] = field(default_factory=list)


def read_events(source: Source, largest_bytes: int) -> EventsByKind:
    """Return what a file holds; raise NotApplicable where it is too large or not whole."""
    data = _read_bytes(source, largest_bytes)
    try:
        text = data.decode("utf-8-sig", "replace")
        document = json.loads(
            text,
            object_hook=_shorten_event,
            parse_float=Decimal,
            parse_constant=lambda _: None,
            strict=False,
        )
    except (ValueError, RecursionError) as error:
        why = str(error).partition(": line")[0]
        raise NotApplicable(f"{source.file_name} is not valid JSON ({why})") from None
    header = document if isinstance(document, dict) else {}
    listed = header.get("traceEvents") if isinstance(document, dict) else document
    if not isinstance(listed, list):
        raise NotApplicable(f"{source.file_name} has no list of events")
    base = _parse_integer(header.get("baseTimeNanoseconds")) or 0
    recording = EventsByKind(read_bytes=len(data))
    for event in listed:
        if isinstance(event, dict):
            recording.events += 1
            _sort_event(recording, event, max(base, 0))
    return recording


def _read_bytes(source: Source, largest: int) -> bytes:
    data = bytearray()
    with source.open() as file, open_stream(file) as stream:
        while chunk := stream.read(_CHUNK):
            data += chunk
            if len(data) > largest:
                most = format_bytes(largest)
                raise NotApplicable(f"{source.file_name} holds more than {most} (--largest)")
        if stream.damage is not None:
            raise NotApplicable(f"{source.file_name}: {stream.damage}")
    return bytes(data)


def _shorten_event(value: Fields) -> Fields:
    """Keep of an event's arguments only what is asked for: they are most of a file."""
    if "ph" in value or "traceEvents" in value:
        return value
    return {key: value[key] for key in _ARGUMENTS & value.keys()}


def _sort_event(recording: EventsByKind, event: Fields, base: int) -> None:
    start = _parse_nanoseconds(event.get("ts"))
    if start is None:
        return
    start += base
    thread = _spell_text(event.get("pid")), _spell_text(event.get("tid"))
    category = str(event.get("cat") or "").lower()
    phase = event.get("ph")
    if phase == "X":
        length = _parse_nanoseconds(event.get("dur")) or 0
        end = start + (length if 0 <= length <= _DAY_NS else 0)
        arguments = event.get("args")
        arguments = arguments if isinstance(arguments, dict) else {}
        name = _spell_text(event.get("name")) or ""
        if name == "Memcpy" and "copy kind" in arguments:  # some profilers write them apart
            name = f"{name} {arguments['copy kind']}"
        span = Span(name, category, thread, start, end, arguments)
        table = _find_table(span)
        if table is not None:
            recording.spans[table].append(span)
    elif phase == "s" and category in ("ac2g", "async_cpu_to_gpu"):
        correlation = _parse_integer(event.get("id"))
        if correlation is not None:
            recording.arrows.append(Arrow(correlation, thread, start))


def _find_table(span: Span) -> str | None:
    """Return the table of a span; old profilers file their steps under operators."""
    table = _TABLES.get(span.category)
    if table == "cpu_ops" and span.name.startswith(STEP):
        return "annotations"
    if span.category == "mtia_ccp_events" and span.name in ("event_wait", "event_record"):
        return "syncs"
    return "launches" if span.name.startswith("xccl::") and table == "kernels" else table


def _parse_nanoseconds(value: object) -> int | None:
    """Return decimal microseconds in whole ns, half to even below one."""
    if isinstance(value, bool) or not isinstance(value, int | Decimal | str):
        return None
    try:
        exact = _EXACT.multiply(Decimal(value), Decimal(1000))
        return int(exact.to_integral_value(context=_EXACT))
    except (InvalidOperation, ValueError, OverflowError):
        return None


def _parse_integer(value: object) -> int | None:
    """Return a whole number that may stand in quotes, also as hexadecimal."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    if isinstance(value, str):
        try:
            return int(value, 16 if value.lower().startswith("0x") else 10)
        except ValueError:
            return None
    return None


def _spell_text(value: object) -> str | None:
    return None if value is None else str(value)
