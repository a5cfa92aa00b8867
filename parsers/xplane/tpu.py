"""What the cores of TPUs did.

Operators nest: a `while` holds those of its body. One that runs others (while, conditional, call)
is a range, and what it runs counts; any other counts as a whole, with whatever it holds. What runs
beside others (collectives, copies) has a start and a done among them, and a line that shows it from
the first to the second: there it counts, once.
"""

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from heapq import heappop, heappush
from typing import NamedTuple

from htk.parsers.xplane.hlo import HloOperator, read_operator
from htk.parsers.xplane.space import (
    Plane,
    PlaneEvent,
    PlaneLine,
    Space,
    as_count,
    read_description,
    read_events,
)

_OPERATORS = ("XLA Ops", "Sparse Core Ops")
_BESIDE = "Async XLA Ops"
_PROGRAMS = ("XLA Modules", "Sparse Core Modules")
_STEPS = "Steps"
_DERIVED = (  # from the lines that are read
    "Framework Ops",
    "Framework Name Scope",
    "Source code",
    "Launch Stats",
    "Sparse Core Steps",
)
_STEP = re.compile(r"^(?:[Ss]tep ?)?(\d{1,9})$")
_STREAMS = 1000  # of each core: operators in order, then those that run beside others


class TpuCore:
    """The tensor core of a device, or one of its sparse cores, and what its lines hold."""

    def __init__(self, plane: Plane, device: str, sparse_core: str | None) -> None:
        self._plane = plane
        self._device = int(device)
        self._stream = 0 if sparse_core is None else _STREAMS * (int(sparse_core) + 1)
        self._operators: list[_Run] = []
        self._beside: list[_Run] = []
        self._described: dict[int, HloOperator] = {}

    def read(self, data: bytes, line: PlaneLine, space: Space) -> None:
        """Read the events of a line; those of lines that are not read are counted."""
        if line.name in _OPERATORS or line.name == _BESIDE:
            runs = self._beside if line.name == _BESIDE else self._operators
            for event, _ in read_events(data, line, self._plane):
                runs.append(_Run(event, self._read_operator(data, event)))
        elif line.name in _PROGRAMS:
            for event, facts in read_events(data, line, self._plane):
                program = replace(event, device=self._device, stream=self._stream)
                space.programs.append(((facts.get("_ct"), facts.get("_c")), program))
                space.device_ranges.append(program)
        elif line.name == _STEPS:
            for event, facts in read_events(data, line, self._plane):
                number = _STEP.match(event.name)
                step = int(number[1]) if number else as_count(facts.get("step_num"))
                space.device_ranges.append(replace(event, device=self._device, step=step))
        elif line.name not in _DERIVED:
            space.unread_events[line.name] += len(line.events)

    def finish(self, space: Space) -> None:
        """Add what counts to the space, once all lines are read."""
        runs = sorted(self._operators, key=lambda run: (run.event.start, -run.event.end))
        in_order, pairs = _pair_halves(runs, _Ends(self._beside))
        ranges, counted = _split_outermost(in_order)
        space.device_ranges += (self._place_event(run.event, 0) for run in ranges)
        space.on_tpu += (self._build_counted(run, 0) for run in counted)
        beside = sorted([*self._beside, *pairs], key=lambda run: run.event.start)
        for run, lane in zip(beside, _number_lanes(beside), strict=True):
            space.on_tpu.append(self._build_counted(run, 1 + lane))

    def _read_operator(self, data: bytes, event: PlaneEvent) -> HloOperator:
        operator = self._described.get(event.description)
        if operator is None:
            text, facts = read_description(data, self._plane, event.description)
            operator = read_operator(event.name, text, facts)
            self._described[event.description] = operator
        return operator

    def _place_event(self, event: PlaneEvent, stream: int) -> PlaneEvent:
        return replace(event, device=self._device, stream=self._stream + stream)

    def _build_counted(self, run: "_Run", stream: int) -> PlaneEvent:
        operator = run.operator
        return replace(
            self._place_event(run.event, stream),
            name=operator.name,
            kind=operator.kind,
            family=operator.family,
            activity=operator.activity,
            size=operator.size,
            collective=operator.collective,
        )


