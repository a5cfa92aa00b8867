"""Smaller traces cut from larger ones: whole events as recorded, of chosen ranks, steps, times.

Which events is decided where selections are (`htk.traces.trace.cut`). The header of what is written
tells of the cut, so that it is read as the selection is; other tools pass over it.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from htk.base.columns.types import Mask
from htk.base.errors import MissingTable
from htk.parsers.kineto.text import Event
from htk.quantities.derived.cut_header import KEY, header_of
from htk.traces.trace.cut import CutRecording
from htk.traces.trace.file import TraceFile
from htk.traces.trace.selection import cut_of, nothing_of
from htk.traces.trace.trace import Trace


@dataclass(frozen=True)
class Trimmed:
    """What of a file is written."""

    event: Event
    header: bytes = b""  # a member of the outer object; none where all is written


def trimmed_file(trace: Trace, name: str) -> Trimmed:
    """Return what of a file the selection leaves, be it of several ranks and cycles."""
    cuts = _cut_recordings(trace, name)
    event = partial(_kept_event, _kept_events(cuts))
    header = _encode_cuts(cuts) if trace.selection.narrows else b""
    return Trimmed(event, header)


def kept_events(trace: Trace, name: str) -> Mask:
    """Return which events of a file the selection leaves, by their number; all beyond them."""
    return _kept_events(_cut_recordings(trace, name))


def _cut_recordings(trace: Trace, name: str) -> list[CutRecording]:
    """Return what the selection leaves of each recording of a file, in their order there."""
    parts = [part for part in trace.files if part.file == name]
    _refuse_other_steps(trace, parts)
    parts.sort(key=lambda part: (part.entry.parsed.facts.get("process") or 0, part.cycle))
    selection = trace.selection
    origin = trace.origin_ns
    return [
        cut_of(part, selection, origin) if trace.is_chosen(part) else nothing_of(part)
        for part in parts
    ]


def _kept_events(cuts: Sequence[CutRecording]) -> Mask:
    """Return which events of a file are kept, by number; those of no recording are."""
    masks = [cut.events for cut in cuts]
    kept = np.ones(max(map(len, masks)), bool)
    for mask in masks:
        kept[: len(mask)] &= mask
    return kept


def _kept_event(kept: Mask, row: int, text: bytes) -> bytes | None:
    """Return an event as it is, or None where it is not kept."""
    return text if row >= len(kept) or kept[row] else None


def _encode_cuts(cuts: Sequence[CutRecording]) -> bytes:
    names = ("cut_windows", "passing")
    headers = [header_of({n: cut.table(n) for n in names}, cut.header_facts) for cut in cuts]
    return json.dumps(KEY).encode() + b": " + json.dumps(headers, separators=(",", ":")).encode()


def _refuse_other_steps(trace: Trace, cycles: Sequence[TraceFile]) -> None:
    """Refuse steps that no cycle of a file has."""
    chosen = trace.selection.steps
    numbered = {s for c in cycles for s in c.table("annotations")["step"].unique().to_pylist()}
    if chosen is not None and not chosen & numbered:
        seen = sorted(numbered - {None}) or "no ProfilerStep"
        raise MissingTable(f"{cycles[0].file}: none of the steps asked for; it has {seen}")


def target_names(parts: Sequence[TraceFile]) -> list[str]:
    """Return a file name for each part, compressed and each different."""
    names: list[str] = []
    for part in parts:
        name = Path(part.file.replace("!", "/")).name.removesuffix(".gz").removesuffix(".zst")
        if f"{name}.gz" in names:
            name = f"rank{part.rank}.{part.cycle}.{name}"
        names.append(f"{name}.gz")
    return names
