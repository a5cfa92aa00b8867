"""The HLO operators that launched GPU work.

A thread has two lines: one of its calls of CUDA or HIP, by the system's thread id, and one of its
ranges, by XLA's name. A call carries the name of its HLO operator (on CUDA its kernel does), and
the range round it is called the same: that tells which two lines are one. Launches in no such
range are put together: their operator spans from the first of them to the last.
"""

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace

from htk.parsers.xplane.space import PlaneEvent

_Spans = dict[tuple[str, str], list[tuple[int, int]]]  # of a line and a name, in order


def with_operators(
    calls: Sequence[PlaneEvent], kernels: Sequence[PlaneEvent], host: Sequence[PlaneEvent]
) -> tuple[list[PlaneEvent], list[PlaneEvent]]:
    """Return calls, each on the line of its thread's ranges, and operators that no range shows."""
    launched = {k.correlation: k.hlo for k in kernels if k.hlo and k.correlation > 0}
    named = [replace(c, hlo=c.hlo or launched.get(c.correlation, "")) for c in calls]
    spans, holding = _find_spans(host, {c.hlo for c in named if c.hlo})
    lines = _same_lines(named, spans, holding)
    moved = [replace(c, thread=lines.get(c.thread, c.thread)) for c in named]
    free = [c for c in moved if not _is_held(spans.get((c.thread, c.hlo), ()), c.start, c.end)]
    return moved, _put_together(free)


def _same_lines(
    calls: Sequence[PlaneEvent], spans: _Spans, holding: dict[str, set[str]]
) -> dict[str, str]:
    """Return the line of ranges for each line of calls: that whose ranges hold most of its calls,
    if they hold more than half of those whose operator any range shows. Devices may run one
    operator at the same time: where two lines hold as many, or two lines of calls want the same,
    none is taken."""
    votes: dict[str, Counter[str]] = defaultdict(Counter)
    asked: Counter[str] = Counter()
    for call in calls:
        asked[call.thread] += call.hlo in holding
        for line in holding.get(call.hlo, ()):
            if _is_held(spans[line, call.hlo], call.start, call.end):
                votes[call.thread][line] += 1
    best: dict[str, str] = {}
    for thread, counted in votes.items():
        (line, most), *others = counted.most_common(2)
        if 2 * most > asked[thread] and not (others and others[0][1] == most):
            best[thread] = line
    wanted = Counter(best.values())
    return {thread: line for thread, line in best.items() if wanted[line] == 1}


def _find_spans(host: Sequence[PlaneEvent], names: set[str]) -> tuple[_Spans, dict[str, set[str]]]:
    """Return when each line ran each operator, and the lines that ever did."""
    spans: _Spans = defaultdict(list)
    holding: dict[str, set[str]] = defaultdict(set)
    for event in host:
        if event.name in names:
            spans[event.thread, event.name].append((event.start, event.end))
            holding[event.name].add(event.thread)
    for listed in spans.values():
        listed.sort()
    return spans, holding


def _is_held(spans: Sequence[tuple[int, int]], start: int, end: int) -> bool:
    position = bisect_right(spans, start, key=lambda span: span[0]) - 1
    return position >= 0 and end <= spans[position][1]


def _put_together(calls: Sequence[PlaneEvent]) -> list[PlaneEvent]:
    """Return an operator for each run of launches of one name on a thread."""
    operators: list[PlaneEvent] = []
    before: PlaneEvent | None = None
    for call in sorted(calls, key=lambda c: (c.thread, c.start)):
        continues = before is not None and (before.thread, before.hlo) == (call.thread, call.hlo)
        if call.hlo and continues:
            operators[-1] = replace(operators[-1], end=max(operators[-1].end, call.end))
        elif call.hlo:
            operators.append(replace(call, name=call.hlo, correlation=-1))
        before = call
    return operators
