"""A recording as plain objects, each knowing what it was called inside of."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

Thread = tuple[str, str]  # process and thread


@dataclass(eq=False)
class Span:
    """Something that the host did: an operator, a Python call, a range, a step, a call."""

    kind: str
    name: str
    thread: Thread
    start: int
    end: int
    facts: dict[str, Any] = field(default_factory=dict)
    caller: "Span | None" = None  # the span of the same kind right round it
    operator: "Span | None" = None  # the innermost operator round it
    python: "Span | None" = None
    ranges: "tuple[Span, ...]" = ()  # that are open round it, or round what it works for
    step: "int | None" = None
    forward: "Span | None" = None  # of a backward operator

    @property
    def length(self) -> int:
        return self.end - self.start

    def callers(self) -> "Iterator[Span]":
        """Yield what is round it and of its kind, the innermost first."""
        span = self.caller
        while span is not None:
            yield span
            span = span.caller

    def itself_and_callers(self) -> "Iterator[Span]":
        yield self
        yield from self.callers()


@dataclass(eq=False)
class Activity:
    """Something that a GPU did, and what launched it."""

    name: str
    sort: str  # kernel, copy or set
    device: int
    stream: int
    start: int
    end: int
    facts: dict[str, Any] = field(default_factory=dict)
    call: Span | None = None
    operator: Span | None = None
    python: Span | None = None
    ranges: tuple[Span, ...] = ()
    step: int | None = None
    carried_in: bool = False

    @property
    def length(self) -> int:
        return self.end - self.start

    @property
    def in_graph(self) -> bool:
        return self.call is not None and "GraphLaunch" in self.call.name


@dataclass(frozen=True)
class MemoryEvent:
    """Bytes that were allocated, or freed where they are below zero."""

    time: int
    thread: Thread
    device_type: int
    device: int
    address: int
    size: int
    allocated: int
    reserved: int
    operator: Span | None


@dataclass
class Recording:
    """What one process recorded."""

    operators: list[Span] = field(default_factory=list)
    python: list[Span] = field(default_factory=list)
    ranges: list[Span] = field(default_factory=list)
    gpu_ranges: list[tuple[str, int]] = field(default_factory=list)  # name, length
    steps: list[Span] = field(default_factory=list)
    calls: list[Span] = field(default_factory=list)
    activities: list[Activity] = field(default_factory=list)
    memory: list[MemoryEvent] = field(default_factory=list)
    gpu: dict[str, Any] = field(default_factory=dict)  # properties of the device

    @property
    def main(self) -> Thread | None:
        """The thread that steps, else the one that calls the runtime most."""
        if self.steps:
            return self.steps[0].thread
        calls = [call.thread for call in sorted(self.calls, key=lambda call: call.start)]
        return max(dict.fromkeys(calls), key=calls.count, default=None)
