"""The gate: its limits one by one, and on public traces which are believed, and why others not."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from htk.graph.fidelity import Gate, _keys, _paired, exposed, exposed_and_idle, gated
from htk.trace.opening import open_trace
from tests.htk.whatif.small_step_model import Act, comm, small_model

VERDICTS = (
    ("hta/nccl_parser_config", "trusted"),
    ("hta/ns_resolution_trace", "trusted"),
    ("hta/trace_diff/control", "trusted"),
    ("hta/trace_diff/test", "indicative"),
    ("tracelens/mi300/resnet_act_checkpoint.json.gz", "indicative: only 65 % of the critical path"),
    ("dlrm_8rank", "indicative: only one whole step"),
    ("hta/trace_filter", "indicative: only one whole step"),
    ("tracelens/b200/eager_trace.json.gz", "indicative: only one whole step"),
)


REASONS = (
    ("hta/mtia_inference_trace/mtia_inference_rank_0.json.gz", "indicative", "no steps are marked"),
    ("hta/mtia_inference_trace/mtia_inference_rank_0.json.gz", "indicative", "% of GPU time were"),
    ("hta/trace_compare/base", "refused", "launches of only 0 % of GPU time were recorded"),
    (
        "tracelens/inference/vllm_prefilldecode_piecewise/graph_execution.json.gz",
        "indicative",
        "clocks of CPU and GPU differ",
    ),
    (
        "tracelens/inference/sglang_decode/sglang_Qwen3-8B_decode.json.gz",
        "indicative",
        "98 % of the step is delay that nothing recorded explains",
    ),
)


@pytest.mark.parametrize(("path", "verdict", "reason"), REASONS)
def test_a_verdict_says_what_is_wrong_with_the_recording(
    shared: Path, path: str, verdict: str, reason: str
) -> None:
    judged = gated(open_trace(str(shared / "traces" / path)).tables)[2].verdict
    assert judged.startswith(f"{verdict}: ")
    assert reason in judged


def test_a_step_repeats_as_long_as_it_was(shared: Path) -> None:
    graph, replayed, _ = gated(open_trace(str(shared / "traces/hta/trace_diff/control")).tables)
    assert replayed.period_ns == pytest.approx(graph.period_ns, rel=0.01)


@pytest.mark.parametrize(("path", "verdict"), VERDICTS)
def test_the_gate_judges_public_traces(shared: Path, path: str, verdict: str) -> None:
    graph, _, judged = gated(open_trace(str(shared / "traces" / path)).tables)
    assert judged.verdict.startswith(verdict)
    assert judged.step_error_pct <= 3.0
    assert graph.dropped == 0


FITS = Gate(3.0, 2.0, 1.0, 3.5, 3.5, 80.0)  # each figure as large, or as small, as is trusted
REFUSED_AT = {"step_error_pct": 5.0, "exposed_error_points": 5.0, "held_out_error_pct": 30.0}


def test_a_step_at_each_limit_is_trusted() -> None:
    assert FITS.verdict == "trusted" and FITS.replays and FITS.residual_pct == 3.5
    assert replace(FITS, step_error_pct=4.0).residual_pct == 4.0
    assert replace(FITS, linked=0.1).verdict == "trusted"


@pytest.mark.parametrize(
    ("figure", "beyond", "words"),
    [
        ("step_error_pct", 3.01, "step replays 3.0 % off"),
        ("exposed_error_points", 2.01, "exposed communication 2.0 points off"),
        ("start_error_pct", 1.01, "activities start 1.0 % of the step off"),
        ("observed_path_pct", 79.9, "only 80 % of the critical path was recorded"),
        ("held_out_error_pct", 3.6, "another step is predicted 3.6 % off"),
        ("held_out_error_pct", None, "only one whole step was recorded"),
        ("unexplained_pct", 0.25, "0.25 % of the step is delay that nothing recorded explains"),
    ],
)
def test_beyond_one_limit_it_is_indicative(figure: str, beyond: float | None, words: str) -> None:
    judged = replace(FITS, **{figure: beyond}, remarks=("a remark",))  # type: ignore[arg-type]
    assert judged.verdict.startswith(f"indicative: {words}")
    assert judged.verdict.endswith("; a remark")
    assert judged.replays == (figure not in ("step_error_pct", "exposed_error_points",
                                             "start_error_pct"))  # fmt: skip
    assert replace(judged, linked=0.5).verdict.startswith("indicative")
    assert replace(judged, linked=0.49).verdict.startswith("refused")


@pytest.mark.parametrize("figure", REFUSED_AT)
def test_far_beyond_it_is_refused(figure: str) -> None:
    limit = REFUSED_AT[figure]
    assert replace(FITS, **{figure: limit}).verdict.startswith("indicative")  # type: ignore[arg-type]
    assert replace(FITS, **{figure: limit + 0.1}).verdict.startswith("refused")  # type: ignore[arg-type]


def test_a_step_recorded_alone_inherits_one_percent() -> None:
    assert replace(FITS, step_error_pct=0.4, held_out_error_pct=None).residual_pct == 1.0
    assert replace(FITS, step_error_pct=1.7, held_out_error_pct=None).residual_pct == 1.7


def test_figures_are_rounded_for_people() -> None:
    judged = Gate(1.23456, 0.12345, 0.98765, 2.34567, 3.0, 91.26, unexplained_pct=4.44)
    assert judged.figures == {
        "step_error_pct": 1.235,
        "exposed_error_points": 0.123,
        "start_error_pct": 0.988,
        "held_out_error_pct": 2.346,
        "observed_path_pct": 91.3,
        "unexplained_pct": 4.4,
    }


def test_exposed_communication_and_idle_time_are_means_over_devices() -> None:
    """Rank 0: 0-40 compute, 0-60 comm; rank 1: 0-30 compute, then comm of 60 until 90."""
    graph = small_model(
        [
            Act("a", 40),
            comm("g", 60, "all_gather"),
            Act("b", 30, rank=1),
            comm("h", 60, "all_gather", rank=1, waits=("b",)),
        ]
    ).graph
    assert exposed(graph, graph.time) == ((60 - 40) + 60) / 2
    assert exposed_and_idle(graph, graph.time, 100) == (40, 100 - (60 + 90) / 2)
    assert exposed_and_idle(graph, graph.time, 50) == (40, 0)


@given(
    st.lists(st.tuples(st.integers(0, 1), st.integers(0, 2)), max_size=12),
    st.lists(st.tuples(st.integers(0, 1), st.integers(0, 2)), max_size=12),
)
def test_the_nth_of_a_name_on_a_lane_has_the_nth_for_its_partner(
    own: list[tuple[int, int]], theirs: list[tuple[int, int]]
) -> None:
    def keys(rows: list[tuple[int, int]]) -> list[tuple[int, int, int]]:
        return [(*row, rows[:k].count(row)) for k, row in enumerate(rows)]

    arrays = [
        _keys(*(np.array([row[k] for row in rows], np.int64) for k in (0, 1)))
        for rows in (own, theirs)
    ]
    assert [tuple(row) for row in arrays[0].tolist()] == keys(own)
    here, there = _paired(*arrays)
    expected = {(k, keys(theirs).index(key)) for k, key in enumerate(keys(own))
                if key in keys(theirs)}  # fmt: skip
    assert set(zip(here.tolist(), there.tolist(), strict=True)) == expected
