"""When a recording of a server begins to serve.

Engines capture their graphs, and warm up, before they answer anybody; a folder as it is downloaded
often holds both. The capture tells shapes of what its graphs run, but its times are no serving.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from htk.base.columns.arrow import match_texts, read_booleans, read_numbers
from htk.base.names.server_ranges import is_capture_range, is_server_range
from htk.traces.trace.file import TraceFile
from htk.traces.trace.selection import EVERYTHING
from htk.traces.trace.trace import Trace


def as_served(trace: Trace) -> Trace:
    """Return the trace; of a server that captured its graphs before, from when it serves."""
    begin = serving_start(trace.files)
    if begin is None:
        return trace
    return replace(trace, serves_ns=begin - trace.origin_ns).under(EVERYTHING)


def serving_start(files: Sequence[TraceFile]) -> int | None:
    """Return when serving begins, absolute, in ns, where an engine captured its graphs before;
    None: this is no server, or all of it serves."""
    ranks = {file.rank for file in files if file.format == "kineto"}
    if not ranks:
        return None
    first_rank = min(ranks, key=lambda rank: -1 if rank is None else rank)
    if not any(_find_first_iteration(file) for file in files if file.rank == first_rank):
        return None  # ranks do the same
    begins = [start for file in files if (start := _find_first_iteration(file)) is not None]
    begin = min(begins)
    captures = [file for file in files if _captures_before(file, begin)]
    if not captures:
        return None
    apart = [
        file for file in files if file not in captures and _find_first_iteration(file) is not None
    ]
    recorded = [file.table("ranks")["start_ns"][0].as_py() for file in apart]
    starts = [int(start) for start in recorded if start is not None]
    return min([begin, *(start for start in starts if start > _last_capture(captures))])


def _find_first_iteration(file: TraceFile) -> int | None:
    """Return when the first iteration of a server begins on the host; None: there is none."""
    marks = file.table("server_marks")
    if not marks.num_rows:
        return None
    named = match_texts(marks["name"], is_server_range) & ~read_booleans(marks["on_gpu"])
    return int(read_numbers(marks["start_ns"])[named].min()) if named.any() else None


def _captures_before(file: TraceFile, begin: int) -> bool:
    """Return whether a file holds the capture of a graph before that time."""
    return bool((_capture_ends(file) < begin).any())


def _capture_ends(file: TraceFile) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    marks = file.table("server_marks")
    launches = file.table("launches")
    ranges = match_texts(marks["name"], is_capture_range)
    calls = match_texts(launches["name"], lambda name: "EndCapture" in name)
    ends = (read_numbers(marks["end_ns"])[ranges], read_numbers(launches["end_ns"])[calls])
    return np.concatenate(ends).astype(np.int64)


def _last_capture(files: Sequence[TraceFile]) -> int:
    return max(int(_capture_ends(file).max()) for file in files)
