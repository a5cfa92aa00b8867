"""The analyses of time on two ranks whose figures can be worked out on paper."""

from htk.faces.notebook.session import Session


def test_comm_compute_ratio(two_ranks: Session) -> None:
    rows = two_ranks.comm_compute_ratio().to_pylist()
    assert [(r["compute_ns"], r["comm_ns"], r["comm_to_compute"]) for r in rows] == [
        (60_000, 80_000, 80 / 60),
        (60_000, 60_000, 1.0),
    ]
    assert rows[1]["comm_share_of_kernel_time_pct"] == 50


def test_kernel_kinds(two_ranks: Session) -> None:
    rows = two_ranks.kernel_kinds().to_pylist()
    assert [(r["rank"], r["kinds"], r["total_ns"]) for r in rows] == [
        (None, "compute", 120_000),
        (None, "comm", 140_000),
        (0, "compute", 60_000),
        (0, "comm", 80_000),
        (1, "compute", 60_000),
        (1, "comm", 60_000),
    ]


def test_step_times(two_ranks: Session) -> None:
    """GPU step 0 of rank 0 runs from 5 to 82, of rank 1 from 15 to 82; the host takes 100."""
    rows = two_ranks.step_times().to_pylist()
    assert [
        (r["rank"], r["step"], r["gpu_period_ns"], r["cpu_ns"], r["skew_ns"]) for r in rows
    ] == [
        (0, 0, 77_000, 100_000, 10_000),
        (0, 1, 100_000, 100_000, 0),
        (1, 0, 67_000, 100_000, 0),
        (1, 1, 100_000, 100_000, 0),
    ]
    assert {r["launch_lag_ns"] for r in rows} == {-18_000}, "the GPU is done before the host"


def test_step_variance_adds_up(two_ranks: Session) -> None:
    """The second step is longer by what the host left idle in front of it."""
    rows = two_ranks.step_variance().to_pylist()
    causes = ("kernel_speed_ns", "work_ns", "wait_ns", "host_ns", "overlap_ns")
    for row in rows:
        assert sum(row[c] for c in causes) == row["excess_ns"]
    second = next(r for r in rows if (r["rank"], r["step"]) == (0, 1))
    assert (second["excess_ns"], second["host_ns"]) == (23_000, 23_000)


def test_idle_breakdown(two_ranks: Session) -> None:
    """Rank 0: idle 35-42, 82-105, 135-142; Python until the operator, it until its launch."""
    rows = two_ranks.idle_breakdown().to_pylist()
    assert {(r["rank"], r["cause"]): (r["idle_ns"], r["count"]) for r in rows} == {
        (0, "host_python"): (30_000, 3),
        (0, "host_operator"): (3_000, 3),
        (0, "launch_latency"): (4_000, 3),
        (1, "host_python"): (40_000, 3),
        (1, "host_operator"): (3_000, 3),
        (1, "launch_latency"): (4_000, 3),
    }


def test_host_stalls_are_none_and_phases_are_inferred(two_ranks: Session) -> None:
    assert len(two_ranks.host_stalls()) == 0
    rows = two_ranks.phase_breakdown().to_pylist()
    assert [(r["rank"], r["phase"], r["inferred"], r["kernels"]) for r in rows] == [
        (0, "forward", True, 4),
        (1, "forward", True, 4),
    ]
