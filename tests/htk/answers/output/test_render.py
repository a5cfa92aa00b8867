"""Answers on their way out: for people in a narrow terminal, and for machines."""

import csv
import io
import json
import math
from typing import Any

import pyarrow as pa
import pytest

from htk.answers.output.coverage_text import coverage_lines
from htk.answers.output.render import form_by_name, print_table, to_text
from htk.answers.output.result import Result
from htk.base.core.humanize import format_value
from htk.base.core.label import Label

KERNEL = "void at::native::elementwise_kernel<128, 4, at::native::Foo<float>>(int, float)"


def result(**columns: Any) -> Result:
    return Result(Label("answer", "What is shown?"), pa.table(columns), {})


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(answer: Result, width: int, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("TERM", "xterm")
    target = Terminal()
    print_table(answer, file=target)
    return target.getvalue()


@pytest.mark.parametrize(
    ("missing", "text"),
    [
        ([1], "3 of 4 ranks, missing rank 1"),
        ([1, 2, 3], "3 of 4 ranks, missing ranks 1..3"),
        ([3, 4, 5, 6], "3 of 4 ranks, missing rank 3, no ranks 4..6 in this job"),
    ],
)
def test_ranks_that_are_missing_and_ranks_that_there_are_not(missing: list[int], text: str) -> None:
    facts = {"ranks": [0, 1, 2], "world_size": 4, "missing_ranks": missing}
    assert coverage_lines(facts) == [f"coverage: {text}"]


def test_what_is_below_the_last_digit_is_not_written_with_exponents() -> None:
    assert format_value(0.25, "ns") == "< 1 ns"
    assert format_value(4e-7, "") == "< 0.001"
    assert format_value(-4e-7, "") == "> -0.001"


def test_a_narrow_terminal_cuts_names_and_keeps_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    words = {name: ["some words"] for name in ("kind", "family", "library")}
    answer = result(name=[KERNEL * 2], **words, total_ns=[1_500_000], count=[7])
    narrow = shown(answer, 60, monkeypatch)
    assert "1.50 ms" in narrow and "elementwise_kernel" in narrow and " 7" in narrow
    assert "wider terminal: family, library" in narrow
    assert len(narrow.splitlines()[1]) <= 60
    wide = shown(answer, 200, monkeypatch)
    assert "library" in wide and "wider" not in wide


@pytest.mark.parametrize("width", [50, 60, 80, 100, 140, 200])
def test_name_and_main_number_stand_at_each_width(
    width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A change without what changed, and a kernel without its time, are no answer."""
    counts = {f"{word}_count": [4] for word in ("base", "new", "older", "newer", "other")}
    words = {"change": ["regressed"], "basis": ["a name"]}
    changed = result(by=["kernel"], name=["gemm_of_mine"], **words, **counts, diff_ns=[77_000])
    times = result(family=["gemm"], name=["gemm_of_mine"], **counts, total_ns=[77_000])
    for answer in (changed, times):
        narrow = shown(answer, width, monkeypatch)
        assert "gemm_of_mine" in narrow
        assert "77.0 µs" in narrow


def test_sentences_go_over_several_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    narrow = shown(result(rank=[0], text=["one word after another " * 5]), 50, monkeypatch)
    assert narrow.count("one") == 5 and "wider" not in narrow


def test_shares_have_one_digit_and_their_unit_in_the_heading() -> None:
    text = to_text(result(kernel_time_pct=[28.0, 0.00519], pct=[1.0, 2.0]), "table")
    assert "kernel time %" in text and "28.0" in text and "0.0" in text and "e-" not in text


def test_no_two_headings_are_alike() -> None:
    text = to_text(result(peak_ns=[1], peak_bytes=[2], peak_pct=[3.0], peak=[4]), "csv")
    assert text.startswith('"peak_ns"')
    heading = to_text(result(device=[0], device_ns=[2], peak_ns=[1], peak_bytes=[2]), "table")
    assert heading.split("\n")[0].split("  ")[-3:] == ["device time", "peak time", "peak size"]


def test_microseconds_read_like_other_times() -> None:
    text = to_text(result(latency_us=[8.62, 1500.0]), "table")
    assert text.startswith("latency") and "8.62 µs" in text and "1.50 ms" in text


def test_json_has_null_for_what_is_no_number() -> None:
    answer = json.loads(to_text(result(blocks=[math.inf, math.nan, 1.5]), "json"))
    assert [row["blocks"] for row in answer["rows"]] == [None, None, 1.5]


def test_csv_writes_lists_as_text() -> None:
    rows = list(csv.reader(io.StringIO(to_text(result(ranks=[[0, 1], None]), "csv"))))
    assert rows == [["ranks"], ["[0, 1]"], []]


@pytest.mark.parametrize(
    ("output", "form"),
    [(None, "table"), ("a.csv", "csv"), ("b.PARQUET", "parquet"), ("c.txt", "table")],
)
def test_the_ending_of_a_file_says_its_form(output: str | None, form: str) -> None:
    assert form_by_name(output) == form


@pytest.mark.parametrize(
    ("issues", "text"),
    [
        ({"truncated": 2}, "2 parse issues (htk doctor shows them)"),
        (
            {"unread_events": 9},
            "9 events of kinds that are not read (htk doctor shows them)",
        ),
        (
            {"stray_time": 1, "older_recording": 2, "truncated": 1},
            "2 older recordings left out, 1 stray time left out, "
            "1 parse issue (htk doctor shows them)",
        ),
        ({"same_rank": 2}, "2 overlapping files of one rank kept (htk doctor shows them)"),
    ],
)
def test_what_was_left_out_is_named_in_the_coverage(issues: dict[str, int], text: str) -> None:
    facts = {"dropped": sum(issues.values()), "issues": issues}
    assert coverage_lines(facts) == [f"coverage: {text}"]


def test_facts_of_an_analysis_have_names_in_words() -> None:
    facts = {
        "idle_of_unknown_cause_ns": 1_500_000, "lost_pct": 12.5,
        "modelled_pct_of_device_time": 70.5,
        "rows_left_out": 28, "peak_gbps": 3.0, "step_ns_p50": 2000,
    }  # fmt: skip
    (line,) = coverage_lines(facts)
    assert line.strip() == (
        "idle of unknown cause: 1.50 ms, lost: 12.5 %, modelled % of device time: 70.5, "
        "rows left out: 28, peak: 3 GB/s, step p50: 2.00 µs"
    )
    together = {"both": {"step_gain_ns": 1_500, "a_kernel_name": 2}}
    assert coverage_lines(together) == ["          both: step gain 1.50 µs, a_kernel_name 2"]
    assert coverage_lines({"rows": {3: 5}}) == ["          rows: 3 5"], "ranks are numbers"


def test_a_share_is_all_only_where_it_is() -> None:
    for share, text in ((99.342, "99.3"), (99.97, "99.97"), (100.0, "100"), (0.0314, "0.0314")):
        facts = {"gpu_activities": 5, "gpu_activities_linked_pct": share}
        (line,) = coverage_lines(facts)
        assert line.endswith(f", {text} % of GPU time linked to launches")


def test_a_table_within_the_coverage_is_counted_not_printed() -> None:
    lines = coverage_lines({"ledger": [{"kind": "data", "input_gib": 2.05}] * 4, "sigma": 0.2})
    assert lines == ["          ledger: 4 rows, sigma: 0.2"]
