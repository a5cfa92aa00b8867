"""What a file's spans add up to: the figures that analyses answer, worked out one by one."""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from operator import attrgetter
from typing import Any

from htk.base.columns.types import NONE
from htk.verdicts.verify.host_ranges import HostRanges
from htk.verdicts.verify.reading import EventsByKind, Span
from htk.verdicts.verify.spans import (
    Intervals,
    Nesting,
    intersect_intervals,
    measure_covered_time,
    merge_intervals,
)

Key = tuple[Any, ...]
Row = dict[str, int | None]
Window = tuple[int | None, int | None, int, int]  # of a device, its step, start and end
Facts = dict[str, dict[Key, Row]]  # by what they are about, a row for each key

_LEAST = ("duration_ns_min",)
_MOST = ("duration_ns_max", "cpu_ns_max")
_STARTS = ("start_ns",)
_NAMELESS = "[no name]"  # as kernels without a name are called


def merge_facts(facts: Facts, more: Facts) -> None:
    """Add the facts of another recording of the same rank, or of another rank, to these."""
    for about, rows in more.items():
        sums = facts.setdefault(about, {})
        for key, row in rows.items():
            old = sums.get(key)
            sums[key] = row if old is None else {n: _join_values(n, old[n], row[n]) for n in row}


def _join_values(name: str, old: int | None, new: int | None) -> int | None:
    if old is None or new is None:
        return new if old is None else old
    if name in _STARTS or name in _LEAST:
        return min(old, new)
    return max(old, new) if name in _MOST else old + new


