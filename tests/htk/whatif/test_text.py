"""Answers to what-ifs as people read them: columns within a terminal, words for numbers."""

import io
from contextlib import redirect_stdout

import pytest
from click.testing import CliRunner

from htk.cli.main import htk as main
from htk.output.result import Result
from htk.whatif.table import rows
from htk.whatif.text import _short, error, in_words, show
from tests.htk.whatif.answers import answer

FACTS = {
    "verdict": "trusted",
    "ranks": [0, 1],
    "step": 12,
    "step_error_pct": 0.0,
    "exposed_error_points": 0.04,
    "start_error_pct": 1.26,
    "held_out_error_pct": None,
    "observed_path_pct": 97.4,
}


def shown(*batches: float) -> str:
    answers = Result("whatif", rows([answer(batch) for batch in batches]), dict(FACTS))
    with redirect_stdout(io.StringIO()) as out:
        show(answers, "table", None)
    return out.getvalue()


def test_what_a_prediction_rests_on_stands_above_it() -> None:
    lines = shown(2).splitlines()
    assert lines[0] == "step 12 took 100 ns (2 ranks recorded)"
    assert lines[1] == "replay of the unedited step: trusted"
    rest = " ".join(" ".join(lines[2:4]).split())
    assert rest == (
        "step 0 % off, exposed communication < 0.1 points, starts 1.3 %, another step not "
        "recorded, 97 % of the critical path recorded"
    )


def test_uncertainty_by_source_is_told_of_a_lone_answer() -> None:
    assert "standard deviation in % of the step: replay 1" in " ".join(shown(2).split())
    assert "standard deviation" not in shown(1, 2)


def test_a_remedy_has_words_and_other_edits_stay_as_they_are() -> None:
    assert in_words("fix_rank all") == "every rank as fast as the median"
    assert in_words("batch 2x") == "batch 2x"


@pytest.mark.parametrize(
    ("value", "text"), [(0.0, "0 %"), (4e-7, "< 0.1 %"), (0.3, "0.3 %"), (12.34, "12.3 %")]
)
def test_how_far_off_a_replay_is_reads_well(value: float, text: str) -> None:
    assert error(value) == text


@pytest.mark.parametrize(
    "given",
    [
        ["--sweep", "batch=1x,256x", "--sweep", "sharding=all", "--price", "2.5"],
        ["--batch", "2x", "--hardware", "h100", "--network", "inter_bandwidth=2x,latency=0.5x"],
        ["--recommend"],
        [],
    ],
)
def test_the_table_fits_a_terminal_unless_all_is_asked_for(given: list[str]) -> None:
    short = CliRunner().invoke(main, ["whatif", "sample", *given]).output
    assert max(len(line.rstrip()) for line in short.splitlines()) <= 100
    for heading in ("what if", "step time", "90 % interval"):
        assert heading in short
    assert ("per M tokens" in short) == ("--price" in given)
    assert ("out of memory" in short) == ("--sweep" in given)
    assert "linear says" not in short
    wide = CliRunner().invoke(main, ["whatif", "sample", "--wide", *given]).output
    for heading in ("exposed comm", "idle", "gain/sigma", "50 % interval", "linear says"):
        assert heading in wide
    assert ("gain/sigma" in short) == ("--recommend" in given)


def test_a_column_that_repeats_another_is_left_out() -> None:
    """Of the recorded batch a step and a sample change alike; else each has its column."""
    same, differ = (
        {"what if": ["x"], "change %": ["+1"], "per sample %": [c]} for c in ("+1", "-9")
    )
    assert list(_short(same, ("change %", "per sample %"))) == ["what if", "change %"]
    assert list(_short(differ, ("change %", "per sample %"))) == [
        "what if", "change %", "per sample %",
    ]  # fmt: skip
    sure = {"what if": ["x"], "P(OOM) %": [" 0"]}
    assert list(_short(sure, ("P(OOM) %",))) == ["what if"]
