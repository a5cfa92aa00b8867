"""htk's tables for the real HTA: its `Trace` and `TraceAnalysis`, without its parser.

Its arithmetic then works on exact nanoseconds behind the point of its microseconds.
"""

from typing import Any

from htk.base.core.extras import require_extra
from htk.hta.events import read_events
from htk.hta.frames import Frames
from htk.traces.trace.trace import Trace


def for_hta(trace: Trace, *, include_last_profiler_step: bool = False) -> Any:
    """Return HTA's own analysis object over this trace (needs the `hta` extra)."""
    require_extra("hta", "for_hta()")
    from hta.trace_analysis import TraceAnalysis

    analysis = TraceAnalysis.__new__(TraceAnalysis)
    analysis.t = hta_trace(Frames(trace, include_last_profiler_step))
    return analysis


def hta_trace(frames: Frames) -> Any:
    """Return HTA's own `Trace`, parsed, with these events (needs the `hta` extra)."""
    require_extra("hta", "HTA's own Trace")
    from hta.common.trace import Trace as HtaTrace
    from hta.common.trace_symbol_table import TraceSymbolTable

    by_rank = {rank: read_events(frames, rank) for rank in frames.ranks}
    symbols = TraceSymbolTable()
    for frame in by_rank.values():
        symbols.add_symbols(frame["s_name"].unique())
        symbols.add_symbols(frame["s_cat"].unique())
    ids = symbols.get_sym_id_map()
    trace = HtaTrace.__new__(HtaTrace)
    trace.traces = {
        rank: frame.assign(name=frame["s_name"].map(ids), cat=frame["s_cat"].map(ids)).drop(
            columns=["s_name", "s_cat"]
        )
        for rank, frame in by_rank.items()
    }
    files = frames.trace.selected_files
    trace.trace_path = ""
    trace.trace_files = {file.rank or 0: file.file for file in files}
    trace.symbol_table = symbols
    trace.meta_data = {}
    trace.min_ts = 0
    trace.is_parsed = True
    return trace
