"""A peer reads a simulated set and finds in it what truth.json says."""

import json
from pathlib import Path

import pytest

from htk.recording.simulate.config import Config, check_config
from htk.recording.simulate.job import simulate_job


def test_holistic_trace_analysis_agrees(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight ranks. HTA clips nothing: a whole window is compared, in its own terms."""
    monkeypatch.setenv("HTA_DISABLE_NS_ROUNDING", "1")
    pytest.importorskip("hta", reason="needs the extra hta")
    from hta.trace_analysis import TraceAnalysis

    # It rounds and counts synchronisation as busy, so no rows of that.
    sizes = dict(layers=2, nodes=2, gpus_per_node=4, micro_batch=2, seq=512, steps=2)
    simulate_job(check_config(Config(**sizes, sync_records=False)), tmp_path)
    truth = json.loads((tmp_path / "truth.json").read_text())["ranks"]
    files = {rank: str(tmp_path / f"rank{rank}.pt.trace.json.gz") for rank in range(8)}
    analysis = TraceAnalysis(
        trace_files=files, trace_dir=str(tmp_path), include_last_profiler_step=True
    )
    breakdown = analysis.get_temporal_breakdown(visualize=False).set_index("rank")
    overlap = analysis.get_comm_comp_overlap(visualize=False).set_index("rank")
    for told in truth:
        row, steps = breakdown.loc[told["rank"]], told["steps"]
        window = told["window_end_ns"] - told["window_start_ns"]
        total = {
            key: sum(step[key] for step in steps)
            for key in ("idle_ns", "compute_ns", "overlap_ns", "comm_ns")
        }
        assert round(1e3 * row["kernel_time(us)"]) == window
        assert round(1e3 * row["idle_time(us)"]) == total["idle_ns"]
        assert round(1e3 * row["compute_time(us)"]) == total["compute_ns"]
        share = overlap.loc[told["rank"]]["comp_comm_overlap_pctg"]
        # One percentage of communication, rounded to two decimals.
        assert share == pytest.approx(100 * total["overlap_ns"] / total["comm_ns"], abs=0.011)
