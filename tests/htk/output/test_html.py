"""Pieces of HTML that stand alone, in notebooks that are not trusted too."""

import re

import pytest

from htk.output.html import share_bar

NAMES = [
    "compute",
    "exposed wait for other ranks",
    "exposed transfer",
    "exposed communication, undetermined",
    "idle: data loading",
    "between kernels",
    "unrecorded GPU work suspected",
]


@pytest.mark.parametrize("name", NAMES)
def test_each_share_has_a_colour_that_a_notebook_keeps(name: str) -> None:
    """JupyterLab takes gradients and functions of colours out of saved answers."""
    bar, legend = re.findall(r'style="([^"]*background[^"]*)"', share_bar([(name, 100.0)]))
    for style in (bar, legend):
        assert re.search(r"background-color:#[0-9A-Fa-f]{6}(;|$)", style)


def test_waiting_and_transfer_look_different_without_stripes() -> None:
    bar = share_bar([("exposed wait for other ranks", 50.0), ("exposed transfer", 50.0)])
    colours = re.findall(r"background-color:(#[0-9A-Fa-f]{6})", bar)
    assert len(set(colours)) == 2 and colours[:2] == colours[2:]
    assert bar.count("repeating-linear-gradient") == 2
