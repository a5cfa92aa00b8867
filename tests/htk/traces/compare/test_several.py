"""Several runs side by side, against numbers worked by hand."""

import numpy as np
import pytest

from htk.traces.compare.baseline import RecordedBaseline, Series
from htk.traces.compare.several import side_by_side

RANKS = (0, 1)
WAVES = np.array([0.999, 1.001, 1.0, 1.0005, 0.9995, 1.0])


def lasting(ns: float) -> Series:
    """A thing of six steps on two ranks, one as slow as the other."""
    return Series(2.0, ns * WAVES, np.array([ns, ns]), ns * WAVES)


def run(compute: float, comm: float, idle: float, *, gemm: float = 60e6) -> RecordedBaseline:
    parts = {"compute": compute, "exposed communication": comm, "idle": idle}
    kinds = {
        "time": {
            name: lasting(ns) for name, ns in ({"total": sum(parts.values())} | parts).items()
        },
        "kernel": {"gemm": lasting(gemm), "norm": lasting(5e6)},
    }
    return RecordedBaseline(len(WAVES), RANKS, kinds)


def test_each_run_stands_against_the_first_and_not_the_one_before() -> None:
    base, worse, better = run(80e6, 15e6, 5e6), run(90e6, 15e6, 5e6, gemm=70e6), run(80e6, 5e6, 5e6)
    rows = side_by_side([("base", base), ("worse", worse), ("better", better)]).to_pylist()
    assert [r["name"] for r in rows] == ["base", "worse", "better"]
    assert [r["step_time_ns"] for r in rows] == [100_000_000, 110_000_000, 90_000_000]
    assert [r["diff_ns"] and round(r["diff_ns"]) for r in rows] == [None, 10_000_000, -10_000_000]
    assert [r["change"] for r in rows] == [None, "slower", "faster"]
    assert [r["compute_ns"] for r in rows] == [80_000_000, 90_000_000, 80_000_000]
    assert [r["exposed_comm_ns"] for r in rows] == [15_000_000, 15_000_000, 5_000_000]
    assert [r["idle_ns"] for r in rows] == [5_000_000] * 3
    assert {r["exposed_memory_ns"] for r in rows} == {0}, "no copies: that is told, and is none"
    assert rows[1]["finding"] == "gemm: +10.0 ms"
    assert rows[2]["finding"] == "No kernel differs by more than chance."


def test_equal_runs_are_the_same() -> None:
    rows = side_by_side([(name, run(80e6, 15e6, 5e6)) for name in ("a", "b")]).to_pylist()
    assert (rows[1]["change"], rows[1]["diff_pct"]) == ("same", 0)


def test_what_cannot_be_told_is_null() -> None:
    """Without steps nothing is told of steps; a host's step and a GPU's do not compare."""
    base, bare = run(80e6, 15e6, 5e6), RecordedBaseline(0, RANKS, {})
    host = RecordedBaseline(
        6, RANKS, {"time": {"total": lasting(70e6)}, "kernel": {}}, {"timed on": "host"}
    )
    rows = side_by_side([("base", base), ("bare", bare), ("host", host)]).to_pylist()
    assert [r["step_time_ns"] for r in rows] == [100_000_000, None, 70_000_000]
    assert [r["compute_ns"] for r in rows] == [80_000_000, None, None]
    assert {r["diff_ns"] for r in rows} == {r["change"] for r in rows} == {None}
    assert "complete steps" in rows[1]["finding"] and "not compared" in rows[2]["finding"]


@pytest.mark.parametrize(
    ("was", "now", "finding"),
    [
        ({"gemm": 60e6}, {"gemm": 60e6, "fused": 9e6}, "fused: new, +9.00 ms"),
        ({"gemm": 60e6, "fused": 9e6}, {"gemm": 60e6}, "fused: gone, −9.00 ms"),
        ({"gemm": 60e6, "norm": 5e6}, {"gemm": 54e6, "norm": 9e6}, "gemm: −6.00 ms"),
        ({"gemm": 60e6, "norm": 5e6}, {"gemm": 58e6, "norm": 9e6}, "norm: +4.00 ms"),
    ],
)
def test_the_kernel_that_differs_most_is_named(
    was: dict[str, float], now: dict[str, float], finding: str
) -> None:
    def of(kernels: dict[str, float]) -> RecordedBaseline:
        known = run(80e6, 15e6, 5e6)
        named = {name: lasting(ns) for name, ns in kernels.items()}
        return RecordedBaseline(known.steps, RANKS, known.kinds | {"kernel": named})

    rows = side_by_side([("base", of(was)), ("new", of(now))]).to_pylist()
    assert rows[1]["finding"] == finding


def test_counts_of_ranks_and_steps_and_a_single_step() -> None:
    few = RecordedBaseline(1, (4,), {
        "time": {"total": Series(1.0, np.array([9e6]), np.array([9e6]), np.array([9e6]))},
        "kernel": {},
    })  # fmt: skip
    base = run(80e6, 15e6, 5e6)
    rows = side_by_side([("base", base), ("few", few)]).to_pylist()
    assert [(r["rank_count"], r["step_count"]) for r in rows] == [(2, 6), (1, 1)]
    assert rows[1]["diff_ns"] == pytest.approx(9e6 - 100e6)
    assert rows[1]["diff_pct"] == pytest.approx(-91)
    assert rows[1]["change"] is None and "single step" in rows[1]["finding"]
    (alone,) = side_by_side([("base", base)]).to_pylist()
    assert alone["diff_ns"] is None and alone["finding"] is None