@dataclass
class File:
    """One recording of one rank, linked by hand."""

    recording: EventsByKind
    rank: int | None
    kinds: Mapping[str, str]  # of kernels, by name: whether it communicates is a matter of names
    cycle: int = 0  # of several recordings of the rank

    def __post_init__(self) -> None:
        spans = self.recording.spans
        self.gpu = spans["kernels"]
        self.ops = spans["cpu_ops"]
        self.calls = spans["launches"]
        self.nested = Nesting(self.ops)
        self.steps = _host_steps(spans["annotations"])
        self._link()

    def facts(self) -> Facts:
        """Return everything that is compared."""
        return {
            "events": self._count_events(),
            "kernels": self._sum_kernels(),
            "copies": self._sum_copies(),
            "time": dict(self.times(self.windows())),
            "steps": dict(self.times(self.step_windows())),
            "step_times": self.step_times(self.step_windows()),
            "launches": self._sum_launches(lambda call, launched: call.name or None),
            "launches by kernel": self._sum_launches(
                lambda call, launched: _first_of(launched) or None
            ),
            "launches by operator": self._sum_launches(
                lambda call, launched: self._operator_name(call)
            ),
            "operators": self._sum_operators(),
            "ranges": self._sum_ranges(),
            "functions": self._sum_functions(),
        }

    def _link(self) -> None:
        """Find the call, the operator and the moment that launched each GPU activity.

        A call's id comes back with what it launched, which never starts before the call. The
        operator is the one round the call; without it the one that the activity names, or the one
        where an arrow to the activity begins.
        """
        in_order = sorted(range(len(self.calls)), key=lambda row: self.calls[row].start)
        calls: dict[int, list[int]] = {}
        for row in in_order:
            calls.setdefault(self.calls[row].number("correlation") or 0, []).append(row)
        ops = {op.number("External id", "external id"): row for row, op in enumerate(self.ops)}
        self._op_of_id: Mapping[int | None, int] = ops
        arrows = {arrow.correlation: arrow for arrow in self.recording.arrows}
        self.call_of: list[int] = []
        self.op_of: list[int] = []
        self.moments: list[int | None] = []
        self.threads: list[tuple[str | None, str | None]] = []
        for activity in self.gpu:
            correlation = activity.number("correlation") or 0
            call = op = NONE
            moment, thread = None, activity.thread
            if correlation > 0:
                call = _last_before(self.calls, calls.get(correlation, []), activity.start)
            if call != NONE:
                moment, thread = self.calls[call].start, self.calls[call].thread
                op = self._operator_of_call(self.calls[call])
            named = activity.number("External id", "external id") or 0
            if op == NONE and named > 0 and named in ops:
                op = ops[named]
                if moment is None:
                    moment, thread = self.ops[op].start, self.ops[op].thread
            if moment is None and correlation > 0 and correlation in arrows:
                arrow = arrows[correlation]
                moment, thread = arrow.time, arrow.thread
                op = self.nested.around(thread, moment)
            self.call_of.append(call)
            self.op_of.append(op)
            self.moments.append(moment)
            self.threads.append(thread)

    def _operator_of_call(self, call: Span) -> int:
        """Return the operator round a call; where one begins or ends with it the id tells which."""
        around = self.nested.around(call.thread, call.start)
        named = self._op_of_id.get(call.number("External id", "external id"), NONE)
        if named == NONE:
            return around
        operator = self.ops[named]
        is_open = operator.thread == call.thread and operator.start <= call.start <= operator.end
        begins_then = around != NONE and self.ops[around].start == call.start
        return named if is_open and (begins_then or operator.end == call.start) else around

    def _count_events(self) -> dict[Key, Row]:
        rows: dict[Key, Row] = {("events",): {"rows": self.recording.events}}
        for name, spans in self.recording.spans.items():
            rows[(name,)] = {"rows": len(spans)}
        return rows

    def _sum_kernels(self) -> dict[Key, Row]:
        return {
            (self.rank, name): {
                "count": len(spans),
                "total_ns": sum(s.length for s in spans),
                "duration_ns_min": min(s.length for s in spans),
                "duration_ns_max": max(s.length for s in spans),
            }
            for name, spans in _by_name(self.gpu)
        }

    def _sum_copies(self) -> dict[Key, Row]:
        moved = [s for s in self.gpu if _is_copy(s)]
        total = sum(s.length for s in moved)
        return {(self.rank,): {"count": len(moved), "total_ns": total}} if moved else {}

    def windows(self) -> Iterator[Window]:
        for device in {s.device for s in self.gpu}:
            spans = [s for s in self.gpu if s.device == device]
            yield device, None, min(s.start for s in spans), max(s.end for s in spans)

    def step_windows(self) -> Iterator[Window]:
        """A step ends with the last end of what it launched, and begins where the last ended."""
        launched = [self.step_at(moment) for moment in self.moments]
        for device, _, start, end in self.windows():
            ends: dict[int, int] = {}
            for span, step in zip(self.gpu, launched, strict=True):
                if span.device == device and step is not None:
                    ends[step] = max(ends.get(step, start), span.end)
            begin = start
            for step in sorted(ends):
                reached = max(begin, ends[step])
                yield device, step, begin, reached
                begin = reached
            if ends and begin < end:
                yield device, None, begin, end

    def step_at(self, time: int | None) -> int | None:
        if time is None:
            return None
        index = bisect_right(self.steps, time, key=attrgetter("start")) - 1
        step = self.steps[index] if index >= 0 else None
        return step.step if step is not None and time < step.end else None

    def times(self, windows: Iterable[Window]) -> Iterator[tuple[Key, Row]]:
        unions: dict[int | None, dict[str, Intervals]] = {}
        for device, step, start, end in windows:
            if device not in unions:
                unions[device] = self._merge_by_kind(device)
            own = {
                name: measure_covered_time(spans, start, end)
                for name, spans in unions[device].items()
            }
            row: Row = {
                "total_ns": end - start,
                "busy_ns": own["busy"],
                "compute_ns": own["compute"],
                "comm_ns": own["comm"],
                "memory_ns": own["memory"],
                "exposed_comm_ns": own["comm"] - own["overlap"],
                "exposed_memory_ns": own["known"] - own["kernels"],
                "other_ns": own["busy"] - own["known"],
                "idle_ns": end - start - own["busy"],
                "overlap_ns": own["overlap"],
            }
            yield (self.rank, device, step), row

    def _merge_by_kind(self, device: int | None) -> dict[str, Intervals]:
        by_kind: dict[str, list[tuple[int, int]]] = {
            kind: [] for kind in ("compute", "comm", "memory", "other")
        }
        for span in self.gpu:
            if span.device == device:
                kind = "memory" if _is_copy(span) else self.kinds.get(span.name, "compute")
                by_kind[kind].append((span.start, span.end))
        unions = {kind: merge_intervals(spans) for kind, spans in by_kind.items()}
        unions["kernels"] = merge_intervals(unions["compute"] + unions["comm"])
        unions["known"] = merge_intervals(unions["kernels"] + unions["memory"])
        unions["busy"] = merge_intervals(unions["known"] + unions["other"])
        unions["overlap"] = intersect_intervals(unions["compute"], unions["comm"])
        return unions

    def step_times(self, windows: Iterable[Window]) -> dict[Key, Row]:
        host = {s.step: s for s in reversed(self.steps)}
        rows: dict[Key, Row] = {}
        for device, step, start, end in windows:
            if step is not None:
                cpu = host[step].length if step in host else None
                row: Row = {"start_ns": start, "cpu_ns": cpu, "gpu_period_ns": end - start}
                rows[self.rank, device, self.cycle, step] = row
        for number, span in host.items():
            if not any(key[3] == number for key in rows):
                alone: Row = {"start_ns": span.start, "cpu_ns": span.length, "gpu_period_ns": None}
                rows[self.rank, None, self.cycle, number] = alone
        return rows

    def _sum_launches(self, label: Callable[[Span, list[Span]], str | None]) -> dict[Key, Row]:
        launched: dict[int, list[Span]] = {}
        for span, index in zip(self.gpu, self.call_of, strict=True):
            if index != NONE:
                launched.setdefault(index, []).append(span)
        rows: dict[Key, Row] = {}
        for index, spans in launched.items():
            call = self.calls[index]
            delay = min(s.start for s in spans) - call.end
            row: Row = {
                "count": 1,
                "kernels": len(spans),
                "call_ns": call.length,
                "device_ns": sum(s.length for s in spans),
                "delay_ns": max(delay, 0),
            }
            merge_facts({"": rows}, {"": {(self.rank, label(call, spans)): row}})
        return rows

    def _operator_name(self, call: Span) -> str | None:
        row = self._operator_of_call(call)
        return None if row == NONE else self.ops[row].name or None

    def _sum_operators(self) -> dict[Key, Row]:
        own = [0] * len(self.ops)
        many = [0] * len(self.ops)
        outside: Row = {"device_self_ns": 0, "kernels": 0}
        for span, op in zip(self.gpu, self.op_of, strict=True):
            if op == NONE:
                _add_to_row(outside, device_self_ns=span.length, kernels=1)
            else:
                own[op] += span.length
                many[op] += 1
        device = self.nested.inclusive(own)
        kernels = self.nested.inclusive(many)
        outer = self.nested.outermost()
        alone = self.nested.self_times()
        rows: dict[Key, Row] = {}
        for k, operator in enumerate(self.ops):
            row = rows.setdefault((self.rank, operator.name), dict.fromkeys(_OPERATOR, 0))
            _add_to_row(row, count=1, cpu_self_ns=alone[k], device_self_ns=own[k])
            _add_to_row(row, launching_calls=int(many[k] > 0))
            if outer[k]:
                _add_to_row(row, cpu_total_ns=operator.length, device_total_ns=device[k])
                _add_to_row(row, kernels=kernels[k])
        return rows | ({(self.rank, None): outside} if outside["kernels"] else {})

    def _sum_ranges(self) -> dict[Key, Row]:
        rows: dict[Key, Row] = {}
        for span in self.recording.spans["annotations"]:
            name = "ProfilerStep" if span.step is not None else span.name
            row = rows.setdefault((self.rank, name), dict.fromkeys(_RANGE, 0))
            if span.on_gpu:
                _add_to_row(row, gpu_ranges=1, gpu_ranges_ns=span.length)
            else:
                _add_to_row(row, count=1, cpu_total_ns=span.length)
                row["cpu_ns_max"] = max(row["cpu_ns_max"] or 0, span.length)
        for activity, names in zip(self.gpu, self._range_names(), strict=True):
            for name in names:
                _add_to_row(rows[self.rank, name], kernels=1, device_ns=activity.length)
        return rows

    def _range_names(self) -> Iterator[set[str]]:
        """Yield the names of the ranges that each activity was launched in."""
        ranges = HostRanges(self.recording.spans["annotations"], self.ops)
        for thread, moment in zip(self.threads, self.moments, strict=True):
            holding = [] if moment is None else ranges.holding(thread, moment)
            names = {span.name for span in holding}
            yield names | ({"ProfilerStep"} if self.step_at(moment) is not None else set())

    def _sum_functions(self) -> dict[Key, Row]:
        spans = self.recording.spans["python_calls"]
        calls = Nesting([span._replace(name=_without_address(span.name)) for span in spans])
        outer = calls.outermost()
        own = calls.self_times()
        launched = self._launched_by(calls)
        inside = calls.inclusive(launched)
        rows: dict[Key, Row] = {}
        for k, call in enumerate(calls.spans):
            row = rows.setdefault((call.name,), dict.fromkeys(_FUNCTION, 0))
            _add_to_row(row, count=1, self_ns=own[k], device_self_ns=launched[k])
            if outer[k]:
                _add_to_row(row, total_ns=call.length, device_total_ns=inside[k])
        return rows

    def _launched_by(self, python: Nesting) -> list[int]:
        """Return the GPU time of each Python call: of launches whose innermost call it is, where
        the launch was not recorded of operators."""
        times = [0] * len(python.spans)
        for activity, call, op in zip(self.gpu, self.call_of, self.op_of, strict=True):
            if call == op == NONE:
                continue
            launcher = self.calls[call] if call != NONE else self.ops[op]
            row = python.around(launcher.thread, launcher.start)
            if row != NONE:
                times[row] += activity.length
        return times


