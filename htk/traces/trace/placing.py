"""Files that lost what their times are relative to, put beside the files of other ranks.

Kineto writes `baseTimeNanoseconds` at the end of a file. A rank that is killed while it writes
leaves a file whose times count from some moment after the machine's start, decades from the
others'.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import mark_valid, read_booleans
from htk.traces.trace.file import TraceFile

_ABSOLUTE_NS = 10**18  # later than this (2001) a time counts from 1970

_ENOUGH = 10_000  # collectives to compare

_Mark = tuple[str | int, ...]
_Marks = dict[_Mark, int]


def place_files(files: list[TraceFile]) -> list[TraceFile]:
    """Return the files, those without a base time shifted to where another rank's marks are."""
    absolute = [f for f in files if (_read_start(f) or 0) >= _ABSOLUTE_NS]
    if not absolute:
        return files
    return [_place_file(f, absolute[0]) if _is_lost(f) else f for f in files]


def _is_lost(file: TraceFile) -> bool:
    facts = file.entry.parsed.facts
    start = _read_start(file)
    cut = bool(facts.get("truncated")) and not facts.get("base_time_ns")
    return cut and start is not None and start < _ABSOLUTE_NS


def _read_start(file: TraceFile) -> int | None:
    start = file.entry.parsed.facts.get("start_ns")
    return None if start is None else int(str(start))


def _place_file(file: TraceFile, other: TraceFile) -> TraceFile:
    for name, marks in _MARKS.items():
        shift = _find_shift(marks(file), marks(other))
        if shift is not None:
            return replace(file, shift_ns=shift, placed_by=name)
    return replace(file, placed_by="nothing")


def _find_shift(these: _Marks, those: _Marks) -> int | None:
    """Return the median distance of the marks that both files have, or None without any."""
    both = these.keys() & those.keys()
    return int(np.median([those[mark] - these[mark] for mark in both])) if both else None


def _read_collective_marks(file: TraceFile) -> _Marks:
    """Return the ends of collectives by group, type and sequence number."""
    table = file.table("collectives").slice(0, _ENOUGH)
    keys = zip(*(table[c].to_pylist() for c in ("group", "type", "seq")), strict=True)
    ends = table["end_ns"].to_pylist()
    return _select_unique([(k, e) for k, e in zip(keys, ends, strict=True) if None not in (*k, e)])


def _read_step_marks(file: TraceFile) -> _Marks:
    """Return the starts of the profiler's steps by number."""
    table = file.table("annotations")
    table = table.filter(pa.array(mark_valid(table["step"]) & ~read_booleans(table["on_gpu"])))
    steps = zip(table["step"].to_pylist(), table["start_ns"].to_pylist(), strict=True)
    return _select_unique([((step,), start) for step, start in steps])


def _select_unique(marks: list[tuple[_Mark, int]]) -> _Marks:
    """Return the marks that a file has once; of others it is not clear which is which."""
    count = Counter(mark for mark, _ in marks)
    return {mark: time for mark, time in marks if count[mark] == 1}


_MARKS: dict[str, Callable[[TraceFile], _Marks]] = {
    "collectives": _read_collective_marks,
    "steps": _read_step_marks,
}
