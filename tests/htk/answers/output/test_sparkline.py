"""A line of text for numbers."""

from htk.answers.output.sparkline import draw_sparkline


def test_a_bar_for_each_value_from_the_least_to_the_largest() -> None:
    assert draw_sparkline([0, 7, 3, 1]) == "▁█▄▂"
    assert draw_sparkline([5, 5]) == "▄▄" and draw_sparkline([]) == ""
