"""Which phase of a step operators and activities are of."""

from itertools import pairwise

from bench.truth.expected.sums import Rows, group, length_of, percent, union
from bench.truth.made import LOADER
from bench.truth.model import Activity, Recording, Span, Thread

_RANGES = {
    **{"## forward ##": "forward", "optimizer step": "optimizer", "backward pass": "backward"},
    LOADER: "dataloader",
}
_OPERATORS = {"Optimizer.step#SGD.step": "optimizer"}

Told = tuple[str, str | None]  # the phase, and what tells it


def phase_breakdown(recording: Recording, per: str) -> Rows:
    if per == "step" and not recording.steps:
        return {}  # refused
    of_operator = _phases_of_operators(recording)
    of_activity = {a: _phase_of_activity(a, recording, of_operator) for a in recording.activities}

    def step_of(step: int | None) -> int | None:
        return step if per == "step" else None

    launched = group(recording.activities, lambda a: (step_of(a.step), of_activity[a][0]))
    hosted: dict[tuple[int | None, str], list[tuple[int, int]]] = {}
    for operator in recording.operators:
        if operator.caller is None:
            key = step_of(operator.step), of_operator[operator][0]
            hosted.setdefault(key, []).append((operator.start, operator.end))
    for start, end, phase in _between_operators(recording):
        step = next((s for s in recording.steps if s.start <= start < s.end), None)
        number = None if step is None else int(step.name.partition("#")[2])
        hosted.setdefault((step_of(number), phase), []).append((start, end))

    def busy(key: tuple[int | None, str]) -> int:
        return length_of(union((a.start, a.end) for a in launched.get(key, [])))

    rows: Rows = {}
    keys = dict.fromkeys([*launched, *hosted])
    for key in keys:
        own = launched.get(key, [])
        device_ns = sum(a.length for a in own)
        guessed = sum(a.length for a in own if of_activity[a][1] != "range")
        cpu_ns = length_of(union(hosted.get(key, [])))
        is_told = any(of_activity[a][1] is not None for a in own)
        rows[0, *key] = {
            "inferred": 2 * guessed > device_ns if is_told else None,
            "cpu_ns": cpu_ns if cpu_ns or recording.operators else None,
            **{"device_busy_ns": busy(key), "device_ns": device_ns, "kernels": len(own)},
            "device_busy_pct": percent(busy(key), sum(busy(k) for k in keys if k[0] == key[0])),
        }
    return rows


def _phases_of_operators(recording: Recording) -> dict[Span, Told]:
    """Gradients are of the backward pass, and what made their nodes of the forward one; else user
    ranges tell it, else names, else whether the last backward operator of the step follows."""
    nodes = {op.forward for op in recording.operators if op.forward is not None}
    callers = {s for node in nodes for s in _operators_round(node)}
    phases: dict[Span, Told] = {}
    for op in recording.operators:
        chain = [*op.itself_and_callers()]
        named = next((_OPERATORS[s.name] for s in chain if s.name in _OPERATORS), None)
        ranged = _phase_of_ranges(op.ranges)
        if op.forward is not None:
            phases[op] = "backward", "sequence"
        elif op in callers or any(s in nodes for s in chain):
            phases[op] = "forward", "sequence"
        elif ranged is not None:
            phases[op] = ranged, "range"
        elif named is not None:
            phases[op] = named, "name"
    gradients = [op for op in phases if phases[op][0] == "backward"]
    for op in recording.operators:
        if op not in phases:
            before = _precedes(op.start, op.thread, op.step, gradients)
            phases[op] = ("forward", "order") if before else ("other", None)
    return phases


def _operators_round(node: Span) -> list[Span]:
    """Return what called it, up to what is no operator of a library."""
    callers = []
    for caller in node.callers():
        if "::" not in caller.name:
            break
        callers.append(caller)
    return callers


def _phase_of_ranges(ranges: tuple[Span, ...]) -> str | None:
    inner_first = sorted(ranges, key=lambda span: (-span.start, span.end))
    return next((_RANGES[span.name] for span in inner_first if span.name in _RANGES), None)


def _precedes(time: int, thread: Thread, step: int | None, gradients: list[Span]) -> bool:
    """Return whether a gradient of its step begins later, or its process computes none at all."""
    of_process = [op for op in gradients if op.thread[0] == thread[0]]
    return not of_process or any(op.step == step and time < op.start for op in of_process)


def _phase_of_activity(
    activity: Activity, recording: Recording, of_operator: dict[Span, Told]
) -> tuple[str | None, str | None]:
    call = activity.call
    if activity.operator is not None:
        return of_operator[activity.operator]
    if call is None:
        return None, None
    ranged = _phase_of_ranges(activity.ranges)
    if ranged is not None:
        return ranged, "range"
    gradients = [op for op in of_operator if of_operator[op][0] == "backward"]
    works = any(op.thread[0] == call.thread[0] for op in recording.operators)
    if works and _precedes(call.start, call.thread, activity.step, gradients):
        return "forward", "order"
    return "other", None


def _between_operators(recording: Recording) -> list[tuple[int, int, str]]:
    """Return when ranges that name a phase are open and no operator of their thread is; steps cut
    it."""
    naming = [span for span in recording.ranges if span.name in _RANGES]
    pieces = []
    for thread, ranges in group(naming, lambda span: span.thread).items():
        operators = [op for op in recording.operators if op.thread == thread]
        spans = [*ranges, *operators, *recording.steps]
        edges = sorted({t for s in spans for t in (s.start, s.end)})
        for low, high in pairwise(edges):
            phase = _phase_of_ranges(tuple(s for s in ranges if s.start <= low < s.end))
            if phase is not None and not any(s.start <= low < s.end for s in operators):
                pieces.append((low, high, phase))
    return pieces
