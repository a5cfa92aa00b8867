"""Answers to what-ifs as people read them: columns within a terminal, words for numbers."""

import io
import json
from contextlib import redirect_stdout
from typing import Any

import pytest
from click.testing import CliRunner

from htk.answers.output.result import Result
from htk.faces.cli.main import htk as main
from htk.whatif.table import build_answer_rows
from htk.whatif.text import (
    _build_cells,
    _cut_middle,
    _describe_recorded,
    _format_signed,
    _list_assumptions,
    _list_details,
    _list_held,
    _list_verdicts,
    _select_columns,
    format_error,
    in_words,
    show_whatif,
)
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


def shown(*batches: float, **facts: str) -> str:
    answers = Result(
        "whatif", build_answer_rows([answer(batch) for batch in batches]), FACTS | facts
    )
    with redirect_stdout(io.StringIO()) as out:
        show_whatif(answers, "table", None)
    return out.getvalue()


def test_a_step_that_was_recorded_alone_takes_what_it_would_if_it_repeated() -> None:
    lines = shown(2, recorded_alone="so").splitlines()
    assert lines[0] == "step 12 takes 100 ns if it repeats (2 ranks recorded)"


def test_what_a_prediction_rests_on_stands_above_it() -> None:
    lines = shown(2).splitlines()
    took = "step 12 took 100 ns from the last rank's start to the last rank's end"
    assert lines[0] == f"{took} (2 ranks recorded)"
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
    assert in_words("serving prefill=2x") == "twice the tokens of prompts at once"
    assert in_words("batch 2x") == "batch 2x"


@pytest.mark.parametrize(
    ("value", "text"), [(0.0, "0 %"), (4e-7, "< 0.1 %"), (0.3, "0.3 %"), (12.34, "12.3 %")]
)
def test_how_far_off_a_replay_is_reads_well(value: float, text: str) -> None:
    assert format_error(value) == text


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
    assert list(_select_columns(same, ("change %", "per sample %"))) == ["what if", "change %"]
    assert list(_select_columns(differ, ("change %", "per sample %"))) == [
        "what if", "change %", "per sample %",
    ]  # fmt: skip
    sure = {"what if": ["x"], "P(OOM) %": [" 0"]}
    assert list(_select_columns(sure, ("P(OOM) %",))) == ["what if"]


def row(**more: Any) -> dict[str, Any]:
    (known,) = build_answer_rows([answer(2)]).to_pylist()
    return known | more


@pytest.mark.parametrize(
    ("most", "text"),
    [(10, "abcdefghij"), (9, "abcd…ghij"), (8, "abcd…hij"), (7, "abc…hij"), (3, "a…j")],
)
def test_a_long_text_loses_its_middle(most: int, text: str) -> None:
    assert _cut_middle("abcdefghij", most) == text and len(text) == most


@pytest.mark.parametrize(
    ("value", "text"),
    [(12.34, "+12.3"), (-0.04, "+0.0"), (-0.06, "-0.1"), (999.9, "+999.9"), (1000, "+1,000"),
     (-1234.6, "-1,235")],
)  # fmt: skip
def test_changes_have_a_sign(value: float, text: str) -> None:
    assert _format_signed(value) == text


def test_causes_of_a_change_are_drawn_in_proportion() -> None:
    """100 ns of compute less, 50 more of the host, 1 of copies: bars of 24, 12 and at least 1."""
    causes = {"host": 50, "compute": -100, "memory": 1}
    lines = _list_details(row(step_time_ns=51, measured_step_time_ns=100,
                       waterfall=json.dumps(causes),
                       sigma_by_source=json.dumps({"kernel": 0.05, "network": 2.0, "skew": 0.04}),
                       next_recording="record more"))  # fmt: skip
    assert lines[0] == "change of -49 ns by cause:"
    assert [line.split() for line in lines[1:4]] == [
        ["compute", "-100", "ns", "█" * 24],
        ["host", "+50", "ns", "█" * 12],
        ["memory", "+1", "ns", "█"],
    ]
    assert lines[4].endswith("in % of the step: network 2, kernel 0.05")
    assert lines[5].startswith("standing of the answer: ")
    assert lines[6] == "to narrow it most: record more"


