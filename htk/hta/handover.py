"""htk's tables for the real HTA: its `TraceAnalysis`, without its parser.

Its arithmetic then works on exact nanoseconds behind the point of its microseconds.
"""

from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from htk.columns.arrow import numbers
from htk.core.extras import require
from htk.trace.file import TraceFile
from htk.trace.trace import Trace

_ON_GPU = ("kernels", "syncs")


def for_hta(trace: Trace) -> Any:
    """HTA's own analysis object over this trace (needs the `hta` extra)."""
    require("hta", "for_hta()")
    from hta.common.trace import Trace as TheirTrace
    from hta.common.trace_symbol_table import TraceSymbolTable
    from hta.trace_analysis import TraceAnalysis

    frames = {part.rank or 0: _frame(trace, part) for part in trace.files if not part.cycle}
    symbols = TraceSymbolTable()
    for frame in frames.values():
        symbols.add_symbols(frame["s_name"].unique())
        symbols.add_symbols(frame["s_cat"].unique())
    ids = symbols.get_sym_id_map()
    for frame in frames.values():
        frame["name"] = frame.pop("s_name").map(ids)
        frame["cat"] = frame.pop("s_cat").map(ids)
    theirs = TheirTrace.__new__(TheirTrace)
    theirs.trace_path = ""
    theirs.trace_files = {part.rank or 0: part.file for part in trace.files if not part.cycle}
    theirs.traces, theirs.symbol_table, theirs.meta_data = frames, symbols, {}
    theirs.min_ts, theirs.is_parsed = 0, True
    analysis = TraceAnalysis.__new__(TraceAnalysis)
    analysis.t = theirs
    return analysis


def _frame(trace: Trace, part: TraceFile) -> pd.DataFrame:
    """A file's complete events in HTA's columns; `index` is the event's row in the file."""
    events = part.table("events").sort_by("event")
    start = numbers(events["start_ns"])
    row = numbers(events["event"]) - part.first_event
    frame = pd.DataFrame(
        {
            "index": row,
            "s_cat": events["category"].to_pylist(),
            "s_name": events["name"].to_pylist(),
            "pid": events["process"].to_pylist(),
            "tid": events["thread"].to_pylist(),
            "ts": (start - trace.origin_ns) / 1000,
            "dur": (numbers(events["end_ns"]) - start) / 1000,
        },
        index=pd.Index(row),
    )
    frame["end"] = frame["ts"] + frame["dur"]
    for column in ("pid", "tid"):
        frame[column] = pd.to_numeric(frame[column], errors="coerce").fillna(-1).astype(int)
    frame["stream"] = frame["correlation"] = -1
    frame["memory_bw_gbps"] = 0.0
    frame["iteration"] = -1
    for name in (*_ON_GPU, "launches"):
        table = part.table(name)
        indices = numbers(table["event"]) - part.first_event
        frame.loc[indices, "correlation"] = numbers(table["correlation"], -1)
        if name in _ON_GPU:
            frame.loc[indices, "stream"] = numbers(table["stream"], -1)
    kernels, links = part.table("kernels"), part.table("kernel_links")
    indices = numbers(kernels["event"]) - part.first_event
    frame.loc[indices, "iteration"] = numbers(links["step"], -1)
    frame.loc[indices, "memory_bw_gbps"] = numbers(kernels["bandwidth_gbps"], 0.0)
    for name, steps in (("cpu_ops", "op_links"), ("launches", "launch_links")):
        indices = numbers(part.table(name)["event"]) - part.first_event
        frame.loc[indices, "iteration"] = numbers(part.table(steps)["step"], -1)
    frame["index_correlation"] = _partners(part, frame)
    return frame


def _partners(part: TraceFile, frame: pd.DataFrame) -> np.ndarray:
    """The other end of each launch: -1 without a correlation, 0 without a partner."""
    partners = pd.Series(np.where(frame["correlation"] > 0, 0, -1), frame.index)
    kernels, links = part.table("kernels"), part.table("kernel_links")
    launched = links["launch_row"].is_valid()
    gpu = numbers(kernels["event"].filter(launched)) - part.first_event
    calls = part.table("launches")["event"].take(
        pa.chunked_array([links["launch_row"].filter(launched).combine_chunks()])
    )
    cpu = numbers(calls) - part.first_event
    partners.loc[gpu] = cpu
    partners.loc[cpu] = gpu
    return np.asarray(partners.to_numpy())
