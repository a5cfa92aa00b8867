"""Answers in a sentence, against rows whose largest, sums and medians are seen at a glance."""

import pyarrow as pa
import pytest

from htk.answers.output.one_sentence import state_answer
from htk.answers.output.result import Result
from htk.base.core.chart import Bar, Chart, Heatmap, Line
from htk.base.core.label import Label

MS = 1_000_000


def stated(chart: Chart | None, facts: dict[str, object] | None = None, **columns: object) -> str:
    return state_answer(Result(Label("asked", "What?", chart), pa.table(columns), facts or {}))


def test_stacked_parts_are_shares_of_their_sum() -> None:
    chart = Bar("rank", ("compute_ns", "exposed_comm_ns", "idle_ns"))
    said = stated(
        chart,
        rank=[0, 1],
        compute_ns=[60 * MS, 40 * MS],
        exposed_comm_ns=[30 * MS, 50 * MS],
        idle_ns=[10 * MS, 10 * MS],
    )
    assert said == ("Of 200 ms in all: compute 50.0 %, exposed communication 40.0 %, idle 10.0 %.")


def test_parts_by_colour_are_added_up() -> None:
    said = stated(
        Bar("rank", "idle_ns", color="cause"),
        rank=[0, 0, 1],
        cause=["late_host", "launch", "late_host"],
        idle_ns=[MS, MS, 2 * MS],
    )
    assert said == "Of 4.00 ms in all: late host 75.0 %, launch 25.0 %."


def test_medians_are_no_parts_of_a_whole() -> None:
    columns = {"phase": ["decode"], "elapsed_ns_p50": [MS], "elapsed_ns_p99": [3 * MS]}
    said = stated(Bar("phase", ("elapsed_ns_p50", "elapsed_ns_p99")), **columns)
    assert said == "Highest elapsed p50: decode, 1.00 ms."


def test_rows_whose_shares_add_up_are_all_of_it() -> None:
    rows = {"what": ["compute", "memory"], "path_ns": [3 * MS, MS], "path_pct": [75.0, 25.0]}
    assert stated(Bar("what", "path_ns", horizontal=True), **rows) == (
        "Of 4.00 ms in all: compute 75.0 %, memory 25.0 %."
    )


def test_of_names_the_first_two_are_told_and_what_is_left_over_is_none() -> None:
    said = stated(
        Bar("name", "total_ns", horizontal=True),
        name=["others", "gemm", "copy"],
        total_ns=[90 * MS, 20 * MS, 30 * MS],
    )
    assert said == "Highest total: copy, 30.0 ms; then: gemm, 20.0 ms."


def test_of_ranks_the_first_and_the_last_are_told() -> None:
    chart = Bar("rank", "wait_ns")
    assert stated(chart, rank=[0, 1, 2], wait_ns=[5, 9, 1]) == (
        "Highest wait: rank 1, 9 ns; lowest: rank 2, 1 ns."
    )
    assert stated(chart, rank=[0, 1], wait_ns=[5, 5]) == "All 2 rows have the same wait: 5 ns."
    assert stated(chart, rank=[0, 1], wait_ns=pa.array([None, None], pa.int64())) == ""


def test_names_of_several_ranks_say_whose() -> None:
    said = stated(Bar("name", "host_ns"), name=["sync", "sync"], rank=[0, 1], host_ns=[MS, 2 * MS])
    assert said == "Highest host: sync, rank 1, 2.00 ms; then: sync, rank 0, 1.00 ms."


@pytest.mark.parametrize(("modelled", "said"), [(3.9, True), (95.0, False)])
def test_a_figure_of_a_part_of_the_time_says_of_how_much(modelled: float, said: bool) -> None:
    facts = {"modelled_pct_of_time_launched_here_less_communication": modelled}
    text = stated(Bar("rank", "mfu_pct"), facts, rank=[0], mfu_pct=[0.8])
    assert text.startswith("Highest MFU: rank 0, 0.8 %")
    assert ("of the 3.9 % of GPU time that is modelled" in text) is said


def test_lines_and_maps() -> None:
    line = stated(Line("step", "duration_ns", color="rank"), step=[1, 2, 3], duration_ns=[4, 6, 9])
    assert line == "Duration: 6 ns at the median, from 4 ns to 9 ns."
    cells = {"step": [1, 2], "rank": [0, 1], "lateness_ns": [3, 8]}
    assert stated(Heatmap("step", "rank", "lateness_ns"), **cells) == (
        "Highest lateness: rank 1, step 2, 8 ns; lowest: rank 0, step 1, 3 ns."
    )


def test_a_verdict_is_the_answer_where_there_is_no_picture() -> None:
    assert stated(None, {"verdict": "no slow link"}, rank=[0]) == "No slow link."
    assert stated(None, finding=["rank 3 never came"]) == "Rank 3 never came."
    assert stated(Bar("rank", "wait_ns"), rank=[], wait_ns=[]) == ""
