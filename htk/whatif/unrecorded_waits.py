"""A server's recording without the time in which it waited for work that was not recorded.

A recording of one iteration begins while the one before still runs: a call that blocks until that
is done, while nothing recorded runs, is no part of what the iteration takes. All times after such
a wait move up by its length; nothing else changes.
"""

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import read_numbers, read_times, with_column
from htk.base.columns.order import order_by
from htk.base.columns.types import Ints
from htk.base.mappings import NamedTables, ReplacedTables
from htk.quantities.graph.build import READS
from htk.whatif.served_iteration import of_server

_LEAST_NS = 1_000_000  # a wait that matters
_TIMES = ("start_ns", "end_ns", "queued_ns", "launch_start_ns", "launch_end_ns")
_CAUSE = "unrecorded_gpu_work_suspected"


def without_unrecorded_waits(
    tables: NamedTables,
) -> tuple[NamedTables, int]:
    """Return the tables with such waits taken out, and how long those were, in ns; of a server's
    recording of one rank without marked steps."""
    gpus = tables["rank_windows"].select(["rank", "device"]).to_pylist()
    if tables["step_windows"].num_rows or len({(gpu["rank"], gpu["device"]) for gpu in gpus}) != 1:
        return tables, 0
    if of_server(tables) is None:
        return tables, 0
    start, end = _list_waits(tables["idle_causes"])
    if not len(start):
        return tables, 0
    moved = {name: _move_table(tables[name], start, end) for name in READS}
    return ReplacedTables(tables, moved), int((end - start).sum())


def _list_waits(causes: pa.Table) -> tuple[Ints, Ints]:
    own = np.array([cause == _CAUSE for cause in causes["cause"].to_pylist()], bool)
    start, end = read_times(causes, own)
    long = end - start >= _LEAST_NS
    order = order_by(start[long])
    return start[long][order], end[long][order]


def _move_table(table: pa.Table, start: Ints, end: Ints) -> pa.Table:
    for name in _TIMES:
        if name in table.column_names:
            table = with_column(table, name, _subtract_waits(table[name], start, end))
    return table


def _subtract_waits(column: pa.ChunkedArray, start: Ints, end: Ints) -> pa.Array:
    """Return times without the waits before them; what lies within one is at its start."""
    time = read_numbers(column)
    taken = np.append(0, np.cumsum(end - start))
    before = np.searchsorted(end, time, side="right")
    inside = np.append(start, np.iinfo(np.int64).max)[before]
    shifted = np.minimum(time, inside) - taken[before]
    valid = column.is_valid().combine_chunks()
    return pa.array(shifted, column.type, mask=~np.asarray(valid))
