"""The summary of a server speaks of iterations, how near the best they are, and what would gain."""

import re
from pathlib import Path

import pytest

from htk.traces.trace.opening import open_trace
from htk.verdicts.overview.summary import build_summary_result, reach_verdict

DECODE = Path(__file__).parents[3] / "recordings/decode"


def test_iterations_their_time_and_how_near_the_best() -> None:
    """8 layers of 4096 wide, 64 requests that look back on 4096 tokens, on one H100.

    Each layer has 218,103,808 weights, the head 131,072,000; keys and values of 8 heads of 128 for
    262,144 tokens in 8 layers; in 16 bits, at 3350 GB/s.
    """
    summary = reach_verdict(open_trace(DECODE / "batch_64_context_4096"))
    assert summary.headline.startswith("8 decode iterations of 64 requests; 5.42 ms a token")
    assert "61 % attention" in summary.headline and "gaps" in summary.headline
    weights = 2 * (8 * 218_103_808 + 131_072_000)
    cache = 2 * 2 * 8 * 1024 * 262_144
    least = (weights + cache) / 3350 / 1e6
    (told,) = [part for part in summary.headline.split("; ") if "alone need" in part]
    number = float(told.removeprefix("weights and KV cache alone need ").split()[0])
    assert number == pytest.approx(least, rel=0.02), "and what activations take"


def test_kernels_stand_beside_the_fastest_of_their_size() -> None:
    """Of 8 iterations, by the file's own durations: 26.09 ms of attention, 11.74 ms of products.
    The fastest library reads the same weights and cache, of which 3.71 ms are told."""
    headline = reach_verdict(open_trace(DECODE / "batch_64_context_4096")).headline
    (told,) = [part for part in headline.split("; ") if "the fastest" in part]
    found = re.fullmatch(r"\D*([\d.]+) ms, the fastest ([\d.]+) ms as measured", told)
    assert found is not None
    took, best = map(float, found.groups())
    assert took == pytest.approx((26.0907 + 11.7386) / 8, abs=0.005)
    assert 3.71 < best < took


def test_what_would_gain_is_of_servers_with_intervals() -> None:
    summary = reach_verdict(open_trace(DECODE / "batch_64_context_4096"))
    edits = [cause.edit for cause in summary.causes]
    assert len(edits) == 3 and all(edit and edit.startswith("--") for edit in edits)
    assert not any("batch" in str(edit) for edit in edits)
    for cause in summary.causes:
        assert cause.gain_ns is not None and cause.low_ns is not None and cause.high_ns is not None
        assert cause.low_ns < cause.gain_ns < cause.high_ns
        assert cause.gain_ns < 5_420_000, "of an iteration"
    names = [name for name, _ in summary.next]
    assert names[0] == "whatif" and "iteration_times" in names
    rows = build_summary_result(summary).to_pylist()
    assert [row["part"] for row in rows].count("cause") == 3


def test_without_the_capture_nearness_is_not_known() -> None:
    summary = reach_verdict(open_trace([DECODE / "batch_64_context_4096/rank0.pt.trace.json.gz"]))
    (told,) = [part for part in summary.headline.split("; ") if "near the best" in part]
    assert told.startswith("how near the best is not known: ") and "not modelled" in told


def test_a_capture_alone_serves_nobody(shared: Path) -> None:
    folder = shared / "traces/tracelens/inference/vllm_prefilldecode_piecewise"
    summary = reach_verdict(open_trace(folder / "capture_traces"))
    assert summary.headline.startswith("A server captures its graphs (capture_8192_PIECEWISE)")
    assert not summary.causes and not summary.next


def test_a_wait_for_unrecorded_work_is_left_out(shared: Path) -> None:
    """463 of 474 ms are such a wait."""
    summary = reach_verdict(open_trace(shared / "traces/tracelens/inference/sglang_decode"))
    assert summary.headline.startswith("1 decode iteration of 32 requests; 10.5 ms a token; 55 %")
    assert summary.window_ns == pytest.approx(10.5e6, rel=0.01)
    assert sum(share.pct for share in summary.shares) == pytest.approx(100, abs=0.5)
    folder = shared / "traces/tracelens/inference/vllm_prefilldecode_piecewise"
    mixed = reach_verdict(open_trace(folder)).headline
    assert mixed.startswith("1 mixed iteration of 8,155 tokens of prompts and 37 requests; 156 ms")
    assert "its operations and bytes need at least" in mixed
    unmeasured = "; 95 % of the GPU time is kernels of which none like it was measured (by formula "
    assert unmeasured in mixed, "of an AMD GPU"
