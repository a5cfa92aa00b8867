"""The analyses of kernels on two ranks whose figures can be worked out on paper."""

import pytest

from htk.base.errors import MissingTable
from htk.faces.notebook.session import Session


def test_kernel_families(two_ranks: Session) -> None:
    comm, gemm = two_ranks.kernel_families().to_pylist()
    assert (comm["family"], comm["count"], comm["total_ns"]) == ("communication", 4, 140_000)
    assert (gemm["family"], gemm["count"], gemm["total_ns"]) == ("gemm", 4, 120_000)
    assert gemm["tensor_core_pct"] == 100, "bf16 gemms of Ampere use tensor cores"
    assert gemm["kernel_time_pct"] == pytest.approx(100 * 12 / 26)


def test_short_kernels(two_ranks: Session) -> None:
    (row,) = two_ranks.short_kernels().to_pylist()
    assert (row["from_us"], row["to_us"], row["short"], row["count"]) == (10, 100, False, 8)
    assert row["call_ns"] == 8_000 and row["shorter_than_launch"] == 0


def test_launch_stats(two_ranks: Session) -> None:
    """The gemm starts 1 µs after its call's end, the all-reduce at once."""
    for row, device_ns in zip(
        two_ranks.launch_stats().to_pylist(), (140_000, 120_000), strict=True
    ):
        assert (row["count"], row["kernels"], row["call_ns"]) == (4, 4, 4_000)
        assert (row["device_ns"], row["delay_ns"], row["delay_ns_max"]) == (device_ns, 2_000, 1_000)


def test_queue_length(two_ranks: Session) -> None:
    """Stream 7: a gemm waits 2 µs twice in 3-105; stream 20: 1 µs twice in 41-142."""
    rows = [r for r in two_ranks.queue_length().to_pylist() if r["rank"] == 0]
    found = {r["stream"]: r["length_mean"] for r in rows}
    assert found == pytest.approx({7: 4 / 102, 20: 2 / 101, None: 6 / 139})
    assert {r["length_max"] for r in rows} == {1}


def test_what_the_trace_does_not_hold_is_not_made_up(two_ranks: Session) -> None:
    assert len(two_ranks.memory_bandwidth()) == 0, "no copies"
    with pytest.raises(MissingTable, match="grid"):
        two_ranks.kernel_occupancy()
    assert len(two_ranks.kernel_sequences()) == 0, "one kernel under each operator is no sequence"
    assert {r["compared_ns"] for r in two_ranks.gpu_speed().to_pylist()} == {0}, (
        "too few to compare"
    )
