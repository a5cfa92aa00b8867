"""Marks of a sweep, the order of advice, what an answer's doubt is made of."""

import pytest

from htk.base.errors import UsageError
from htk.traces.trace.opening import open_trace
from htk.whatif import sweep
from htk.whatif.answer import Answer
from htk.whatif.baseline import build_baseline
from htk.whatif.predict import predict_answer as answered
from htk.whatif.recorded_step import Baseline
from htk.whatif.sweep import (
    LAST_LAUNCH_BOUND,
    LAST_THAT_FITS,
    LAST_UNDER_A_WAVE,
    LAUNCH_BOUND,
    MAY_NOT_FIT,
    OUT_OF_MEMORY,
    UNDER_A_WAVE,
    list_bounds,
    mark_answers,
    memory_edge,
    recommend_edits,
    sweep_edits,
)
from htk.whatif.uncertainty import PROFILER, by_source, suggest_recording
from tests.htk.quantities.graph.small_step import step_tables
from tests.htk.whatif.answers import answer, peak


def test_edges_and_knees_of_a_sweep_are_marked() -> None:
    found = mark_answers(
        [
            answer(1, p_oom=0.0, launch_bound=True, under_a_wave=True),
            answer(2, p_oom=0.01, launch_bound=True),
            answer(4, p_oom=0.05),
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
    found = mark_answers([answer(8, p_oom=0.9), answer(1, p_oom=0.0, under_a_wave=True)])
    assert found[0].mark == OUT_OF_MEMORY
    assert found[1].mark == f"{LAST_THAT_FITS}; {LAST_UNDER_A_WAVE}"
    even = mark_answers([answer(1, p_oom=0.05), answer(2, p_oom=0.051), answer(4, p_oom=0.5)])
    assert [a.mark for a in even] == [LAST_THAT_FITS, MAY_NOT_FIT, OUT_OF_MEMORY]
    assert mark_answers([answer(2, under_a_wave=True)])[0].mark == UNDER_A_WAVE  # no knee is seen


def test_causes_add_up_by_source_as_independent_ones_do() -> None:
    found = by_source({"compute": 0.03, "host": 0.04, "communication": 0.02, "structure": 0.01})
    assert found == pytest.approx({"kernel": 0.05, "network": 0.02, "replay": 0.01})


def test_the_recording_that_narrows_most_is_of_what_is_least_known() -> None:
    asked = [("batch", "64")]
    assert "at batch 64" in suggest_recording(asked, {"compute": 0.05, "site": 0.003})
    assert "nccl-tests" in suggest_recording(
        [("world", "32")], {"communication": 0.05, "site": 0.003}
    )
    assert "every rank" in suggest_recording([("world", "32")], {"skew": 0.05, "site": 0.003})
    assert suggest_recording([], {"site": 0.003}) == ""
    assert suggest_recording([("host", "2x")], {"site": 0.003}) == ""  # no recording helps
    structure = suggest_recording(
        [("sharding", "ddp")], {"structure": 0.03, "replay": 0.01, "site": 0.003}
    )
    assert structure.startswith("run some steps with sharding ddp")


def test_bands_nest_and_hold_the_answer() -> None:
    lo50, hi50, lo90, hi90 = answer(2).intervals
    assert lo90 is not None and lo50 is not None and hi50 is not None and hi90 is not None
    assert lo90 < lo50 < 187 < hi50 < hi90


def test_a_step_that_its_host_bounds_is_doubted_for_the_profiler() -> None:
    start = build_baseline(step_tables(4))  # 150 of 200 on the GPU
    faster_kernel = [("replace", "^a$=2x")]
    assert answered(start, faster_kernel).sources["profiler"] == pytest.approx(PROFILER)
    assert "profiler" not in answered(start, faster_kernel, 190).sources
    bound_by_the_gpu = answered(start, [("host", "2x")])
    assert bound_by_the_gpu.step_ns == 150
    assert "profiler" not in bound_by_the_gpu.sources
    assert "--measured-step-ms" in suggest_recording(
        [("graphs", "on")], {"profiler": 0.05, "site": 0.003}
    )


def test_bounds_leave_out_what_the_step_has_no_cause_for() -> None:
    found = list_bounds(build_baseline(step_tables(4)))
    assert {a.edits[0][0] for a in found} == {"remove_syncs", "graphs", "host"}


def test_every_combination_is_answered_once() -> None:
    start = build_baseline(step_tables(4))
    over = [("replace", ("^a$=2x", "^a$=4x")), ("graphs", ("on",))]
    answers = sweep_edits(start, [("host", "2x")], over)
    assert [dict(a.edits) for a in answers] == [
        {"host": "2x", "replace": value, "graphs": "on"} for value in ("^a$=2x", "^a$=4x")
    ]
    (alone,) = sweep_edits(start, [("host", "2x")], [])
    assert (alone.step_ns, alone.mark) == (answered(start, [("host", "2x")]).step_ns, "")
    with pytest.raises(UsageError, match="replace"):
        sweep_edits(start, [("replace", "nonsense")], [])
    refused, other = sweep_edits(start, [], [("replace", ("nonsense", "^a$=2x"))])
    assert refused.verdict.startswith("refused") and refused.step_ns is None
    assert other.step_ns is not None
    assert refused.measured_ns == start.step_ns
    (given, _) = sweep_edits(start, [], [("replace", ("nonsense", "^a$=2x"))], 321)
    assert given.measured_ns == 321
    with pytest.raises(UsageError, match="host is given 2 times"):
        sweep_edits(start, [("host", "2x")], [("host", ("3x",))])


def test_the_next_larger_batch_is_of_a_gpu_and_of_the_same_edits() -> None:
    """Twice the samples on twice the GPUs is no larger batch of a GPU."""
    wide = answer(2, p_oom=0.9)
    same = Answer(**{**vars(answer(2, p_oom=0.9)), "devices_ratio": 2.0})
    assert [a.mark for a in mark_answers([answer(1, p_oom=0.0), same])] == ["", OUT_OF_MEMORY]
    assert [a.mark for a in mark_answers([answer(1, p_oom=0.0), wide])] == [
        LAST_THAT_FITS,
        OUT_OF_MEMORY,
    ]
    half = Answer(**{**vars(answer(2, p_oom=0.9)), "devices_ratio": 0.5})  # 4 times
    fits = answer(3, p_oom=0.02)
    marks = [a.mark for a in mark_answers([answer(1, p_oom=0.0), half, fits])]
    assert marks == ["", OUT_OF_MEMORY, LAST_THAT_FITS]
    gone = Answer(**{**vars(answer(2, p_oom=0.9)), "step_ns": None})
    assert mark_answers([answer(1, p_oom=0.0), gone])[0].mark == "", (
        "what has no answer is no neighbour"
    )


def test_bounds_are_in_order_of_what_they_save() -> None:
    start = build_baseline(step_tables(4))
    found = list_bounds(start)
    steps = [a.step_ns for a in found]
    assert None not in steps and steps == sorted(steps)  # type: ignore[type-var]
    assert all(a.step_ns == answered(start, a.edits).step_ns for a in found)


def test_advice_wins_fits_and_comes_surest_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 200: 100 and 150 win, 1999 of 2000 hardly, 300 loses, 90 does not fit; 180 with twice the
    samples is 90 each, less sure."""
    start = build_baseline(step_tables(4))
    answers = {
        "quarter": Answer((("a", ""),), 200, "trusted", 150, {"compute": 0.01}),
        "half": Answer((("b", ""),), 200, "trusted", 100, {"compute": 0.1}, peak=peak(0.05)),
        "hardly": Answer((("c", ""),), 2000, "trusted", 1999, {"compute": 0.01}),
        "worse": Answer((("d", ""),), 200, "trusted", 300, {"compute": 0.01}),
        "large": Answer((("e", ""),), 200, "trusted", 90, {"compute": 0.01}, peak=peak(0.06)),
        "twice": Answer((("f", ""),), 200, "trusted", 180, {"compute": 0.3}, samples_ratio=2.0),
        "gone": Answer((("g", ""),), 200, "refused"),
        "none": Answer((("h", ""),), 200, f"trusted; {sweep.INDISTINGUISHABLE}", 100),
    }

    def of(_: Baseline, edits: tuple[tuple[str, str], ...], __: int | None) -> Answer:
        return answers[edits[0][0]]

    monkeypatch.setattr(sweep, "try_edits", of)
    monkeypatch.setattr(sweep, "ACTIONS", tuple((name, "") for name in answers))
    assert [a.edits[0][0] for a in recommend_edits(start)] == ["a", "b", "f"]


def test_without_recorded_memory_no_batch_is_the_largest() -> None:
    start = build_baseline(step_tables(4))
    assert start.memory is None or memory_edge(start, ()) is None


def test_bounds_of_a_step_that_communicates_have_its_communication() -> None:
    start = build_baseline(open_trace("sample").tables)
    assert {"no_skew", "overlap"} <= {a.edits[0][0] for a in list_bounds(start)}
