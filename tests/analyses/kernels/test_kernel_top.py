"""Which kernels cost most: by hand, against a plain twin, against a public trace's sum."""

import json
import statistics
from collections import defaultdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from htk.analyses.kernels.kernel_top import kernel_top
from htk.answers.ask import ask_trace
from htk.traces.trace.opening import open_trace
from tests.analyses.kernels.hta import kept
from tests.analyses.tracelens import REFERENCES, report
from tests.tables import answer_of, make

ADD = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>"

Tables = dict[str, pa.Table]
ROWS = st.lists(st.tuples(st.sampled_from("abcd"), st.integers(1, 50)), min_size=1, max_size=30)


def tables(rows: list[tuple[str, int]], steps: list[int | None] | None = None) -> Tables:
    kernels = [
        {"name": n, "activity": "kernel", "kind": "compute", "start_ns": 0, "end_ns": d}
        for n, d in rows
    ]
    links = [{"step": s} for s in steps or [None] * len(rows)]
    return {"kernels": make("kernels", kernels), "kernel_links": make("kernel_links", links)}


def _rows(tables_: Tables, **options: Any) -> Any:
    return answer_of(kernel_top, options=options, **tables_)


def test_by_hand() -> None:
    found = _rows(tables([("a", 10), ("b", 30), ("a", 20), ("c", 1)]), n=2)
    assert [(r["name"], r["count"], r["total_ns"]) for r in found] == [
        ("a", 2, 30),
        ("b", 1, 30),
        ("others", 1, 1),
    ]
    a = found[0]
    assert (
        a["duration_ns_mean"],
        a["duration_ns_min"],
        a["duration_ns_max"],
        a["duration_ns_std"],
        a["duration_ns_p50"],
    ) == (15, 10, 20, 5, 15)
    assert a["duration_ns_p95"] == pytest.approx(19.5)
    assert a["kernel_time_pct"] == pytest.approx(100 * 30 / 61)
    assert found[-1]["cumulative_pct"] == 100


@given(ROWS, st.integers(1, 5), st.sampled_from(["total", "count", "mean", "max"]))
def test_against_a_plain_twin(rows: list[tuple[str, int]], n: int, by: Any) -> None:
    lengths = defaultdict(list)
    for name, length in rows:
        lengths[name].append(length)
    measure = {"total": sum, "count": len, "mean": statistics.mean, "max": max}[by]
    best = sorted((measure(v) for v in lengths.values()), reverse=True)[:n]
    found = _rows(tables(rows), n=n, sort_by=by)
    named = [r for r in found if r["name"] != "others"]
    assert [measure(lengths[r["name"]]) for r in named] == best
    for row in named:
        own = lengths[row["name"]]
        assert (row["count"], row["total_ns"]) == (len(own), sum(own))
        assert (row["duration_ns_min"], row["duration_ns_max"]) == (min(own), max(own))
        assert row["duration_ns_std"] == pytest.approx(statistics.pstdev(own))
    assert sum(r["total_ns"] for r in found) == sum(length for _, length in rows)


def test_per_step_counts_what_each_step_launched() -> None:
    found = _rows(tables([("a", 1), ("a", 2), ("b", 5)], [0, 1, 1]), per="step")
    assert [(r["step"], r["name"], r["total_ns"]) for r in found] == [
        (0, "a", 1),
        (1, "b", 5),
        (1, "a", 2),
    ]


def test_the_sum_of_a_public_trace(shared: Path) -> None:
    lines = (shared / "truth/oracle.jsonl").read_text().splitlines()
    truth = next(t for t in map(json.loads, lines) if "resnet_act" in t["trace"])
    found = ask_trace(open_trace(shared / truth["trace"]), "kernel_top", n=1000).to_pylist()
    kernels = [r for r in found if r["kind"] != "memory"]
    assert sum(r["total_ns"] for r in kernels) == truth["kernel_sum_ns"]


@pytest.mark.parametrize("name", REFERENCES)
def test_as_tracelens_s_kernel_summary(shared: Path, name: str) -> None:
    """It lists kernels, linked or not; copies and sets are ours alone."""
    folder = shared / "traces/tracelens"
    theirs: dict[str, list[float]] = defaultdict(lambda: [0.0, 0])
    for row in report(folder, name, "kernel_summary"):
        theirs[row["Kernel name"]][0] += float(row["Kernel duration (µs)_sum"])
        theirs[row["Kernel name"]][1] += int(row["Kernel duration (µs)_count"])
    found = ask_trace(open_trace(folder / f"{name}.json.gz"), "kernel_top", n=0).to_pylist()
    ours = {r["name"]: r for r in found if r["kind"] != "memory" or r["name"] in theirs}
    assert ours.keys() == theirs.keys()
    for kernel, (time, count) in theirs.items():
        assert ours[kernel]["total_ns"] / 1000 == pytest.approx(time, abs=0.01)
        assert ours[kernel]["count"] == count


def test_extremes_that_hta_overwrites_with_sums(shared: Path) -> None:
    """Its default breakdown gives the sum of a kernel as its maximum, minimum and mean too."""
    held = kept(shared, "trace_diff/control")
    found = _rows({name: held[name] for name in ("kernels", "kernel_links")}, n=1000)
    row = next(r for r in found if r["name"].startswith(ADD))
    assert (row["total_ns"], row["duration_ns_max"], row["duration_ns_min"]) == (
        10_976_000,
        567_000,
        3_000,
    )
    assert row["duration_ns_mean"] == pytest.approx(17_562, abs=1)
