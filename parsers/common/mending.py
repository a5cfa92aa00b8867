"""Tables of a recording whose rows are left out, cut or moved."""

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import build_numbers, read_numbers, with_column
from htk.base.columns.order import order_by
from htk.base.columns.types import Ints
from htk.base.schema import INT64


def without_rows(table: pa.Table, rows: Ints) -> pa.Table:
    return table.take(np.delete(np.arange(table.num_rows), rows))


def set_times(
    tables: dict[str, pa.Table], name: str, rows: Ints, start: Ints | None, end: Ints | np.int64
) -> None:
    """Let rows begin (None: as they do) and end elsewhere, in their table and in that of events."""
    events = read_numbers(tables[name]["event"])[rows]
    for holder in {name, "events"} & tables.keys():
        table = tables[holder]
        numbered = read_numbers(table["event"])
        order = order_by(numbered)
        own = order[np.searchsorted(numbered[order], events)]
        for column, times in (("start_ns", start), ("end_ns", end)):
            if times is not None:
                moved = read_numbers(table[column]).copy()
                moved[own] = times
                table = with_column(table, column, build_numbers(moved, INT64))
        tables[holder] = table
