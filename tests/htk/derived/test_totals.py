"""Totals of kernels, by hand in plain Python, and made of any partition of the ranks."""

from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from htk.analyses.kernels.gpu_speed import gpu_speed
from htk.derived.totals import kernel_totals
from htk.measures.gpu_slowness import slowness_by_rank
from htk.trace.opening import open_trace
from tests.tables import answer_of, make

_KEY = ("rank", "cycle", "device", "step", "kind", "activity", "family", "name", "grid", "block")
_KEY += ("blocks_per_sm", "size_bytes", "recomputed")


def _rows(rank: int, seed: int) -> list[dict[str, Any]]:
    """Activities of two devices in four steps, with copies, nulls, and equal durations."""
    dice, rows = np.random.default_rng(seed), []
    for k in range(120):
        copy = bool(dice.random() < 0.2)
        start = 1000 * k + 5 * rank
        row: dict[str, Any] = {"rank": rank, "cycle": 0, "device": int(dice.integers(0, 2))}
        row |= {"start_ns": start, "end_ns": start + int(dice.integers(3, 7)) * 100 * (rank + 1)}
        row |= {"step": [None, 3, 4, 5][int(dice.integers(0, 4))]}
        row |= {"recomputed": bool(dice.random() < 0.3)}
        if copy:
            row |= {"name": "Memcpy", "kind": "memory", "activity": "copy", "family": "copy"}
            row |= {"size_bytes": int(dice.integers(1, 3)) << 12}
        else:
            row |= {"name": f"k{dice.integers(0, 3)}", "kind": "compute", "activity": "kernel"}
            row |= {"family": "gemm", "grid": f"[{dice.integers(1, 3)}]", "block": "[64]"}
            row |= {"blocks_per_sm": [None, 0.5][int(dice.integers(0, 2))]}
        rows.append(row)
    return rows


def _totals(rows: list[dict[str, Any]]) -> pa.Table:
    beside = ("step", "recomputed")
    kernels = make("kernels", [{k: v for k, v in r.items() if k not in beside} for r in rows])
    links = make("kernel_links", [{"step": r["step"]} for r in rows])
    return kernel_totals(
        kernels, links, make("kernel_passes", [{"recomputed": r["recomputed"]} for r in rows])
    )


def _by_hand(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    alike: dict[tuple[Any, ...], list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        alike[tuple(row.get(name) for name in _KEY)].append(row)
    totals = []
    for key, calls in alike.items():
        longest = max(calls, key=lambda r: r["end_ns"] - r["start_ns"])  # of several the first
        length = [r["end_ns"] - r["start_ns"] for r in calls]
        total = dict(zip(_KEY, key, strict=True)) | {"calls": len(calls), "total_ns": sum(length)}
        total |= {"start_ns": min(r["start_ns"] for r in calls)}
        total |= {"longest_start_ns": longest["start_ns"], "longest_ns": max(length)}
        totals.append(total)
    return totals


def test_totals_by_hand_and_of_each_rank_alone() -> None:
    ranks = [_rows(rank, seed=rank) for rank in (0, 3, 7)]
    every = [row for rows in ranks for row in rows]
    assert _totals(every).to_pylist() == _by_hand(every)
    alone = [total for rows in ranks for total in _totals(rows).to_pylist()]
    assert alone == _by_hand(every), "files one after the other"
    assert _totals([]).num_rows == 0


def test_slowness_is_that_of_gpu_speed() -> None:
    rows = [r | {"device": 0} for rank in (0, 3, 7) for r in _rows(rank, seed=rank)]
    for row in rows:
        row["grid"] = row.get("grid") if row["name"] != "k2" else None
    kernels = [{k: v for k, v in r.items() if k not in ("step", "recomputed")} for r in rows]
    speeds = answer_of(gpu_speed, kernels=make("kernels", kernels))
    middle = float(np.median([speed["slowness_pct"] for speed in speeds]))
    expected = {speed["rank"]: speed["slowness_pct"] - middle for speed in speeds}
    assert slowness_by_rank(_totals(rows)) == pytest.approx(expected, abs=1e-6)
    assert max(expected.values()) > 20
    assert slowness_by_rank(_totals(rows[:120])) == {}, "one rank has nobody to compare with"


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
