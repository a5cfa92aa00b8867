"""Goodput of whole jobs, held to published ones."""

import json
from typing import Any

import pytest

from htk.faces.cli import main

# Llama 3 (arXiv:2407.21783, section 3.3.4): 466 interruptions in 54 days on 16,384 H100, and an
# effective training time above 90 %.
LLAMA_3 = ("--gpus", "16384", "--failures", "466/54d")


def _answer(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[dict[str, Any], Any]:
    assert main.run_command_line(["goodput", *words, "--format", "json"]) == 0, (
        capsys.readouterr().err
    )
    answer = json.loads(capsys.readouterr().out)
    return {row["part"]: row for row in answer["rows"]}, answer["coverage"]


def test_llama_3_trained_for_more_than_nine_tenths_of_its_time(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A failure every 2.78 h: whoever restarts within some minutes, and saves in seconds, does."""
    quick = ("--detect", "1min..3min", "--restart", "2min..6min", "--checkpoint", "3s..15s")
    parts, facts = _answer(capsys, *LLAMA_3, *quick)
    assert facts["hours_between_failures"] == pytest.approx(54 * 24 / 466)
    assert parts["useful work"]["share_pct_lo90"] > 90
    assert facts["minutes_lost_per_failure"] < 0.1 * 54 * 24 * 60 / 466  # 16.7 minutes
    slow = ("--detect", "10min", "--restart", "15min", "--checkpoint", "60s")
    parts, facts = _answer(capsys, *LLAMA_3, *slow)
    assert parts["useful work"]["share_pct"] < 90 and facts["minutes_lost_per_failure"] > 16.7


def test_parts_sum_to_the_whole_and_to_the_days_of_the_run(
    capsys: pytest.CaptureFixture[str],
) -> None:
    run = ("--run-tokens", "15.6T", "--tokens-per-s", "2.8M", "--price", "2", "--watts", "1000")
    parts, facts = _answer(
        capsys, *LLAMA_3, *run, "--restart", "8min", "--checkpoint", "20s", "--repair", "10h",
        "--spares", "5", "--node-share", "0.6",
    )  # fmt: skip
    assert sum(row["share_pct"] for row in parts.values()) == pytest.approx(100)
    assert sum(row["days"] for row in parts.values()) == pytest.approx(facts["run_days"])
    assert parts["useful work"]["days"] == pytest.approx(15.6e12 / 2.8e6 / 86_400)
    assert parts["waiting for a node"]["share_pct"] > 0.1
    hours = facts["run_days"] * 24
    assert facts["run_cost"] == pytest.approx((16_384 + 5 * 8) * hours * 2)
    assert facts["run_mwh"] == pytest.approx(16_384 * hours * 1e-3)
    assert facts["run_days_90"][0] < facts["run_days"] < facts["run_days_90"][1]
    assert set(facts["width_comes_from"]) == {"chance", "failures"}


def test_a_rate_counted_on_another_job_scales_with_its_gpus(
    capsys: pytest.CaptureFixture[str],
) -> None:
    own = ("--restart", "5min", "--checkpoint", "20s")
    counted = ("--failures", "466/54d", "--failures-on", "16384")
    _, facts = _answer(capsys, "--gpus", "2048", *counted, *own)
    assert facts["hours_between_failures"] == pytest.approx(8 * 54 * 24 / 466)
    _, same = _answer(capsys, "--gpus", "2048", "--gpu-mtbf", f"{16384 * 54 * 24 / 466}h", *own)
    assert same["hours_between_failures"] == pytest.approx(facts["hours_between_failures"])


def test_more_spares_wait_less_and_the_fewest_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    base = (*LLAMA_3, "--restart", "5min", "--checkpoint", "20s", "--repair", "12h")
    waiting = []
    for spares in ("0", "4"):
        parts, facts = _answer(capsys, *base, "--spares", spares)
        waiting.append(parts["waiting for a node"]["share_pct"])
    assert waiting[0] > 50 > waiting[1] > 1
    parts, _ = _answer(capsys, *base, "--spares", str(facts["fewest_spares"]))
    assert parts["waiting for a node"]["share_pct"] < 0.1


def test_the_text_says_what_dominates(capsys: pytest.CaptureFixture[str]) -> None:
    words = (*LLAMA_3, "--restart", "1min..30min", "--checkpoint", "20s")
    assert main.run_command_line(["goodput", *words]) == 0
    text = capsys.readouterr().out
    assert "fail every 2.78 h" in text and "comes from: --restart 9" in text


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--restart", "5min", "--checkpoint", "1s"), "how often the job fails"),
        (("--failures", "9/1d", "--restart", "5", "--checkpoint", "1s"), "a duration such as"),
        (("--failures", "0/9d", "--restart", "5s", "--checkpoint", "0s"), "has no best interval"),
        (("--failures", "9/1d", "--restart", "5s", "--checkpoint", "1s", "--every", "1min",
          "--checkpoint-write", "1h"), "longer --every"),
        (("--failures", "9/1s", "--restart", "5h", "--checkpoint", "1s", "--run-tokens", "1T",
          "--tokens-per-s", "1M"), "never ends"),
        (("--failures", "9/1d", "--restart", "5s", "--checkpoint", "1s", "--repair", "1h",
          "--node-share", "2"), "at most 1"),
    ],
)  # fmt: skip
def test_what_makes_no_job_is_one_line(
    words: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run_command_line(["goodput", "--gpus", "64", *words]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
