"""Communication against compute, by hand."""

from htk.analyses.time.comm_compute_ratio import comm_compute_ratio
from tests.tables import answer_of, make


def test_unions_and_sums() -> None:
    """
    compute  ####----
    compute  --####--      other stream
    comm     ----####
    """
    spans = [("compute", 0, 4), ("compute", 2, 6), ("comm", 4, 8)]
    rows = [{"kind": k, "start_ns": s, "end_ns": e} for k, s, e in spans]
    windows = make("rank_windows", [{"start_ns": 0, "end_ns": 10, "complete": True}])
    (row,) = answer_of(
        comm_compute_ratio, activities=make("activities", rows), rank_windows=windows
    )
    assert (row["compute_ns"], row["comm_ns"]) == (6, 4)
    assert (row["compute_kernel_ns"], row["comm_kernel_ns"]) == (8, 4)
    assert round(row["comm_share_of_kernel_time_pct"], 2) == 33.33
    assert round(row["comm_to_compute"], 3) == 0.667


def test_without_compute_there_is_no_ratio() -> None:
    rows = [{"kind": "comm", "start_ns": 0, "end_ns": 4}]
    windows = make("rank_windows", [{"start_ns": 0, "end_ns": 4, "complete": True}])
    (row,) = answer_of(
        comm_compute_ratio, activities=make("activities", rows), rank_windows=windows
    )
    assert row["comm_to_compute"] is None and row["comm_share_of_kernel_time_pct"] == 100.0
