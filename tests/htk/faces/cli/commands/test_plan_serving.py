"""`htk plan-serving`."""

import json

import pytest
from click.testing import CliRunner

from htk.base.errors import UsageError
from htk.faces.cli.main import htk

PLAN = ["plan-serving", "--model", "llama3-8b", "--gpu", "h100"]


def run(*arguments: str) -> str:
    outcome = CliRunner().invoke(htk, [*PLAN, *arguments])
    assert outcome.exit_code == 0, outcome.output
    return outcome.output


def test_a_map_for_people_says_what_it_rests_on() -> None:
    text = run("--requests", "1,8", "--prompt", "100,2000", "--price", "2")
    assert text.startswith("llama3-8b, 8.03 billion parameters, weights in bf16")
    for words in ("time/token", "first token", "per M tokens", "checked: hopper GPUs", "unchecked"):
        assert words in text
    assert "in limits" not in text
    rows = [line.split()[:2] for line in text.splitlines() if line[:1].isdigit()]
    assert ["100", "8"] in rows and ["2,000", "8"] in rows


def test_limits_are_answered_with_what_holds_them() -> None:
    text = run("--slo-ttft", "300ms", "--slo-tpot", "12ms")
    assert "first tokens within 300 ms and tokens within 12.0 ms" in text
    assert "requests at once" in text and "in nineteen of twenty cases" in text
    assert "not even 1 request" in run("--slo-tpot", "1ms")


def test_json_has_rows_and_facts() -> None:
    answer = json.loads(run("--show", "layouts", "--format", "json"))
    rows = answer["rows"] if isinstance(answer, dict) else answer
    assert {row["layout"] for row in rows} >= {"tp 1", "tp 2", "tp 4", "tp 8"}


def test_parts_tell_prefill_and_decode() -> None:
    text = run("--show", "parts", "--requests", "4")
    assert "prefill" in text and "decode" in text and "attention" in text


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--micro-batch", "2"], "no option --micro-batch: it belongs to htk plan"),
        (["--search"], "no option --search: it belongs to htk plan"),
        (["--show", "layouts", "--requests", "8"], "--show layouts finds --requests itself"),
        (["--requests", "1,x"], "whole numbers from 1"),
        (["--requests", "0"], "whole numbers from 1"),
        (["--prompt", "9" * 40], "at most 99999999"),
        (["--draft-tokens", "3"], "--draft-tokens and --acceptance"),
        (["--weights", "fp3"], "weights in 'fp3'"),
        (["--slo-ttft", "fast"], "is not a time"),
        (["--price", "nan"], "positive number"),
        (["--model", "llama3-405b"], "do not fit"),
        (["--show", "layouts", "--slo-tpot", "1us"], "holds these limits"),
    ],
)
def test_what_cannot_be_planned_is_one_line(options: list[str], words: str) -> None:
    outcome = CliRunner().invoke(htk, [*PLAN, *options])
    assert isinstance(outcome.exception, UsageError)
    assert words in str(outcome.exception) and "\n" not in str(outcome.exception)
