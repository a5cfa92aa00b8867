"""A recording of long steps, made of a short one that is repeated.

A step of a million activities takes a simulator minutes and a reader gigabytes. What graphs and
what-ifs read of it is the same when the recording of some steps of few micro-batches follows itself
many times, with ids of its own each time, and three steps are marked over all.
"""

from collections.abc import Mapping
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from htk.base.core.parser import Parsed
from htk.base.io.entry import MemoryEntry
from htk.traces.trace.file import TraceFile
from htk.traces.trace.trace import Trace

STEPS = 3
TABLES = (
    "kernels", "cpu_ops", "launches", "syncs",
    "annotations", "memory", "collectives", "comm_groups",
)  # fmt: skip
_TIMES = ("start_ns", "end_ns", "time_ns", "queued_ns", "enqueue_ns")
# Columns that hold ids of one kind.
_IDS = (
    ("event", "op_event"),
    ("correlation", "wait_correlation"),
    ("external_id",),
    ("sequence",),
    ("record_function_id",),
    ("wait_event_id",),
    ("seq",),
)


def repeated(trace: Trace, times: int) -> Trace:
    """Return a trace of three steps, each of which holds a third of the repetitions."""
    if times % STEPS:
        raise ValueError(f"{times} repetitions; expected a multiple of {STEPS}")
    every = [table for file in trace.files for table in _tables(file).values()]
    starts = [pc.min(t["start_ns"]).as_py() for t in every if "start_ns" in t.column_names]
    ends = [pc.max(t["end_ns"]).as_py() for t in every if "end_ns" in t.column_names]
    period = max(e for e in ends if e) - min(s for s in starts if s) + 1
    return Trace(tuple(_repeated(file, times, period) for file in trace.files))


def _tables(file: TraceFile) -> dict[str, pa.Table]:
    return {n: file.entry.tables[n] for n in TABLES if n in file.entry.tables}


def _repeated(file: TraceFile, times: int, period: int) -> TraceFile:
    tables = _tables(file)
    spans = {name: _span(tables, names) for names in _IDS for name in names}
    spans |= dict.fromkeys(_TIMES, period)
    longer = {name: _following(table, times, spans) for name, table in tables.items()}
    longer["comm_groups"] = tables["comm_groups"]
    longer["annotations"] = _three_steps(longer["annotations"], times)
    facts = dict(file.entry.parsed.facts)
    facts |= {"events": sum(table.num_rows for table in longer.values()), "end_ns": None}
    parsed = file.entry.parsed
    return replace(file, entry=MemoryEntry(Parsed(longer, parsed.rank, parsed.world_size, facts)))


def _span(tables: Mapping[str, pa.Table], names: tuple[str, ...]) -> int:
    """Return how far apart ids of two repetitions are."""
    columns = [t[name] for t in tables.values() for name in names if name in t.column_names]
    return max((pc.max(column).as_py() or 0 for column in columns), default=0) + 1


def _following(table: pa.Table, times: int, spans: Mapping[str, int]) -> pa.Table:
    """Return the rows of a table many times, each time later and with other ids."""
    shifted = [name for name in table.column_names if name in spans]
    copies = []
    for k in range(times):
        following = table
        for name in shifted:
            values = table[name]
            moved = pc.add(values, pa.scalar(k * spans[name], values.type))
            if name not in _TIMES:  # 0 and less stand for none
                moved = pc.if_else(pc.greater(values, 0), moved, values)
            index = table.column_names.index(name)
            following = following.set_column(index, table.field(index), moved)
        copies.append(following)
    return pa.concat_tables(copies).combine_chunks()


def _three_steps(annotations: pa.Table, times: int) -> pa.Table:
    """Return the annotations with three steps marked over all repetitions."""
    is_step = pc.is_valid(annotations["step"])
    steps, rest = annotations.filter(is_step), annotations.filter(pc.invert(is_step))
    each = steps.num_rows // times * (times // STEPS)  # rows of the steps that become one
    marked = []
    for k in range(STEPS):
        rows = steps.slice(k * each, each)
        for on_gpu in (False, True):
            of_side = rows.filter(pc.equal(rows["on_gpu"], on_gpu))
            if of_side.num_rows:
                marked.append(_one_step(of_side, k))
    return pa.concat_tables([rest, *marked]).combine_chunks()


def _one_step(rows: pa.Table, number: int) -> pa.Table:
    """Return one row that spans all of these."""
    first = rows.slice(0, 1)
    values = {"step": number, "start_ns": pc.min(rows["start_ns"]).as_py()}
    values["end_ns"] = pc.max(rows["end_ns"]).as_py()
    for name, value in values.items():
        index = first.column_names.index(name)
        column = pa.array([value], first.field(index).type)
        first = first.set_column(index, first.field(index), column)
    return first
