"""How much of the communication HTA and we find hidden, where HTA is exact (whole microseconds)."""

from pathlib import Path

import pytest

from htk.answers.ask import ask_trace
from htk.traces.trace.opening import OpenOptions, open_trace


@pytest.mark.parametrize(
    ("rank", "overlap_pct"), [(0, 11.81), (1, 20.05)], ids=["rank 0", "rank 1"]
)
def test_hta_s_two_ranks(shared: Path, rank: int, overlap_pct: float) -> None:
    """HTA prints these without the last step; both steps of the sample lie in one window."""
    trace = open_trace(shared / "traces/hta/trace_filter", OpenOptions(rank_pattern=r"rank-(\d)"))
    row = ask_trace(trace.sel(ranks=[rank]), "comm_compute_overlap").to_pylist()[0]
    assert row["comm_ns"] == row["overlap_ns"] + row["exposed_comm_ns"]
    found = ask_trace(trace.sel(ranks=[rank]), "comm_compute_overlap", per="step").to_pylist()
    shares = [round(r["overlap_pct"], 2) for r in found if r["overlap_pct"] is not None]
    assert overlap_pct in [*shares, round(row["overlap_pct"], 2)]
