"""Intervals of answers whose inputs are ranges."""

import math

import pytest

from htk.base.core.ranges import ValueRange, parse_count_over_time, parse_seconds, parse_value
from htk.base.errors import UsageError
from htk.verdicts.economics.uncertain_inputs import (
    ObservedCount,
    evaluate_draws,
    find_interval,
    shares_of_width,
)


@pytest.mark.parametrize(
    ("text", "low", "high"),
    [("90s", 90, 90), ("3min..10min", 180, 600), ("3..10min", 180, 600), ("1.5h", 5400, 5400),
     ("2d", 172_800, 172_800), ("500ms..2s", 0.5, 2)],
)  # fmt: skip
def test_durations_are_read(text: str, low: float, high: float) -> None:
    assert parse_seconds(text) == ValueRange(low, high)


def test_numbers_are_read() -> None:
    assert parse_value("15.6T") == ValueRange(15.6e12, 15.6e12)
    assert parse_value("2..3") == ValueRange(2, 3)
    assert parse_count_over_time("466/54d") == (466, 54 * 86_400)


@pytest.mark.parametrize(
    "text", ["", "3", "3 apples", "-3s", "nan", "1e999s", "3..s", "9min..3min"]
)
def test_what_is_no_duration_is_an_error(text: str) -> None:
    with pytest.raises(UsageError, match=r"duration|backwards|large"):
        parse_seconds(text)


@pytest.mark.parametrize("text", ["466", "x/3d", "4.5/3d", "3/0s", "3/1d..2d"])
def test_what_is_no_count_over_time_is_an_error(text: str) -> None:
    with pytest.raises(UsageError, match="expected"):
        parse_count_over_time(text)


def test_the_width_of_a_sum_comes_from_its_parts_by_their_variance() -> None:
    inputs = {"a": ValueRange(0, 1), "b": ValueRange(0, 2), "c": ValueRange(5, 5)}
    draws, answers = evaluate_draws(inputs, lambda x: {"sum": x["a"] + x["b"] + x["c"]})
    explained = shares_of_width(draws, answers["sum"])
    assert list(explained) == ["b", "a"]
    assert explained["b"] == pytest.approx(0.8, abs=0.03)  # variances 4/12 and 1/12
    assert explained["a"] == pytest.approx(0.2, abs=0.03)


def test_the_interval_of_a_range_leaves_a_twentieth_on_each_side() -> None:
    _, answers = evaluate_draws({"x": ValueRange(1, 100)}, lambda x: {"x": x["x"]})
    low, high = find_interval(answers["x"])
    assert math.log(low) / math.log(100) == pytest.approx(0.05, abs=0.005)
    assert math.log(high) / math.log(100) == pytest.approx(0.95, abs=0.005)


def test_a_counted_rate_is_as_uncertain_as_its_count() -> None:
    inputs = {"rate": ObservedCount(100, 50.0)}
    _, answers = evaluate_draws(inputs, lambda x: {"rate": x["rate"]})
    low, high = find_interval(answers["rate"])
    assert (low, high) == pytest.approx((2 * 0.84, 2 * 1.17), rel=0.03)  # Poisson: ±1.645 · 10 %