def _without_address(name: str) -> str:
    """Return a function that is bound to an object, without the object's place in memory."""
    before, marker, rest = name.partition(" at 0x")
    digits = len(rest) - len(rest.lstrip("0123456789abcdefABCDEF"))
    return before + _without_address(rest[digits:]) if marker and digits else name


_OPERATOR = (
    "count",
    "cpu_total_ns",
    "cpu_self_ns",
    "device_total_ns",
    "device_self_ns",
    "kernels",
    "launching_calls",
)
_RANGE = (
    *("count", "cpu_total_ns", "cpu_ns_max", "gpu_ranges", "gpu_ranges_ns"),
    *("kernels", "device_ns"),
)
_FUNCTION = ("count", "total_ns", "self_ns", "device_self_ns", "device_total_ns")


def _add_to_row(row: Row, **values: int) -> None:
    for name, value in values.items():
        row[name] = (row[name] or 0) + value


def _by_name(spans: Iterable[Span]) -> Iterable[tuple[str, list[Span]]]:
    named: dict[str, list[Span]] = {}
    for span in spans:
        named.setdefault(span.name or _NAMELESS, []).append(span)
    return named.items()


def _is_copy(span: Span) -> bool:
    return span.category.endswith(("memcpy", "memset"))


def _first_of(launched: list[Span]) -> str:
    """Return the kernel that a call launched, or what stands for all of a graph's."""
    first = min(launched, key=attrgetter("start")).name
    return first if len(launched) == 1 else f"({len(launched)} of one call, first {first})"


def _last_before(calls: list[Span], rows: list[int], time: int) -> int:
    """Return the last of the rows, which are in order, that does not start after the time."""
    return next((row for row in reversed(rows) if calls[row].start <= time), NONE)


def _host_steps(annotations: Iterable[Span]) -> list[Span]:
    """Return the steps of the host in order, the first of those that follow with one number."""
    steps = sorted(
        (s for s in annotations if s.step is not None and not s.on_gpu),
        key=attrgetter("start", "end"),
    )
    return steps[:1] + [s for before, s in pairwise(steps) if s.step != before.step]
