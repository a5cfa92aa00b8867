"""The gate on public traces: which are believed, and why others are not."""

from pathlib import Path

import pytest

from htk import api
from htk.gate import gated

VERDICTS = (
    ("hta/nccl_parser_config", "trusted"),
    ("hta/ns_resolution_trace", "trusted"),
    ("hta/trace_diff/control", "indicative"),
    ("hta/trace_diff/test", "indicative"),
    ("tracelens/mi300/resnet_act_checkpoint.json.gz", "trusted"),
    ("dlrm_8rank", "refused: only one whole step"),
)


@pytest.mark.parametrize(("path", "verdict"), VERDICTS)
def test_the_gate_judges_public_traces(shared: Path, path: str, verdict: str) -> None:
    graph, _, judged = gated(api.open(str(shared / "traces" / path)).tables)
    assert judged.verdict.startswith(verdict)
    assert judged.step_error_pct <= 3.0
    assert graph.dropped == 0
