"""Intervals as wide as predictions of their kind turned out to miss."""

import math

import pytest

from htk.whatif import calibration
from htk.whatif.answer import Answer

TABLE = {
    "batch": {
        "half": 0.8,
        "most": 2.0,
        "measured": {"held": 41, "n": 46},
        "simulated": {"held": 36, "n": 36},
    },
    "sharding": {
        "half": 0.3,
        "most": 0.9,
        "measured": {"held": 0, "n": 0},
        "simulated": {"held": 9, "n": 10},
    },
    "pooled": {"half": 1.0, "most": 3.0},
}
TENTHS = [k / 10 for k in range(1, 11)]  # ten scores, 0.1 to 1.0


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibration, "_load_table", lambda: TABLE)


def test_the_quantile_of_n_is_counted_of_one_more() -> None:
    assert (
        calibration.find_conformal_quantile([3, 1, 2, 4, 5, 6, 7, 8, 9], 0.9) == 9
    )  # the ⌈0.9 · 10⌉-th
    assert calibration.find_conformal_quantile([1, 2, 3], 0.5) == 2


def test_without_measured_rows_of_its_own_a_kind_has_the_factors_of_all() -> None:
    assert calibration.fit_factors([], TENTHS) == (0.5, 0.9)  # the fifth and the ninth of ten
    assert calibration.fit_factors([], [score for score in TENTHS for _ in range(7)]) == (0.5, 0.9)


def test_many_rows_of_a_kind_outweigh_what_is_borrowed() -> None:
    own = [5 * k / 100 for k in range(1, 101)]  # 0.05 to 5
    merged = sorted([*own, *TENTHS])  # of 110 the 55th and the 99th
    assert calibration.fit_factors(own, TENTHS) == (merged[54], merged[98])
    assert merged[98] > 4


def test_all_kinds_together_count_as_ten_jobs_however_many_they_are() -> None:
    own = [2.0] * 10
    assert calibration.fit_factors(own, [1.0] * 1000)[1] == 2.0  # 10 of 20 lie below
    assert calibration.fit_factors(own, [3.0] * 1000) == (2.0, 3.0)


def test_simulated_jobs_widen_what_nobody_has_measured_and_nothing_else() -> None:
    worse = [4.0] * 20
    assert calibration.fit_factors([], TENTHS, worse) == (4.0, 4.0)
    assert calibration.fit_factors([], TENTHS, [0.01] * 20) == (0.5, 0.9)
    assert calibration.fit_factors([0.5] * 5, TENTHS, worse) == calibration.fit_factors(
        [0.5] * 5, TENTHS
    )


def test_nothing_measured_at_all_leaves_the_normal_distribution() -> None:
    assert calibration.fit_factors([], []) == calibration.NORMAL


def test_the_widest_of_several_edits() -> None:
    assert calibration.find_calibration(["batch"]) == (0.8, 2.0)
    assert calibration.find_calibration(["sharding"]) == (0.3, 0.9)
    assert calibration.find_calibration(["batch", "sharding"]) == (0.8, 2.0)


def test_all_kinds_stand_for_what_is_not_known() -> None:
    assert calibration.find_calibration(["tp"]) == (1.0, 3.0)
    assert calibration.find_calibration(["sharding", "tp"]) == (1.0, 3.0)
    assert calibration.find_calibration([]) == calibration.NORMAL


def test_what_models_miss_is_part_of_an_interval_unless_nothing_changes() -> None:
    assert calibration.state_sigma(0.0, ["batch"]) == calibration.UNMODELLED
    assert calibration.state_sigma(0.03, ["batch"]) == pytest.approx(math.hypot(0.03, 0.02))
    assert calibration.state_sigma(0.03, []) == 0.03


def test_an_answer_takes_them() -> None:
    made = Answer((("batch", "64"),), 1000, "trusted", 2000, {"compute": 0.1})
    sigma = math.hypot(0.1, calibration.UNMODELLED)
    lo50, hi50, lo90, hi90 = made.intervals
    assert (lo90, hi90) == (round(2000 * math.exp(-2 * sigma)), round(2000 * math.exp(2 * sigma)))
    assert (lo50, hi50) == (
        round(2000 * math.exp(-0.8 * sigma)),
        round(2000 * math.exp(0.8 * sigma)),
    )
    unchanged = Answer((("batch", "1x"),), 1000, "trusted", 1000, {"site": 0.01}, effective=())
    assert unchanged.intervals[2:] == (984, 1017)  # 1000 · exp(∓0.01645)


def test_an_answer_says_how_often_intervals_of_its_kind_held() -> None:
    made = Answer((("batch", "64"), ("tp", "2")), 1000, "trusted", 2000)
    assert made.intervals_held == (
        "batch: held 41 of 46 measured, 36 of 36 simulated; tp: held none measured, none simulated"
    )
    assert Answer((("batch", "64"),), 1000, "refused: no step").intervals_held == ""
