"""The critical path as events: against a writer that goes piece by piece."""

import json

import numpy as np
import pyarrow as pa

from htk.answers.export.microseconds import as_microseconds, as_nanoseconds
from htk.answers.export.overlay import draw_path_slices
from htk.base.core.humanize import format_microseconds
from htk.quantities.graph.fidelity import draw_path
from htk.traces.trace.opening import open_trace
from htk.traces.trace.trace import Trace


def _piece_by_piece(path: pa.Table, trace: Trace, base: int, process: str) -> list[object]:
    order = {"ph": "M", "name": "process_sort_index", "pid": process, "args": {"sort_index": -1}}
    events: list[object] = [order]
    tracks, before = {"kernels": "GPU", "launches": "host"}, None
    for number, row in enumerate(path.to_pylist()):
        if row["end_ns"] == row["start_ns"]:
            continue
        names = trace.tables[row["table"]]["name"]
        track = tracks[row["table"]] if row["inside"] else "between events"
        where = {"cat": "critical_path", "pid": process, "tid": track}
        start = {"ts": format_microseconds(row["start_ns"] - base)}
        length = {"dur": format_microseconds(row["end_ns"] - row["start_ns"])}
        name = names[row["row"]].as_py() if row["inside"] else row["kind"]
        args = {key: row[key] for key in ("kind", "path_ns", "observed", "event")}
        args["path_ns"] = str(args["path_ns"])
        args["event"] = None if args["event"] is None else str(args["event"])
        events.append({**start, **length, **where, "ph": "X", "name": name, "args": args})
        if before is not None:
            arrow = {"name": "critical path", "id": str(number)}
            events.append({**before, **arrow, "ph": "s"})
            events.append({**start, **where, **arrow, "ph": "f", "bp": "e"})
        before = {**start, **where}
    return events


def test_every_piece_is_drawn_with_an_arrow_to_it() -> None:
    trace = open_trace("sample")
    path = draw_path(trace.tables).pieces
    still = path.take(pa.array([2, 2]))  # a piece without length in the middle, and no event
    still = still.set_column(8, "end_ns", still["start_ns"])
    no_event = path.slice(3).set_column(
        4, "event", pa.chunked_array([pa.nulls(path.num_rows - 3, pa.int64())])
    )
    path = pa.concat_tables([path.slice(0, 3), still, no_event], promote_options="permissive")
    base = int(path["start_ns"][5].as_py())  # earlier times are negative
    events = [
        json.loads(text, parse_float=str, parse_int=str)
        for text in draw_path_slices(path, trace, base)
    ]
    events[0]["args"]["sort_index"] = int(events[0]["args"]["sort_index"])
    assert len({event["tid"] for event in events[1:]}) == 3
    assert events == _piece_by_piece(path, trace, base, "critical path")


def test_times_are_exact() -> None:
    times = np.array([0, 1, -1, 999, -999, 1000, 1_700_000_000_123_456_789, -(1 << 61), 1 << 61])
    texts = as_microseconds(times)
    assert texts.to_pylist() == [format_microseconds(t) for t in times.tolist()]
    assert as_nanoseconds(texts).tolist() == times.tolist()
