"""The gate's judgement for a pull request: its headline, its tables, texts that break neither."""

from dataclasses import replace

import pytest

from htk.traces.compare.baseline import RecordedBaseline
from htk.traces.compare.gate_markdown import render_gate_markdown
from htk.traces.compare.regression import Judgement, judge_rules
from htk.traces.compare.rules import parse_rule
from htk.traces.compare.runs import list_cost_changes
from tests.htk.traces.compare.equal_runs import RULES, run

SAID = {"in_short": ["step +1.0 ms: wait for rank 5"]}


@pytest.fixture(scope="module")
def recorded() -> RecordedBaseline:
    return run(0)


def test_markdown_for_a_pull_request(recorded: RecordedBaseline) -> None:
    slower = run(200, flash_fwd=1.5)
    judged = judge_rules(recorded, slower, RULES)
    text = render_gate_markdown(
        judged, list_cost_changes(recorded, slower, ("kernel",), 5), SAID, recorded, slower
    )
    assert text.startswith("### ❌ htk gate: 1 of 3 limits exceeded")
    assert "| `kernel:flash_fwd>10%` |" in text and "<details>" in text
    assert "flash_fwd_kernel" in text.partition("<details>")[2]
    assert text.splitlines()[2] == "step +1.0 ms: wait for rank 5  ", "the verdict goes first"


def test_without_rules_nothing_is_said_to_hold(recorded: RecordedBaseline) -> None:
    """A job that became far slower is not called well since nobody gave a limit."""
    slower = run(200, flash_fwd=1.5)
    text = render_gate_markdown(
        [], list_cost_changes(recorded, slower, ("kernel",), 5), SAID, recorded, slower
    )
    assert text.startswith("### htk diff: compared, nothing judged")
    assert "✅" not in text and "regression" not in text and "| rule |" not in text


@pytest.mark.parametrize(
    ("verdicts", "headline"),
    [
        (("passed", "passed"), "✅ htk gate: 2 limits kept"),
        (("passed", "too noisy"), "⚠️ htk gate: 1 of 2 limits could not be judged"),
        (("failed", "too noisy"), "❌ htk gate: 1 of 2 limits exceeded"),
    ],
)
def test_what_failed_goes_before_what_is_open(
    recorded: RecordedBaseline, verdicts: tuple[str, str], headline: str
) -> None:
    judged = judge_rules(recorded, recorded, RULES[:2])
    judged = [replace(j, verdict=v) for j, v in zip(judged, verdicts, strict=True)]
    text = render_gate_markdown(
        judged, list_cost_changes(recorded, recorded, ("kernel",), 5), SAID, recorded, recorded
    )
    assert text.splitlines()[0] == f"### {headline}"
    assert "Nothing else changed by more than the noise of the steps." in text
    assert text.rstrip().endswith(
        "base: 9 steps, 2 ranks · new: 9 steps, 2 ranks; times are of a step, means over "
        "ranks</sub>"
    )


def test_names_leave_no_cell(recorded: RecordedBaseline) -> None:
    """A kernel may be called anything: bars, backticks and new lines would break the table."""
    name = "k`<a|b>`\n| x |"
    limit = replace(parse_rule("step_time>5%"), text=name)
    judged: list[Judgement] = [
        replace(j, rule=limit) for j in judge_rules(recorded, recorded, RULES[:1])
    ]
    text = render_gate_markdown(
        judged, list_cost_changes(recorded, recorded, ("kernel",), 5), SAID, recorded, recorded
    )
    (row,) = (line for line in text.splitlines() if line.startswith("| `k"))
    assert row.startswith("| `k'<a\\|b>' \\| x \\|` |")
    assert row.replace("\\|", "").count("|") == 7, "six cells"
