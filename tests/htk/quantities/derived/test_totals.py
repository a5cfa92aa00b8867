"""Totals of kernels, by hand in plain Python, and made of any partition of the ranks."""

from collections import defaultdict
from pathlib import Path
from typing import Any

from htk.base.schema import OP_TOTALS
from htk.quantities.derived.totals import (
    gpu_work,
    launch_totals,
    memory_extents,
    op_extents,
    op_totals,
    step_marks,
)
from htk.traces.trace.opening import open_trace
from tests.htk.quantities.derived.kernel_rows import rows_of_rank, totals_of
from tests.tables import make

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
    trace = open_trace(Path(__file__).parents[4] / "htk/traces/sample")
    every = trace.tables["kernel_totals"].to_pylist()
    steps = sorted({row["step"] for row in every if row["step"] is not None})
    chosen = trace.sel(steps=steps[:1]).tables["kernel_totals"].to_pylist()
    assert chosen == [row for row in every if row["step"] == steps[0]]
    assert 0 < len(chosen) < len(every)
    lengths = trace.tables["kernels"].to_pylist()
    total = sum(row["end_ns"] - row["start_ns"] for row in lengths)
    assert sum(row["total_ns"] for row in every) == total


_OPS = [  # rank, cycle, step, name, shapes, start, end
    (0, 0, 1, "aten::mm", "[[8, 8]]", 10, 30),
    (0, 0, 1, "aten::mm", "[[8, 8]]", 40, 45),
    (0, 0, None, "aten::mm", "[[8, 8]]", 50, 51),
    (0, 0, 1, "aten::mm", None, 5, 9),
    (0, 1, 1, "aten::mm", "[[8, 8]]", 400, 420),
    (3, 0, 1, "aten::add", "[[8, 8]]", 12, 14),
    (3, 0, 2, "aten::add", "[[8, 8]]", 20, 90),
]


def _operators(rows: list[tuple[Any, ...]]) -> tuple[Any, Any]:
    names = ("rank", "cycle", "step", "name", "input_dims", "start_ns", "end_ns")
    held = [dict(zip(names, row, strict=True)) for row in rows]
    ops = [{k: v for k, v in row.items() if k != "step"} for row in held]
    return make("cpu_ops", ops), make("op_links", [{"step": row["step"]} for row in held])


def test_totals_of_operators_and_calls_by_hand() -> None:
    ops, links = _operators(_OPS)
    assert [tuple(row.values()) for row in op_totals(ops, links).to_pylist()] == [
        (0, 0, 1, "aten::mm", "[[8, 8]]", 2, 25),
        (0, 0, None, "aten::mm", "[[8, 8]]", 1, 1),
        (0, 0, 1, "aten::mm", None, 1, 4),
        (0, 1, 1, "aten::mm", "[[8, 8]]", 1, 20),
        (3, 0, 1, "aten::add", "[[8, 8]]", 1, 2),
        (3, 0, 2, "aten::add", "[[8, 8]]", 1, 70),
    ]
    extents = [tuple(row.values()) for row in op_extents(ops).to_pylist()]
    assert extents == [(0, 0, 5, 51), (0, 1, 400, 420), (3, 0, 12, 90)]
    calls = [("a", 0, 3), ("b", 5, 6), ("a", 7, 11)]
    launches = make("launches", [{"name": n, "start_ns": s, "end_ns": e} for n, s, e in calls])
    totals = [tuple(row.values()) for row in launch_totals(launches).to_pylist()]
    assert totals == [(0, 0, "a", 2, 7), (0, 0, "b", 1, 1)]


def test_totals_of_files_do_not_say_whose_they_are() -> None:
    ops, links = _operators(_OPS[5:])
    alone = ops.drop_columns(["rank", "cycle"])
    assert op_totals(alone, links).column_names == OP_TOTALS.names[2:]
    assert op_totals(alone, links)["total_ns"].to_pylist() == [2, 70]
    assert op_extents(alone).to_pylist() == [{"start_ns": 12, "end_ns": 90}]
    assert op_extents(alone.slice(0, 0)).num_rows == 0


def test_gpu_work_is_counted_by_its_launch_and_between_gpus() -> None:
    lengths = [(0, 10, 3, False, False), (0, 5, None, True, False), (0, 7, None, False, False)]
    lengths += [(4, 2, 1, False, True), (4, 9, 2, True, False)]
    kernels = [{"rank": r, "start_ns": 100, "end_ns": 100 + n} for r, n, *_ in lengths]
    kernels[0]["name"] = "Memcpy PtoP (Device -> Device)"
    kernels[1]["name"] = "Memcpy DtoD (Device -> Device)"
    links = [
        {"launch_row": row, "carry_in": carried, "ambiguous": several}
        for _, _, row, carried, several in lengths
    ]
    work = gpu_work(make("kernels", kernels), make("kernel_links", links)).to_pylist()
    assert [tuple(row.values()) for row in work] == [
        (0, 0, 3, 22, 10, 1, 5, 1, 7, 0, 10),
        (4, 0, 2, 11, 11, 1, 9, 0, 0, 1, 0),
    ]


def test_the_most_memory_of_each_device_and_the_steps_among_annotations() -> None:
    rows = [(0, 1, 70), (0, 0, 900), (0, 1, 90), (3, 1, None), (3, 1, 20)]
    names = ("rank", "device_type", "reserved_bytes")
    memory = make("memory", [dict(zip(names, row, strict=True)) for row in rows])
    most = {
        (r["rank"], r["device_type"]): r["reserved_bytes"]
        for r in memory_extents(memory).to_pylist()
    }
    assert most == {(0, 0): 900, (0, 1): 90, (3, 1): 20}
    assert memory_extents(memory.slice(0, 0)).num_rows == 0
    ranges = [
        {"name": "ProfilerStep#4", "step": 4, "on_gpu": False, "start_ns": 5, "end_ns": 9},
        {"name": "forward", "on_gpu": False, "start_ns": 6, "end_ns": 7},
        {
            "name": "ProfilerStep#4",
            "step": 4,
            "on_gpu": True,
            "start_ns": 7,
            "end_ns": 12,
            "rank": 2,
        },
    ]
    cut = {"of": "host steps", "rank": 0, "cycle": 0, "step": 4, "start_ns": 5, "end_ns": 9}
    marks = step_marks(make("annotations", ranges), make("cut_windows", [cut]))
    assert [tuple(row.values()) for row in marks.to_pylist()] == [
        (0, 0, False, 4, 5, 9, False),
        (2, 0, True, 4, 7, 12, True),
    ]
