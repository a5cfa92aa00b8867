"""What the cores of TPUs ran, read a second time from a profile of XLA.

Apart from the parser on purpose. Operators nest, so that those in order count by the time that
they cover together; what runs beside them, from its start to its done, counts one by one.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from htk.base.mappings import Fields
from htk.verdicts.verify.protobuf import read_fields

Totals = dict[str, tuple[int, int]]  # of each core, in order and beside: how many, and time in ns

_CORE = re.compile(r"/device:TPU:(\d+)(?: SparseCore (\d+))?")
_IN_ORDER = ("XLA Ops", "Sparse Core Ops")
_BESIDE = "Async XLA Ops"
_PLANES, _NAME, _LINES, _DESCRIPTIONS, _FACTS = 1, 2, 3, 4, 5  # fields of XSpace, XPlane
_BEGAN, _EVENTS, _LINE_SHOWN = 3, 4, 11  # of XLine
_KIND, _OFFSET, _DURATION, _STATS = 1, 2, 3, 4  # of XEvent, in ps
_FACT, _TEXT, _REFERENCE = 1, 5, 7  # of XStat
_KEY, _VALUE, _SHOWN = 1, 2, 4  # of entries of tables, and of what they describe
_SIGN = 1 << 63
_LANES = 1000  # streams of each core
_OPCODE = re.compile(r" ([a-z][a-z0-9-]*)\(")
_HALF = re.compile(r"-(start|done)$")
_OPERAND = re.compile(r"%([\w.-]+)")


class _Operator(NamedTuple):
    """What a line of the program says."""

    instruction: str
    half: str  # start or done, of what runs beside others
    operand: str
    holds_others: bool


class _Run(NamedTuple):
    start: int
    end: int
    operator: _Operator
    hlo: str  # the instruction at which it ends


def sum_profile(data: bytes) -> Totals:
    """Sum what each core ran, from a profile."""
    totals: Totals = {}
    for plane in map(read_fields, read_fields(data).get(_PLANES, [])):
        core = _CORE.fullmatch(_read_text(plane.get(_NAME)))
        if core is None:
            continue
        number = 0 if core[2] is None else int(core[2]) + 1
        described = {
            key: _read_operator(value) for key, value in _list_entries(plane, _DESCRIPTIONS)
        }
        facts = {key: _read_text(value.get(_NAME)) for key, value in _list_entries(plane, _FACTS)}
        lines: dict[bool, list[_Run]] = {True: [], False: []}
        for line in map(read_fields, plane.get(_LINES, [])):
            name = _read_text(line.get(_LINE_SHOWN)) or _read_text(line.get(_NAME))
            if name in (*_IN_ORDER, _BESIDE):
                lines[name == _BESIDE] += _list_runs(line, described, facts)
        in_order, pairs = _join_halves(sorted(lines[False], key=_by_time), lines[True])
        _add_total(totals, _label_core(int(core[1]), number, False), _measure_covered(in_order))
        beside = [(run.start, run.end) for run in lines[True]] + pairs
        time = sum(end - start for start, end in beside)
        _add_total(totals, _label_core(int(core[1]), number, True), (len(beside), time))
    return {label: total for label, total in totals.items() if total[0]}


def sum_answer(kernels: Iterable[Fields]) -> Totals:
    """Sum the same of rows of the table of kernels."""
    totals: Totals = {}
    for row in kernels:
        core, lane = divmod(row["stream"], _LANES)
        _add_total(
            totals, _label_core(row["device"], core, lane > 0), (1, row["end_ns"] - row["start_ns"])
        )
    return totals


def _label_core(device: int, core: int, is_beside: bool) -> str:
    return f"TPU {device}, core {core}, {'beside others' if is_beside else 'in order'}"


def _add_total(totals: Totals, label: str, more: tuple[int, int]) -> None:
    count, time = totals.get(label, (0, 0))
    totals[label] = count + more[0], time + more[1]


def _list_runs(
    line: dict[int, list[Any]], described: Mapping[int, _Operator], facts: Mapping[int, str]
) -> Iterator[_Run]:
    began = _read_signed(line.get(_BEGAN))
    for event in map(read_fields, line.get(_EVENTS, [])):
        offset = _read_signed(event.get(_OFFSET))
        duration = _read_signed(event.get(_DURATION))
        if duration > 0:
            hlo = ""
            for stat in map(read_fields, event.get(_STATS, [])):
                if facts.get(stat.get(_FACT, [0])[0]) == "hlo_op":
                    hlo = _read_text(stat.get(_TEXT)) or facts.get(stat.get(_REFERENCE, [0])[0], "")
            operator = described.get(event.get(_KIND, [0])[0], _Operator("", "", "", False))
            start = began + offset // 1000
            end = began + (offset + duration) // 1000
            yield _Run(start, end, operator, hlo)


def _list_entries(
    plane: dict[int, list[Any]], table: int
) -> Iterator[tuple[int, dict[int, list[Any]]]]:
    for entry in map(read_fields, plane.get(table, [])):
        yield entry.get(_KEY, [0])[0], read_fields(entry.get(_VALUE, [b""])[0])


def _read_operator(description: dict[int, list[Any]]) -> _Operator:
    text = _read_text(description.get(_NAME))
    shown = _read_text(description.get(_SHOWN)) or text
    stem = shown.removeprefix("%").rstrip("0123456789.")
    opcode = _OPCODE.search(text)
    code = opcode[1] if opcode else stem
    half = _HALF.search(code) or _HALF.search(stem)
    operand = _OPERAND.search(text, opcode.end()) if opcode else None
    name, _, line = text.partition(" = ")
    instruction = name.removeprefix("%") if line else shown
    return _Operator(
        instruction,
        half[1] if half else "",
        operand[1] if operand else "",
        code in ("while", "conditional", "call"),
    )


def _join_halves(runs: list[_Run], beside: list[_Run]) -> tuple[list[_Run], list[tuple[int, int]]]:
    """Return the operators in order without starts and dones of what runs beside them, and the
    spans of those that no line shows."""
    shown: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for run in beside:
        for name in (run.operator.instruction, run.hlo):
            for half in {name, name.replace("-start", "-done")}:
                shown[half].append((run.start, run.end))
    rest: dict[int, _Run] = {}
    pairs: list[tuple[int, int]] = []
    begun: dict[str, int] = {}
    for position, run in enumerate(runs):
        operator = run.operator
        spans = shown.get(operator.instruction, []) if operator.half else []
        if any(start <= run.end and end >= run.start for start, end in spans):
            continue
        if operator.half == "done" and operator.operand in begun:
            pairs.append((rest.pop(begun.pop(operator.operand)).start, run.end))
            continue
        if operator.half == "start":
            begun[operator.instruction] = position
        rest[position] = run
    return [*rest.values()], pairs


def _measure_covered(runs: list[_Run]) -> tuple[int, int]:
    """Return how many operators lie in none that counts, and the time that all cover. One that runs
    others is none of them."""
    count = time = 0
    reach = -_SIGN
    followers = [*runs[1:], None]
    for run, follower in zip(runs, followers, strict=True):
        runs_others = follower is not None and follower.start < run.end
        if run.operator.holds_others and runs_others:
            continue
        count += run.end > reach
        time += max(0, run.end - max(run.start, reach))
        reach = max(reach, run.end)
    return count, time


def _by_time(run: _Run) -> tuple[int, int]:
    return run.start, -run.end


def _read_text(values: list[Any] | None) -> str:
    text = values[-1] if values else b""
    if not isinstance(text, bytes):
        raise TypeError("a number where a text is expected")
    return text.decode("utf8", "replace")


def _read_signed(values: list[Any] | None) -> int:
    value = int(values[-1]) if values else 0
    return value - 2 * _SIGN if value >= _SIGN else value
