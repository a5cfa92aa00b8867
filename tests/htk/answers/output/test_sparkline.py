"""A line of text for numbers."""

from htk.answers.output.sparkline import sparkline


def test_a_bar_for_each_value_from_the_least_to_the_largest() -> None:
    assert sparkline([0, 7, 3, 1]) == "▁█▄▂"
    assert sparkline([5, 5]) == "▄▄" and sparkline([]) == ""
