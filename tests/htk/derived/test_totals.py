"""Totals of kernels, by hand in plain Python, and made of any partition of the ranks."""

from collections import defaultdict
from pathlib import Path
from typing import Any

from htk.trace.opening import open_trace
from tests.htk.derived.kernel_rows import rows_of_rank, totals_of

_KEY = ("rank", "cycle", "device", "step", "kind", "activity", "family", "name", "grid", "block")
_KEY += ("blocks_per_sm", "size_bytes", "recomputed")


def _by_hand(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    alike: dict[tuple[Any, ...], list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        alike[tuple(row.get(name) for name in _KEY)].append(row)
    totals = []
    for key, calls in alike.items():
        longest = max(calls, key=lambda r: r["end_ns"] - r["start_ns"])  # of several the first
        length = [r["end_ns"] - r["start_ns"] for r in calls]
        total = dict(zip(_KEY, key, strict=True)) | {"count": len(calls), "total_ns": sum(length)}
        total |= {"start_ns": min(r["start_ns"] for r in calls)}
        total |= {"longest_start_ns": longest["start_ns"], "longest_ns": max(length)}
        totals.append(total)
    return totals


def test_totals_by_hand_and_of_each_rank_alone() -> None:
    ranks = [rows_of_rank(rank, seed=rank) for rank in (0, 3, 7)]
    every = [row for rows in ranks for row in rows]
    assert totals_of(every).to_pylist() == _by_hand(every)
    alone = [total for rows in ranks for total in totals_of(rows).to_pylist()]
    assert alone == _by_hand(every), "files one after the other"
    assert totals_of([]).num_rows == 0


def test_totals_of_chosen_steps_are_those_of_their_kernels() -> None:
    trace = open_trace(Path(__file__).parents[3] / "htk/sample")
    every = trace.tables["kernel_totals"].to_pylist()
    steps = sorted({row["step"] for row in every if row["step"] is not None})
    chosen = trace.sel(steps=steps[:1]).tables["kernel_totals"].to_pylist()
    assert chosen == [row for row in every if row["step"] == steps[0]]
    assert 0 < len(chosen) < len(every)
    lengths = trace.tables["kernels"].to_pylist()
    total = sum(row["end_ns"] - row["start_ns"] for row in lengths)
    assert sum(row["total_ns"] for row in every) == total