def test_an_answer_that_changes_nothing_has_no_causes() -> None:
    same = row(step_time_ns=100, measured_step_time_ns=100, waterfall='{"host": 1}',
               sigma_by_source="{}", next_recording=None)  # fmt: skip
    assert _list_details(same)[:-1] == [
        "uncertainty, one standard deviation in % of the step: none"
    ]
    assert _list_details(row(step_time_ns=None)) == []


def test_verdicts_beyond_the_replay_s_are_told_once_for_all_that_have_them() -> None:
    none = "trusted; the change is indistinguishable from none"
    listed = [
        row(whatif="a"), row(whatif="b", verdict=none), row(whatif="c", verdict=none),
        row(whatif="d", step_time_ns=None, verdict="refused: no layers"),
        row(whatif="e", step_time_ns=None, verdict="trusted"),
    ]  # fmt: skip
    assert _list_verdicts(listed, "trusted") == [
        "the change is indistinguishable from none: b, c", "refused: no layers: d",
    ]  # fmt: skip


def test_assumptions_are_those_that_all_answers_share() -> None:
    listed = [row(assumptions=text) for text in ("x; y; z", "", "z; x", "x; w; z")]
    assert _list_assumptions(listed) == ["assumes:", "  x", "  z"]
    assert _list_assumptions(listed[:1]) == ["assumes:", "  x", "  y", "  z"]
    assert (
        _list_assumptions([*listed, row(assumptions="q")])
        == _list_assumptions([row(assumptions="")])
        == []
    )
    held = [row(intervals_held=text) for text in ("a; b", None, "b; c")]
    assert _list_held(held) == ["90 % intervals so far:", "  a", "  b", "  c"]
    assert _list_held([row(intervals_held=None)]) == []


def test_cells_of_answers_and_of_refusals() -> None:
    listed = [
        row(whatif="a", step_time_ns=1_500_000, p_oom=0.256, peak_memory_bytes=None, mark=None),
        row(whatif="b", step_time_ns=None, p_oom=0.9, mark=None),
        row(whatif="c", step_time_ns=20_000_000, p_oom=None, mark="out of memory"),
    ]
    cells = _build_cells(listed)
    assert cells["what if"] == ["a", "b", "c"]
    assert [cell.strip() for cell in cells["step time"]] == ["1.50 ms", "–", "20.0 ms"]
    assert {len(cell) for cell in cells["step time"]} == {len("step time")}
    assert [cell.strip() for cell in cells["P(OOM) %"]] == ["26", "–", "–"]
    assert cells["mark"] == ["", "refused", "out of memory"]
    assert "peak memory" not in cells, "nobody knows it"
    assert "mark" not in _build_cells(listed[:1])


def test_columns_are_chosen_by_what_matters_as_far_as_there_is_room() -> None:
    """Of 100 characters "what if" takes 36 and 2, 40 take 42: of 20 left 19 and 2 are too many."""
    columns = {
        "what if": ["w" * 50], "large": ["1" * 40], "wide": ["2" * 19], "fits": ["3" * 18],
    }  # fmt: skip
    assert list(_select_columns(columns, ("large", "wide", "fits"))) == ["what if", "large", "fits"]
    assert list(_select_columns(columns, ("fits", "wide", "large"))) == ["what if", "wide", "fits"]
    assert [len(text) for text in _select_columns(columns, ())["what if"]] == [36]


def test_the_step_and_the_batch_that_fits_are_told_where_known() -> None:
    lines = _describe_recorded(FACTS | {"step": None, "held_out_error_pct": 2.34}, [])
    assert lines[0] == "the recording (2 ranks recorded)"
    assert "another step 2.3 % off" in lines[2] and len(lines) == 3
    more = {"largest_batch_that_fits": "2.0x the recorded", "site": "cluster"}
    lines = _describe_recorded(
        FACTS | more | {"ranks": None}, [row(measured_step_time_ns=2_000_000)]
    )
    assert lines[0] == "step 12 took 2.00 ms (0 ranks recorded)"
    assert lines[3:] == ["largest batch that fits: 2.0x the recorded", "site: cluster"]
