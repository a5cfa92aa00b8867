"""How values are written, and what is said of those that are not."""

import pytest

from htk.base.errors import UsageError
from htk.whatif.edit_arguments import (
    parse_factor,
    parse_pairs,
    parse_ratio,
    positive_integer,
    switched_on,
)


@pytest.mark.parametrize(
    ("text", "number"), [("2x", 2), ("2", 2), (" 0.5x ", 0.5), (".25x", 0.25), ("1.75", 1.75)]
)
def test_factors(text: str, number: float) -> None:
    assert parse_factor(text, "batch") == number


@pytest.mark.parametrize("text", ["", "x", "-2x", "0", "0.0x", "2xx", "2 x", "1e3", "nan"])
def test_what_is_no_factor(text: str) -> None:
    with pytest.raises(UsageError, match=r"^batch .*a positive factor such as 2x"):
        parse_factor(text, "batch")


def test_pairs_by_name() -> None:
    assert parse_pairs("a=1, b = 2x", "network", ("a", "b")) == {"a": "1", "b": "2x"}
    for text in ("a", "c=1", "a=1,", "a=1;b=2"[:1]):
        with pytest.raises(UsageError, match="one of a=…, b=…"):
            parse_pairs(text, "network", ("a", "b"))


def test_positive_whole_numbers() -> None:
    assert positive_integer("1", "tp") == 1 and positive_integer(" 16 ", "tp") == 16
    for text in ("0", "-1", "1.5", "two", ""):
        with pytest.raises(UsageError, match="positive whole number"):
            positive_integer(text, "tp")


def test_a_value_is_taken_against_what_is_now() -> None:
    assert parse_ratio("3x", None, "batch", "not known") == 3
    assert parse_ratio("12", 4, "batch", "not known") == 3
    assert parse_ratio("2", 8.0, "batch", "not known") == 0.25
    for now in (None, 0):
        with pytest.raises(UsageError, match="batch '12': not known; give a factor"):
            parse_ratio("12", now, "batch", "not known")


def test_switches_can_only_be_on() -> None:
    switched_on("on", "overlap")
    with pytest.raises(UsageError, match="it can only be on"):
        switched_on("off", "overlap")
