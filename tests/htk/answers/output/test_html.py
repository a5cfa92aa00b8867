"""Pieces of HTML that stand alone, in notebooks that are not trusted too."""

import re
from typing import Any

import pytest

from htk.answers.ask import ask_trace
from htk.answers.output.html import render_table, share_bar, wrap_in_card
from htk.answers.output.render import to_text
from htk.answers.output.tokens import DARK, LIGHT
from htk.base.core.humanize import format_duration
from htk.traces.trace.opening import open_trace
from tests.conftest import ROOT, new_tab

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


@pytest.mark.parametrize(
    ("system", "body", "dark"),
    [
        ("light", "", False),
        ("dark", "", True),
        ("light", 'data-jp-theme-light="false"', True),
        ("dark", 'data-jp-theme-light="true"', False),
        ("light", 'class="vscode-dark"', True),
        ("dark", 'class="vscode-light"', False),
    ],
)
def test_a_card_has_the_colours_of_its_notebook(
    browser: Any, system: str, body: str, dark: bool
) -> None:
    """A notebook that says its theme has the last word, else the reader's system."""
    page = new_tab(browser, color_scheme=system)
    page.set_content(
        f"<!doctype html><body {body}>{wrap_in_card(share_bar([(n, 9.0) for n in NAMES]))}"
    )
    ground, ink, *shares = page.evaluate(
        """() => {
          const own = getComputedStyle(document.querySelector('.htk-card'));
          const bars = [...document.querySelectorAll('.htk-card span[title]')];
          return [own.backgroundColor, own.color,
            ...bars.map(bar => getComputedStyle(bar).backgroundColor)];
        }"""
    )
    page.close()
    palette = DARK if dark else LIGHT
    assert (ground, ink) == (rgb(palette["panel"]), rgb(palette["ink"]))
    assert shares[0] == rgb(palette["compute"]) and shares[2] == rgb(palette["comm"])


def rgb(colour: str) -> str:
    """Return a colour as browsers tell it."""
    return f"rgb({', '.join(str(int(colour[k : k + 2], 16)) for k in (1, 3, 5))})"


def test_a_time_and_its_share_stand_apart() -> None:
    """Each with its unit, and no unit of the share in the heading of both."""
    answer = ask_trace(
        open_trace(ROOT / "sample_traces/kineto/rank*.pt.trace.json"), "time_breakdown"
    )
    shown, first = render_table(answer), answer.to_pylist()[0]
    time, share = format_duration(first["busy_ns"]), f"{first['busy_pct']:.1f} %"
    assert f'>{time}<small class="share">{share}</small></td>' in shown
    assert ">busy</th>" in shown and ">busy %</th>" not in shown
    assert "busy %" in to_text(answer, "table")
