"""Smaller traces cut from larger ones: whole events as recorded, of chosen ranks, steps, times.

CPU events are kept that overlap the chosen steps' (or times') span on the CPU, GPU activities that
were launched in it, flows and ranges that belong to them, and everything that has no time.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from htk.base.columns.arrow import codes_of, matching, numbers, truths
from htk.base.columns.intervals import Spans, union
from htk.base.columns.types import NO_TIME
from htk.base.errors import MissingTable
from htk.traces.trace.file import TraceFile
from htk.traces.trace.trace import Trace

_INSTANTS = ("memory", "counters", "flows")
_CPU = ("cpu_ops", "launches", "python_calls", "overheads")


def wanted(trace: Trace, part: TraceFile) -> NDArray[np.bool_]:
    """Return which events of a file of several ranks and cycles are kept, by row; those beyond the
    end of the mask are kept too."""
    cycles = [p for p in trace.files if p.file == part.file]
    chosen = {id(p) for p in trace.selected_files}
    _refuse_other_steps(trace, [p for p in cycles if id(p) in chosen])
    masks = [_wanted_of_cycle(trace, p, id(p) in chosen) for p in cycles]
    keep = np.ones(max(map(len, masks)), bool)
    for mask in masks:
        keep[: len(mask)] &= mask
    return keep


def kept_event(keep: NDArray[np.bool_], row: int, text: bytes) -> bytes | None:
    """Return an event as it is, or None where it is not kept."""
    return text if row >= len(keep) or keep[row] else None


def _refuse_other_steps(trace: Trace, cycles: Sequence[TraceFile]) -> None:
    """Refuse steps that no cycle of a file has."""
    chosen = trace.selection.steps
    numbered = {s for c in cycles for s in c.table("annotations")["step"].unique().to_pylist()}
    if chosen is not None and not chosen & numbered:
        seen = sorted(numbered - {None}) or "no ProfilerStep"
        raise MissingTable(f"{cycles[0].file}: none of the steps asked for; it has {seen}")


def _wanted_of_cycle(trace: Trace, part: TraceFile, is_chosen: bool) -> NDArray[np.bool_]:
    tables = {name: part.table(name) for name in _NEEDED}
    rows = max((int(numbers(t["event"], -1).max(initial=-1)) for t in tables.values()), default=-1)
    keep = np.ones(rows + 1 - part.first_event, bool)
    spans = _spans(trace, part, tables) if is_chosen else _NEVER
    chosen: dict[str, NDArray[np.bool_]] = {
        name: _overlapping(spans, tables[name]) for name in ("events", *_CPU)
    }
    chosen |= {name: _at(spans, numbers(tables[name]["time_ns"])) for name in _INSTANTS}
    launched = numbers(part.table("kernel_links")["launch_start_ns"], NO_TIME)
    start = numbers(tables["kernels"]["start_ns"])
    chosen["kernels"] = _at(spans, np.where(launched > NO_TIME, launched, start))
    chosen["annotations"] = _annotations(spans, tables["annotations"])
    chosen["syncs"] = _with(tables, "syncs", "correlation", "launches", chosen)
    uncalled = numbers(tables["syncs"]["correlation"], -1) < 0  # MTIA's: by time
    chosen["syncs"] |= uncalled & _at(spans, numbers(tables["syncs"]["start_ns"]))
    chosen["flows"] |= _launch_flows(tables, chosen)
    for name in _NEEDED:  # what has a table of its own is decided there, after `events`
        keep[numbers(tables[name]["event"]) - part.first_event] = chosen[name]
    return keep


_NEVER = union(np.empty(0, np.int64), np.empty(0, np.int64))
_NEEDED = ("events", *_CPU, *_INSTANTS, "kernels", "annotations", "syncs")


def _spans(trace: Trace, part: TraceFile, tables: Mapping[str, Any]) -> Spans:
    """Return the chosen time on the CPU."""
    chosen = trace.selection
    annotations = tables["annotations"]
    start, end = numbers(annotations["start_ns"]), numbers(annotations["end_ns"])
    if chosen.steps is not None:
        steps = np.isin(numbers(annotations["step"], -1), list(chosen.steps))
        on_cpu = steps & ~truths(annotations["on_gpu"])
        start, end = start[on_cpu], end[on_cpu]
    else:
        start = numbers(part.table("ranks")["start_ns"])
        end = numbers(part.table("ranks")["end_ns"]) + 1
    low = -(2**62) if chosen.from_ns is None else trace.origin_ns + chosen.from_ns
    high = 2**62 if chosen.to_ns is None else trace.origin_ns + chosen.to_ns
    return union(np.maximum(start, low), np.minimum(end, high))


def _at(spans: Spans, time: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which moments lie in the spans."""
    if not len(spans.start):
        return np.zeros(len(time), bool)
    position = np.searchsorted(spans.start, time, side="right") - 1
    return np.asarray((position >= 0) & (time < spans.end[np.maximum(position, 0)]))


def _overlapping(spans: Spans, table: Any) -> NDArray[np.bool_]:
    """Return which events begin in the spans, or lie over a beginning of one."""
    start, end = numbers(table["start_ns"]), numbers(table["end_ns"])
    before = np.searchsorted(spans.start, start, side="left")
    after = np.searchsorted(spans.start, end, side="left")
    return np.asarray(_at(spans, start) | (after > before))


def _annotations(spans: Spans, table: Any) -> NDArray[np.bool_]:
    """Return the ranges on the CPU by time; their GPU copies with them."""
    chosen = _overlapping(spans, table)
    on_gpu = truths(table["on_gpu"])
    ids = numbers(table["external_id"], -1)
    named, _ = codes_of(table["name"])
    kept = chosen & ~on_gpu
    by_id = (ids >= 0) & np.isin(ids, ids[kept])
    steps = numbers(table["step"], -1)
    by_step = (steps >= 0) & np.isin(steps, steps[kept])
    of_cpu = np.isin(named, named[~on_gpu])
    return np.asarray(np.where(on_gpu, by_id | by_step | (~of_cpu & chosen), kept))


def _with(
    tables: Mapping[str, Any], name: str, column: str, other: str, chosen: Mapping[str, Any]
) -> NDArray[np.bool_]:
    """Return the rows whose number in `column` a kept row of another table has."""
    own = numbers(tables[name][column], -1)
    theirs = numbers(tables[other][column], -1)[chosen[other]]
    return np.asarray((own >= 0) & np.isin(own, theirs))


def _launch_flows(tables: Mapping[str, Any], chosen: Mapping[str, Any]) -> NDArray[np.bool_]:
    """The arrows' ends at kept GPU activities: an arrow's id is the correlation."""
    arrows = matching(tables["flows"]["category"], "ac2g".__eq__)
    own = numbers(tables["flows"]["flow"], -1)
    kept = numbers(tables["kernels"]["correlation"], -1)[chosen["kernels"]]
    return np.asarray(arrows & (own >= 0) & np.isin(own, kept))


def target_names(parts: Sequence[TraceFile]) -> list[str]:
    """Return a file name for each part, compressed and each different."""
    names: list[str] = []
    for part in parts:
        name = Path(part.file.replace("!", "/")).name.removesuffix(".gz").removesuffix(".zst")
        if f"{name}.gz" in names:
            name = f"rank{part.rank}.{part.cycle}.{name}"
        names.append(f"{name}.gz")
    return names
