"""Rows of `collectives` from a few values each."""

from typing import Any

import pyarrow as pa

from htk.base.schema import DERIVED, TABLES

Row = dict[str, Any]

NO_WINDOWS = DERIVED["rank_windows"].empty_table()

NO_RANKS = TABLES["ranks"].empty_table()


def collectives(*rows: Row) -> pa.Table:
    plain = {"cycle": 0, "source": "kineto", "timing": "gpu", "group": "0", "type": "all_reduce"}
    return pa.Table.from_pylist([plain | r for r in rows], schema=TABLES["collectives"])


def call(rank: int, start: int, end: int, **more: Any) -> Row:
    return {"rank": rank, "start_ns": start, "end_ns": end} | more
