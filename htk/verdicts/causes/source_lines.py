"""Where in the program a cause is: the function that ran at that time, and its line."""

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import codes_of, match_texts, read_numbers, read_times
from htk.base.columns.types import NONE
from htk.quantities.measures.program_lines import is_of_program
from htk.traces.trace.trace import Trace
from htk.verdicts.causes.cause import Example


class SourceLines:
    """Python calls of the program and its libraries, without those of PyTorch and Python."""

    def __init__(self, python_calls: pa.Table) -> None:
        own = match_texts(python_calls["name"], is_of_program)
        self._calls = python_calls.filter(pa.array(own))
        self._rank = read_numbers(self._calls["rank"], NONE)
        self._start, self._end = read_times(self._calls)

    def line_of(self, example: Example, recording: Trace | None) -> str | None:
        """Return the innermost function that ran when an instance of a cause did, or when the
        activity was launched that it is; None: none is recorded."""
        if not self._calls.num_rows:
            return None
        time = (example.start_ns + example.end_ns) // 2
        if recording is not None:
            time = _launch_time(recording, example) or time
        open_calls = (self._rank == example.rank) & (self._start <= time) & (self._end > time)
        rows = np.flatnonzero(open_calls)
        if not len(rows):
            return None
        codes, names = codes_of(self._calls["name"])
        return str(names[int(codes[rows[self._start[rows].argmax()]])])


def _launch_time(recording: Trace, example: Example) -> int | None:
    """Return when the GPU activity was launched that an example begins with; None: it begins with
    none, or no launch of it was recorded."""
    kernels = recording.tables["kernels"]
    same = (read_numbers(kernels["rank"], NONE) == example.rank) & (
        read_numbers(kernels["start_ns"]) == example.start_ns
    )
    rows = np.flatnonzero(same & (read_numbers(kernels["end_ns"]) <= example.end_ns))
    if not len(rows):
        return None
    launch = read_numbers(recording.tables["kernel_links"]["launch_row"], NONE)[rows[0]]
    starts = recording.tables["launches"]["start_ns"]
    return None if launch == NONE else starts[int(launch)].as_py()
