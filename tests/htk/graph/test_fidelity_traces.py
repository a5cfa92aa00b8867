"""The gate on public traces: which are believed, and why others are not."""

from pathlib import Path

import pytest

from htk.graph.fidelity import gated
from htk.trace.opening import open_trace

VERDICTS = (
    ("hta/nccl_parser_config", "trusted"),
    ("hta/ns_resolution_trace", "trusted"),
    ("hta/trace_diff/control", "trusted"),
    ("hta/trace_diff/test", "indicative"),
    ("tracelens/mi300/resnet_act_checkpoint.json.gz", "indicative: only 65 % of the critical path"),
    ("dlrm_8rank", "refused: only one whole step"),
)


REFUSED = (
    ("hta/mtia_inference_trace/mtia_inference_rank_0.json.gz", "no steps are marked"),
    ("hta/mtia_inference_trace/mtia_inference_rank_0.json.gz", "% of GPU time were recorded"),
    ("hta/trace_filter", "exposed communication"),
    (
        "tracelens/inference/vllm_prefilldecode_piecewise/graph_execution.json.gz",
        "clocks of CPU and GPU differ",
    ),
    ("tracelens/b200/eager_trace.json.gz", "only one whole step"),
)


@pytest.mark.parametrize(("path", "reason"), REFUSED)
def test_a_refusal_says_what_is_wrong_with_the_recording(
    shared: Path, path: str, reason: str
) -> None:
    verdict = gated(open_trace(str(shared / "traces" / path)).tables)[2].verdict
    assert verdict.startswith("refused: ")
    assert reason in verdict


def test_a_step_repeats_as_long_as_it_was(shared: Path) -> None:
    graph, replayed, _ = gated(open_trace(str(shared / "traces/hta/trace_diff/control")).tables)
    assert replayed.period_ns == pytest.approx(graph.period_ns, rel=0.01)


@pytest.mark.parametrize(("path", "verdict"), VERDICTS)
def test_the_gate_judges_public_traces(shared: Path, path: str, verdict: str) -> None:
    graph, _, judged = gated(open_trace(str(shared / "traces" / path)).tables)
    assert judged.verdict.startswith(verdict)
    assert judged.step_error_pct <= 3.0
    assert graph.dropped == 0
