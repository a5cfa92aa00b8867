"""What a rank does in a step before its critical path begins: load data, for example."""

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import match_texts, read_booleans, read_numbers, read_times
from htk.base.columns.intervals import Spans, measure_covered, merge_spans
from htk.base.columns.types import NONE
from htk.base.mappings import NamedTables
from htk.quantities.derived.clocks import recorded_times
from htk.quantities.derived.host_states import LOADING, span_state

LOADING_DATA = "host: data loading"
BEFORE_THE_FIRST_CALL = "host: before the first call"


def name_lead(tables: NamedTables, rank: int, start: int, end: int) -> str:
    """Return what most of the time between two moments, on aligned clocks, was on a rank."""
    if end <= start:
        return BEFORE_THE_FIRST_CALL
    moments = np.array([start, end])
    moments = recorded_times(tables["rank_clocks"], np.full(2, rank), moments)
    low, high = measure_covered(_loading_of(tables, rank), moments)
    return LOADING_DATA if 2 * (high - low) >= end - start else BEFORE_THE_FIRST_CALL


def _loading_of(tables: NamedTables, rank: int) -> Spans:
    """Return when operators or ranges of a rank's CPU load data, on its own clock."""
    chosen = [_loading_rows(tables[name], rank) for name in ("cpu_ops", "annotations")]
    starts, ends = zip(*map(read_times, chosen), strict=True)
    return merge_spans(np.concatenate(starts), np.concatenate(ends))


def _loading_rows(table: pa.Table, rank: int) -> pa.Table:
    loads = match_texts(table["name"], lambda name: span_state(name) == LOADING)
    loads &= read_numbers(table["rank"], NONE) == rank
    if "on_gpu" in table.column_names:
        loads &= ~read_booleans(table["on_gpu"])
    return table.filter(pa.array(loads))
