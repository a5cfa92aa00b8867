"""The limits of the gate, one by one."""

from dataclasses import replace

import pytest

from htk.quantities.graph.gate import Gate

FITS = Gate(3.0, 2.0, 1.0, 3.5, 3.5, 80.0)  # each figure as large, or as small, as is trusted
REFUSED_AT = {"step_error_pct": 5.0, "exposed_error_points": 5.0, "held_out_error_pct": 30.0}


def test_a_step_at_each_limit_is_trusted() -> None:
    assert FITS.verdict == "trusted" and FITS.replays and FITS.residual_pct == 3.5
    assert replace(FITS, step_error_pct=4.0).residual_pct == 4.0
    assert replace(FITS, linked=0.1).verdict == "trusted"


@pytest.mark.parametrize(
    ("figure", "beyond", "words"),
    [
        ("step_error_pct", 3.01, "step replays 3.0 % off"),
        ("exposed_error_points", 2.01, "exposed communication 2.0 points off"),
        ("start_error_pct", 1.01, "activities start 1.0 % of the step off"),
        ("observed_path_pct", 79.9, "only 80 % of the critical path was recorded"),
        ("held_out_error_pct", 3.6, "another step is predicted 3.6 % off"),
        ("held_out_error_pct", None, "only one whole step was recorded"),
        ("unexplained_pct", 0.25, "0.25 % of the step is delay that nothing recorded explains"),
    ],
)
def test_beyond_one_limit_it_is_indicative(figure: str, beyond: float | None, words: str) -> None:
    judged = replace(FITS, **{figure: beyond}, remarks=("a remark",))  # type: ignore[arg-type]
    assert judged.verdict.startswith(f"indicative: {words}")
    assert judged.verdict.endswith("; a remark")
    assert judged.replays == (figure not in ("step_error_pct", "exposed_error_points",
                                             "start_error_pct"))  # fmt: skip
    assert replace(judged, linked=0.5).verdict.startswith("indicative")
    assert replace(judged, linked=0.49).verdict.startswith("refused")


@pytest.mark.parametrize("figure", REFUSED_AT)
def test_far_beyond_it_is_refused(figure: str) -> None:
    limit = REFUSED_AT[figure]
    assert replace(FITS, **{figure: limit}).verdict.startswith("indicative")  # type: ignore[arg-type]
    assert replace(FITS, **{figure: limit + 0.1}).verdict.startswith("refused")  # type: ignore[arg-type]


def test_a_step_recorded_alone_inherits_one_percent() -> None:
    assert replace(FITS, step_error_pct=0.4, held_out_error_pct=None).residual_pct == 1.0
    assert replace(FITS, step_error_pct=1.7, held_out_error_pct=None).residual_pct == 1.7


def test_figures_are_rounded_for_people() -> None:
    judged = Gate(1.23456, 0.12345, 0.98765, 2.34567, 3.0, 91.26, unexplained_pct=4.44)
    assert judged.figures == {
        "step_error_pct": 1.235,
        "exposed_error_points": 0.123,
        "start_error_pct": 0.988,
        "held_out_error_pct": 2.346,
        "observed_path_pct": 91.3,
        "unexplained_pct": 4.4,
    }