class _Run(NamedTuple):
    """An operator, each time that it runs."""

    event: PlaneEvent
    operator: HloOperator


class _Ends:
    """The operators at which those begin and end that run beside others."""

    def __init__(self, beside: list[_Run]) -> None:
        self._spans: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for run in sorted(beside, key=lambda run: run.event.start):
            named = {run.operator.instruction, run.event.hlo}
            named |= {name.replace("-start", "-done") for name in named}
            for name in named:
                self._spans[name].append((run.event.start, run.event.end))

    def hold(self, run: _Run) -> bool:
        """Return whether an operator is the start or the done of one that was recorded."""
        spans = self._spans.get(run.operator.instruction, ())
        last = bisect_right(spans, run.event.end, key=lambda span: span[0]) - 1
        return last >= 0 and spans[last][1] >= run.event.start


def _pair_halves(runs: list[_Run], ends: _Ends) -> tuple[list[_Run], list[_Run]]:
    """Return the operators without starts and dones that stand for one which runs beside them, and
    those that no line shows: from each start to its done."""
    rest: dict[int, _Run] = {}
    pairs = []
    begun: dict[str, int] = {}
    for k, run in enumerate(runs):
        half = run.operator.half
        if half and ends.hold(run):
            continue
        rest[k] = run
        if half == "start":
            begun[run.operator.instruction] = k
        elif half and run.operator.operand in begun:
            start = rest.pop(begun.pop(run.operator.operand))
            del rest[k]
            pairs.append(_Run(replace(start.event, end=run.event.end), start.operator))
    return [*rest.values()], pairs


def _split_outermost(runs: list[_Run]) -> tuple[list[_Run], list[_Run]]:
    """Return those that run others, and those that count: the outermost of all others."""
    ranges = []
    counted = []
    reach = 0
    for k, run in enumerate(runs):
        holds = k + 1 < len(runs) and runs[k + 1].event.start < run.event.end
        if run.event.end <= reach:
            continue
        if run.operator.is_control and holds:
            ranges.append(run)
        else:
            counted.append(run)
            reach = run.event.end
    return ranges, counted


def _number_lanes(runs: list[_Run]) -> Iterable[int]:
    """Yield a lane for each operator, so that those of one lane follow each other."""
    busy: list[tuple[int, int]] = []  # until when, and which lane
    for run in runs:
        free = bool(busy) and busy[0][0] <= run.event.start
        lane = heappop(busy)[1] if free else len(busy)
        heappush(busy, (run.event.end, lane))
        yield lane


def launch_programs(space: Space) -> None:
    """Tie what TPUs ran to the host's events that launched its programs, which become calls."""
    numbers: dict[object, int] = {}
    programs: dict[tuple[int, int], list[tuple[PlaneEvent, int]]] = defaultdict(list)
    for launch, program in sorted(space.programs, key=lambda item: item[1].start):
        if launch in space.launching:
            number = numbers.setdefault(launch, len(numbers) + 1)
            programs[program.device, program.stream].append((program, number))
    calls = {id(space.launching[launch]): number for launch, number in numbers.items()}  # type: ignore[index]
    launching = [event for event in space.host if id(event) in calls]
    space.calls += (replace(event, correlation=calls[id(event)]) for event in launching)
    space.host = [event for event in space.host if id(event) not in calls]
    space.on_tpu = [_find_launched(event, programs) for event in space.on_tpu]


def _find_launched(
    event: PlaneEvent, programs: dict[tuple[int, int], list[tuple[PlaneEvent, int]]]
) -> PlaneEvent:
    of_core = programs.get((event.device, event.stream // _STREAMS * _STREAMS), ())
    last = bisect_right(of_core, event.start, key=lambda item: item[0].start) - 1
    if last < 0 or event.start >= of_core[last][0].end:
        return event
    return replace(event, correlation=of_core[last][1])
