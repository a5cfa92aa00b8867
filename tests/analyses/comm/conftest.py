"""Small tables for the analyses of communication."""

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from htk.base.core.analysis import Analysis
from htk.base.schema import DERIVED, TABLES
from htk.quantities.derived.clocks import aligned_matches, rank_clocks
from htk.quantities.derived.match import collective_matches
from htk.quantities.derived.nccl_facts import collective_facts
from htk.quantities.derived.registry import find_maker
from htk.quantities.derived.window_times import rank_window_times, step_window_times

Row = dict[str, Any]
Ask = Callable[..., pa.Table]


@pytest.fixture
def ask() -> Ask:
    """Ask an analysis of hand-made rows, everything between made as for a trace."""

    def answer(analysis: Analysis[...], tables: dict[str, list[Row]], **options: Any) -> pa.Table:
        by_name = {
            name: pa.Table.from_pylist(rows, schema=TABLES.get(name) or DERIVED[name])
            for name, rows in tables.items()
        }
        for name in (
            "collectives",
            "comm_channels",
            "ranks",
            "bench_points",
            "comm_counts",
            "link_samples",
            "proxy_steps",
        ):
            by_name.setdefault(name, TABLES[name].empty_table())
        for name in ("rank_windows", "step_windows", "activities"):
            by_name.setdefault(name, DERIVED[name].empty_table())
        devices = {(row.get("rank"), row.get("device")) for row in tables.get("collectives", ())}
        recorded = {"cycle": 0, "start_ns": 0, "end_ns": 10**9, "complete": True}
        wide = [{"rank": rank, "device": device, **recorded} for rank, device in devices]
        windows = pa.Table.from_pylist(wide, schema=DERIVED["rank_windows"])
        by_name["rank_window_times"] = rank_window_times(by_name["activities"], windows)
        by_name["step_window_times"] = step_window_times(
            by_name["activities"], by_name["step_windows"]
        )
        rows = by_name["collectives"]
        by_name["collective_matches"] = collective_matches(
            rows, by_name["rank_windows"], by_name["ranks"]
        )
        by_name["rank_clocks"] = rank_clocks(rows, by_name["collective_matches"], by_name["ranks"])
        by_name["aligned_matches"] = aligned_matches(
            rows,
            by_name["collective_matches"],
            by_name["rank_clocks"],
            by_name["rank_windows"],
            by_name["ranks"],
        )
        by_name["collective_facts"] = collective_facts(
            rows, by_name["collective_matches"], by_name["comm_channels"]
        )
        for name in ("collective_shares", "own_times"):
            maker_ = find_maker(name)
            by_name[name] = maker_.function(*(by_name[read] for read in maker_.reads))
        return analysis(*(by_name[name] for name in analysis.reads), **options)

    return answer


@pytest.fixture
def call() -> Callable[..., Row]:
    """A row of `collectives`, of the profiler on a GPU."""

    def row(rank: int, start: int, end: int, **more: Any) -> Row:
        plain = {
            "rank": rank,
            "cycle": 0,
            "source": "kineto",
            "timing": "gpu",
            "device": rank,
            "group": "0",
            "type": "all_reduce",
            "start_ns": start,
            "end_ns": end,
        }
        return plain | more

    return row
