"""Which recordings of a rank go on from each other, are copies, or are older."""

from collections import defaultdict
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from htk.base.columns.arrow import read_numbers
from htk.base.io.entry import Entry
from htk.traces.trace.file import FileRecording, TraceFile, steps_of

POLLED = ("flight_recorder",)  # dumped again and again, each time with what was before


def cycles_of(rank: int | None, items: list[tuple[FileRecording, str]]) -> list[TraceFile]:
    """Return the recordings of one rank in order of time, without copies and older recordings.

    Two that overlap in time are two processes, both kept. Of two whose steps do not go on the newer
    is the recording, and the older is named.
    """
    kept: list[tuple[FileRecording, str]] = []
    same_rank: dict[tuple[str, int], list[tuple[str, str]]] = defaultdict(list)
    for item in sorted(items, key=lambda i: (start_of(i[0]), i[0].source.name)):
        name = item[0].source.name
        goes_on = any(_same_process(recording, item[0]) for recording, _ in kept)
        if kept and rank is not None and not goes_on:
            last = kept[-1][0]
            if last.source is not item[0].source and is_copy(last, item[0]):
                if _count_stacks(item[0]) > _count_stacks(last):
                    kept[-1], name = item, last.source.name
                kept_now = kept[-1][0]
                same_rank[kept_now.source.name, kept_now.process].append(("copy_of_a_file", name))
                continue
            if overlap_in_time(last, item[0]):
                if item[0].parser not in POLLED:
                    same_rank[name, item[0].process].append(("same_rank", last.source.name))
            elif _begins_anew(last, item[0]):
                same_rank[name, item[0].process] += [
                    ("older_recording", recording.source.name) for recording, _ in kept
                ]
                kept = []
        kept.append(item)
    parts: list[TraceFile] = []
    for recording, rank_from in kept:
        before = _first_event(parts, kept, recording)
        name = recording.source.name
        part = TraceFile(
            recording.entry, name, rank, len(parts), rank_from, before, recording.parser
        )
        size, others = recording.source.size, tuple(same_rank[name, recording.process])
        parts.append(replace(part, file_bytes=size, same_rank_files=others))
    return parts


def _same_process(recording: FileRecording, other: FileRecording) -> bool:
    """Return whether two recordings are cycles of one process of one file."""
    return recording.source is other.source and recording.process == other.process


def _first_event(
    parts: list[TraceFile], kept: list[tuple[FileRecording, str]], recording: FileRecording
) -> int:
    """Return what is added to a recording's events; the cycles of a file share its count."""
    for part, (earlier, _) in zip(parts, kept, strict=False):
        if _same_process(earlier, recording):
            return part.first_event
    return parts[-1].first_event + _events_of(parts[-1].entry) if parts else 0


def is_copy(recording: FileRecording, other: FileRecording) -> bool:
    """Return whether two files hold one recording, as a trace and its compressed copy do."""
    timed = None not in _read_times(recording)  # two files that tell no times may be of any time
    return (
        timed
        and _count_events(recording) == _count_events(other)
        and _read_times(recording) == _read_times(other)
    )


def _count_stacks(item: FileRecording) -> int:
    """Return how many calls have their stack: a recorder's pickle holds them, its JSON does not."""
    return int(str(item.entry.parsed.facts.get("stacks") or 0))


def _read_times(item: FileRecording) -> tuple[object, object]:
    facts = item.entry.parsed.facts
    return facts.get("start_ns"), facts.get("end_ns")


def _begins_anew(earlier: FileRecording, later: FileRecording) -> bool:
    """Return whether the steps of the later recording do not go on where the other's ended."""
    before = steps_of(earlier.entry)
    after = steps_of(later.entry)
    return bool(before and after) and min(after) <= max(before)


def overlap_in_time(recording: FileRecording, other: FileRecording) -> bool:
    """Both recorded the same time: copies of a file, or files of two jobs in one folder."""
    a = recording.entry.parsed.facts
    b = other.entry.parsed.facts
    if None in (a.get("start_ns"), a.get("end_ns"), b.get("start_ns"), b.get("end_ns")):
        return False
    return start_of(other) < int(str(a["end_ns"])) and start_of(recording) < int(str(b["end_ns"]))


def start_of(item: FileRecording) -> int:
    return int(str(item.entry.parsed.facts.get("start_ns") or 0))


def _count_events(item: FileRecording) -> int:
    return _events_of(item.entry)


def _events_of(entry: Entry) -> int:
    facts = entry.parsed.facts
    return int(str(facts.get("file_rows") or facts.get("events") or 0))


def cycles_of_repeated_steps(marks: pa.Table) -> list[int]:
    """Return the cycles of user ranges whose step a rank has in several."""
    marks = marks.filter(pc.is_valid(marks["step"]))
    rows = np.column_stack([read_numbers(marks[c], -1) for c in ("rank", "step", "cycle")])
    rows = np.unique(rows, axis=0)
    repeated = (rows[1:, :2] == rows[:-1, :2]).all(axis=1)
    several = np.append(repeated, False) | np.append(False, repeated)
    return [int(cycle) for cycle in np.unique(rows[several[: len(rows)], 2])]
