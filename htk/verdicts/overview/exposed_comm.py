"""Exposed communication, split into what is waited for and what is moved."""

import pyarrow as pa

from htk.answers.ask import ask_trace
from htk.base.columns.arrow import read_numbers
from htk.base.errors import MissingTable
from htk.quantities.derived.recorded import unrecorded_ranks
from htk.traces.trace.trace import Trace


def exposed_comm(trace: Trace, exposed: int) -> list[tuple[str, int, str]]:
    """Return exposed communication, split where other ranks tell waiting from moving bytes."""
    if not exposed:
        return []
    split = _split_of_comm(trace)
    if split is None:
        return [("exposed communication", exposed, "comm_compute_overlap")]
    wait = min(int(read_numbers(split["exposed_wait_ns"]).sum()), exposed)
    unknown = min(int(read_numbers(split["exposed_undetermined_ns"]).sum()), exposed - wait)
    return [
        ("exposed wait for other ranks", wait, "stragglers"),
        ("exposed transfer", exposed - wait - unknown, "comm_compute_overlap"),
        ("exposed communication, undetermined", unknown, "comm_wait"),
    ]


def _split_of_comm(trace: Trace) -> pa.Table | None:
    """Return each rank's waiting and transfer; None where none of it is waiting, nor may be."""
    lost = unrecorded_ranks(trace.everything.tables["ranks"])
    try:
        split = ask_trace(trace, "comm_wait").table
    except MissingTable:
        if lost:
            raise
        return None
    of_others = read_numbers(split["wait_ns"]).any() or read_numbers(split["undetermined_ns"]).any()
    return split if lost or of_others else None
