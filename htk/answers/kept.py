"""Answers about a whole recording, kept beside its joined tables.

What needs the collectives of all ranks grows with their number however it is added up; asked again,
its answer is all that is read. Answers are kept as they are by default, of htk's own questions: a
few tables for each recording. What they are kept under follows from the files' entries and from all
code between tables and answers.
"""

from collections.abc import Callable

import pyarrow as pa

from htk.base.core.analysis import Analysis
from htk.base.mappings import Facts
from htk.traces.trace.selection import EVERYTHING
from htk.traces.trace.trace import Trace

_OWN = "htk."  # of a plug-in the code is not known


def kept_answer(
    trace: Trace, chosen: Analysis[...], options: Facts, make: Callable[[], pa.Table]
) -> pa.Table:
    """Return the answer as it was kept, else as it is made, which is kept."""
    joined = trace.joined
    if joined is None or joined.files is not trace.files or trace.selection != EVERYTHING:
        return make()
    if chosen.filled(options) != chosen.filled({}) or not chosen.function.__module__.startswith(
        _OWN
    ):
        return make()
    return joined.answer(chosen.name, make)
