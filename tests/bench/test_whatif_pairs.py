"""Pairs of simulated jobs, and the page that they make."""

import pytest

from bench.whatif_pairs import BASE, JOBS, PAIRS, Row, read_pair, simulated_rows, sum_up, write_page
from htk.recording.simulate.config import check_config


def test_every_pair_is_of_jobs_that_there_are() -> None:
    assert len(PAIRS) >= 60 and len(set(PAIRS)) == len(PAIRS)
    for text in PAIRS:
        before, edits, after = read_pair(text)
        assert {before, after} <= set(JOBS) and before != after and edits
    assert read_pair("a > batch=global=32 tp=2 > b") == (
        "a", [("batch", "global=32"), ("tp", "2")], "b",
    )  # fmt: skip


def test_jobs_can_be() -> None:
    from dataclasses import replace

    for change in JOBS.values():
        check_config(replace(BASE, **change))


def test_a_row_is_held_to_the_job_after_the_edit() -> None:
    (row,) = simulated_rows(["one GPU > batch=1x > one GPU"])
    assert row.miss_pct == pytest.approx(0.0) and row.memory_miss_pct == pytest.approx(0.0)
    assert row.is_held


def test_the_page_says_how_far_off_and_how_often_held() -> None:
    rows = [
        Row("simulated", "a", "--x 1", "b", 100.0, 102.0, 90.0, 110.0, 10.0, 10.1),
        Row("simulated", "a", "--x 2", "c", 100.0, 96.0, 97.0, 99.0, None, None),
        Row("simulated", "a", "--x 3", "d", 100.0, None, None, None, None, None, "no"),
    ]
    words = sum_up(rows)
    assert words.startswith("2 of 3 answered: time 3.0 % off at the median, 4.0 % at the 90th")
    assert "held 1 (50 %)" in words and "memory 1.0 %" in words
    page = write_page(rows)
    assert "| a | `--x 2` | 96.0 ms | 97.0 … 99.0 (missed) | 100.0 ms | -4.0 % |  |" in page
    assert "| a | `--x 3` | refused |" in page
