"""On public traces the gate tells which are believed, and why others are not."""

from pathlib import Path

import pytest

from htk.quantities.graph.fidelity import draw_path, judge_steadiest_step, step_path
from htk.traces.trace.opening import open_trace
from tests.kineto_file import kernel, launch, of_rank, op, write

VERDICTS = (
    ("hta/nccl_parser_config", "trusted"),
    ("hta/ns_resolution_trace", "trusted"),
    ("hta/trace_diff/control", "trusted"),
    ("hta/trace_diff/test", "trusted"),
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
    tables = open_trace(str(shared / "traces" / path)).tables
    for judged in (
        judge_steadiest_step(tables)[2].verdict,
        str(step_path(tables).facts["verdict"]),
    ):
        assert judged.startswith(f"{verdict}: ")
        assert reason in judged


def test_the_path_keeps_delays_that_nothing_explains(tmp_path: Path) -> None:
    """The GPU rests for 500 us of a step of 900, and nothing says why."""
    events = [op("aten::mm", 0, 20), launch(1, 5), launch(2, 15)]
    events += [kernel("gemm", 30, 70, 1), kernel("late", 600, 300, 2)]
    tables = open_trace(write(tmp_path / "t.json", *events, **of_rank(0))).tables
    judged = judge_steadiest_step(tables)[2]
    path = step_path(tables)
    assert judged.unexplained_pct > 50
    assert path.facts["verdict"] == judged.verdict
    assert path.edges.end.max() - path.edges.begin.min() == pytest.approx(895_000, rel=0.01)
    assert draw_path(tables).verdict == judged.verdict


def test_a_step_repeats_as_long_as_it_was(shared: Path) -> None:
    graph, replayed, _ = judge_steadiest_step(
        open_trace(str(shared / "traces/hta/trace_diff/control")).tables
    )
    assert replayed.period_ns == pytest.approx(graph.period_ns, rel=0.01)


@pytest.mark.parametrize(("path", "verdict"), VERDICTS)
def test_the_gate_judges_public_traces(shared: Path, path: str, verdict: str) -> None:
    graph, _, judged = judge_steadiest_step(open_trace(str(shared / "traces" / path)).tables)
    assert judged.verdict.startswith(verdict)
    assert judged.step_error_pct <= 3.0
    assert graph.dropped == 0
