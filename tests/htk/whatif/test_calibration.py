"""Bands as wide as predictions of their kind turned out to miss."""

import pytest

from htk.whatif import calibration
from htk.whatif.predict import Answer

TABLE = {
    "batch": {"n": 120, "half": 0.8, "most": 2.0},
    "sharding": {"n": 190, "half": 0.3, "most": 0.9},
}
TENTHS = [k / 10 for k in range(1, 10)]  # nine scores, 0.1 to 0.9


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibration, "_table", lambda: TABLE)


def test_the_quantile_of_n_is_counted_of_one_more() -> None:
    assert calibration.quantile([3, 1, 2, 4, 5, 6, 7, 8, 9], 0.9) == 9  # the ⌈0.9 · 10⌉-th
    assert calibration.quantile([1, 2, 3], 0.5) == 2


def test_errors_larger_than_stated_widen() -> None:
    assert calibration.factors([10 * t for t in TENTHS]) == (5, 9)


def test_fewer_than_nine_tell_nothing() -> None:
    assert calibration.factors([10 * t for t in TENTHS[:8]]) == calibration.NORMAL


def test_few_smaller_errors_do_not_narrow() -> None:
    assert calibration.factors(TENTHS) == calibration.NORMAL


def test_very_many_smaller_errors_narrow_to_five_points_more_than_asked() -> None:
    hundred = [k / 100 for k in range(1, 100)]  # of 99 the 55th and the 95th
    assert calibration.factors(hundred, 100) == (0.55, 0.95)
    assert calibration.factors(hundred) == calibration.NORMAL  # 99 are not many
    assert calibration.factors([2 * score for score in hundred], 100) == (1.0, 1.8)


def test_the_inner_band_narrows_no_more_than_the_outer() -> None:
    tidy = [0.01] * 80 + [0.8225] * 19  # half of 1.645, so half of 0.674
    assert calibration.factors(tidy, 100) == (0.337, 0.8225)


def test_the_widest_of_several_edits() -> None:
    assert calibration.calibrated(["batch"]) == (0.8, 2.0)
    assert calibration.calibrated(["sharding"]) == (0.3, 0.9)
    assert calibration.calibrated(["batch", "sharding"]) == (0.8, 2.0)


def test_the_normal_distribution_stands_for_what_is_not_known() -> None:
    assert calibration.calibrated(["tp"]) == calibration.NORMAL
    assert calibration.calibrated(["sharding", "tp"]) == calibration.NORMAL
    assert calibration.calibrated([]) == calibration.NORMAL


def test_an_answer_takes_them() -> None:
    made = Answer((("batch", "64"),), 1000, "trusted", 2000, {"compute": 0.1})
    lo50, hi50, lo90, hi90 = made.bands
    assert (lo90, hi90) == (1637, 2443)  # 2000 · exp(∓0.2)
    assert (lo50, hi50) == (1846, 2167)  # 2000 · exp(∓0.08)
    other = Answer((("host", "2x"),), 1000, "trusted", 2000, {"compute": 0.1})
    assert other.bands[2:] == (1697, 2358)  # 2000 · exp(∓0.1645)
