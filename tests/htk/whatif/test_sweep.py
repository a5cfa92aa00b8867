"""Marks of a sweep, the order of advice, what an answer's doubt is made of."""

import pytest

from htk.whatif.predict import baseline
from htk.whatif.predict import predict as answered
from htk.whatif.sweep import (
    LAST_LAUNCH_BOUND,
    LAST_THAT_FITS,
    LAST_UNDER_A_WAVE,
    LAUNCH_BOUND,
    OUT_OF_MEMORY,
    UNDER_A_WAVE,
    bounds,
    marked,
)
from htk.whatif.uncertainty import by_source, narrowing
from tests.htk.graph.small_step import step_tables
from tests.htk.whatif.answers import answer


def test_edges_and_knees_of_a_sweep_are_marked() -> None:
    found = marked(
        [
            answer(1, p_oom=0.0, launch_bound=True, under_a_wave=True),
            answer(2, p_oom=0.1, launch_bound=True),
            answer(4, p_oom=0.2),
            answer(8, p_oom=0.9),
        ]
    )
    assert [a.mark for a in found] == [
        f"{LAUNCH_BOUND}; {LAST_UNDER_A_WAVE}",
        LAST_LAUNCH_BOUND,
        LAST_THAT_FITS,
        OUT_OF_MEMORY,
    ]


def test_the_order_in_which_batches_are_asked_does_not_matter() -> None:
    found = marked([answer(8, p_oom=0.9), answer(1, p_oom=0.0, under_a_wave=True)])
    assert found[0].mark == OUT_OF_MEMORY
    assert found[1].mark == f"{LAST_THAT_FITS}; {LAST_UNDER_A_WAVE}"
    even = marked(
        [answer(1, p_oom=0.49), answer(2, p_oom=0.5)]
    )  # as likely as not: it does not fit
    assert [a.mark for a in even] == [LAST_THAT_FITS, OUT_OF_MEMORY]
    assert marked([answer(2, under_a_wave=True)])[0].mark == UNDER_A_WAVE  # no knee is seen


def test_causes_add_up_by_source_as_independent_ones_do() -> None:
    found = by_source({"compute": 0.03, "host": 0.04, "communication": 0.02, "structure": 0.01})
    assert found == pytest.approx({"kernel": 0.05, "network": 0.02, "replay": 0.01})


def test_the_recording_that_narrows_most_is_of_what_is_least_known() -> None:
    asked = [("batch", "64")]
    assert "at batch 64" in narrowing(asked, {"compute": 0.05, "site": 0.003})
    assert "nccl-tests" in narrowing([("world", "32")], {"communication": 0.05, "site": 0.003})
    assert "every rank" in narrowing([("world", "32")], {"skew": 0.05, "site": 0.003})
    assert narrowing([], {"site": 0.003}) == ""
    assert narrowing([("host", "2x")], {"site": 0.003}) == ""  # no recording helps
    structure = narrowing([("sharding", "ddp")], {"structure": 0.03, "replay": 0.01, "site": 0.003})
    assert structure.startswith("run some steps with sharding ddp")


def test_bands_nest_and_hold_the_answer() -> None:
    lo50, hi50, lo90, hi90 = answer(2).intervals
    assert lo90 is not None and lo50 is not None and hi50 is not None and hi90 is not None
    assert lo90 < lo50 < 187 < hi50 < hi90


def test_a_step_that_its_host_bounds_is_doubted_for_the_profiler() -> None:
    start = baseline(step_tables(4))  # 150 of 200 on the GPU
    found = answered(start, [("host", "2x")])
    assert found.sources["profiler"] == pytest.approx(0.05)
    assert "profiler" not in answered(start, [("host", "2x")], 190).sources
    assert "--measured-step-ms" in narrowing([("graphs", "on")], {"profiler": 0.05, "site": 0.003})


def test_bounds_leave_out_what_the_step_has_no_cause_for() -> None:
    found = bounds(baseline(step_tables(4)))
    assert {a.edits[0][0] for a in found} == {
        "no_skew",
        "overlap",
        "remove_syncs",
        "graphs",
        "host",
    }
