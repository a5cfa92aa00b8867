"""One owner of all colours: each meaning has its own, in every face, light and dark."""

import re
from itertools import combinations

import pytest

from htk.analyses import ANALYSES, find_analysis
from htk.answers.ask import ask_trace
from htk.answers.output.figure_colours import classes_of, colour_of, dark_of_light, marker_of
from htk.answers.output.figures import draw_figure
from htk.answers.output.tokens import DARK, LIGHT, SERIES, SERIES_DARK
from htk.base.errors import HtkError
from htk.traces.trace.opening import SAMPLE, OpenOptions, open_trace
from tests.conftest import ROOT

THEMES = {"light": (LIGHT, SERIES), "dark": (DARK, SERIES_DARK)}
# Of data; those of the page's frame stand in no picture.
DATA = ("compute", "comm", "memory", "launch", "cpu", "gpu", "idle", "undetermined", "alert",
        "good")  # fmt: skip
FACES = (
    "dashboard",
    "htk/answers/output",
    "htk/faces/report",
    "htk/faces/notebook",
    "htk/traces/timeline",
    "analyses",
)
_HEX = re.compile(r"""(?<![&\w])#(?:[0-9a-fA-F]{6}|[0-9a-fA-F]{3})\b(?!["']\s*(?:\)|\]):)""")
# What else may name a colour, and why.
ALLOWED = {
    "htk/answers/output/tokens.py": "the owner",
    "dashboard/assets/timeline_base.js": "of the canvas; held to the owner below",
    "dashboard/assets/timeline.css": "before the script has set them",
    "dashboard/page.py": "the wheel that turns on both themes",
    "dashboard/plots.py": "white or near-black words on a box",
    "htk/faces/report/assets/report.css": "paper, when printed",
    "htk/faces/report/assets/report.js": "white words on a box",
    "htk/traces/timeline/page.py": "the page around the timeline",
}


def lab(colour: str) -> tuple[float, float, float]:
    """CIELAB under D65."""
    parts = [int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)]
    r, g, b = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    x = (0.4124 * r + 0.3576 * g + 0.1805 * b) / 0.95047
    y = 0.2126 * r + 0.7152 * g + 0.0722 * b
    z = (0.0193 * r + 0.1192 * g + 0.9505 * b) / 1.08883
    fx, fy, fz = (t ** (1 / 3) if t > 0.008856 else 7.787 * t + 16 / 116 for t in (x, y, z))
    return 116 * fy - 16, 500 * (fx - fy), 200 * (fy - fz)


def contrast(one: str, other: str) -> float:
    """As WCAG has it: (L1 + 0.05) / (L2 + 0.05)."""
    light = [((lab(c)[0] + 16) / 116) ** 3 for c in (one, other)]
    return (max(light) + 0.05) / (min(light) + 0.05)


@pytest.mark.parametrize("theme", THEMES)
def test_no_two_meanings_look_alike(theme: str) -> None:
    """13 of CIELAB's units: side by side in a legend nobody takes one for the other."""
    own, series = THEMES[theme]
    colours = {name: own[name] for name in DATA} | {f"series {k}": c for k, c in enumerate(series)}
    near = {
        (a, b): sum((p - q) ** 2 for p, q in zip(lab(x), lab(y), strict=True)) ** 0.5
        for (a, x), (b, y) in combinations(colours.items(), 2)
    }
    assert {pair: round(d, 1) for pair, d in near.items() if d < 13} == {}


@pytest.mark.parametrize("theme", THEMES)
def test_words_are_readable(theme: str) -> None:
    own, _ = THEMES[theme]
    words = ("ink", "mute", "accent", "alert", "good")
    grounds = ("panel", "ground")
    poor = {(w, g): contrast(own[w], own[g]) for w in words for g in grounds}
    assert {pair: c for pair, c in poor.items() if c < 4.5} == {}


def test_both_themes_name_the_same_colours() -> None:
    assert LIGHT.keys() == DARK.keys() and len(SERIES) == len(SERIES_DARK)


def test_names_have_the_colour_of_what_they_mean() -> None:
    """Work of a GPU of any kind is not compute, a host's wait not communication."""
    meanings = {
        "compute": "compute", "kernel speed": "compute", "exposed communication": "comm",
        "wait": "comm", "exposed transfer": "comm", "exposed undetermined": "undetermined",
        "device busy": "gpu", "device self": "gpu", "cpu self": "cpu", "call": "launch",
        "bubble": "idle", "gap": "idle", "gpu idle caused": "idle", "cost to others": "alert",
        "saved": "good", "overlap": "overlapped", "compute+comm": "overlapped",
        "exposed memory": "memory", "copies": "memory",
    }  # fmt: skip
    for own in (LIGHT, DARK):
        assert {name: colour_of(name, own) for name in meanings} == {
            name: own[meaning] for name, meaning in meanings.items()
        }


def test_a_name_keeps_its_colour_whatever_stands_beside_it() -> None:
    for name in ("host data loading", "stream event wait", "all_reduce", "gemm", "rank 3", "HtoD"):
        assert len({colour_of(name, LIGHT, number) for number in range(9)}) == 1
    assert [colour_of(f"rank {k}", LIGHT) for k in range(8)] == list(SERIES)
    assert len({colour_of(f"rank {k}", LIGHT) for k in range(16)}) == 16


def test_hatches() -> None:
    """Waiting for other ranks is striped, the unrecorded hatched with an outline, nothing else."""
    striped = {
        name
        for name in ("exposed wait", "stream event wait", "idle: waiting for an event", "transfer")
        if "pattern" in marker_of(name, "#000000", LIGHT)
    }
    assert striped == {"exposed wait"}
    lost = marker_of("unrecorded", "#000000", LIGHT)
    assert lost["color"] == LIGHT["unrecorded"] and lost["line"]["color"] == LIGHT["idle"]


def test_causes_of_idle_time_are_told_apart_in_one_bar() -> None:
    shares = ["compute", "exposed wait", "idle: data loading", "idle: blocking calls", "unrecorded"]
    assert classes_of(shares) == ["k-compute", "k-wait", "k-idle", "k-idle k-pale-1",
                                  "k-unrecorded"]  # fmt: skip


def test_a_light_figure_is_recoloured_to_the_dark_one() -> None:
    """Colour by colour, over every picture of the sample: a report holds each but once."""
    trace, in_dark, compared = open_trace(SAMPLE, OpenOptions(cache=False)), dark_of_light(), 0
    for name in ANALYSES:
        analysis = find_analysis(name)
        try:
            table = ask_trace(trace, name).table if analysis.chart else None
        except HtkError:
            continue
        if table is None or analysis.chart is None or not len(table):
            continue
        light, dark = (
            _HEX.findall(draw_figure(table, analysis.chart, dark=d).to_json())
            for d in (False, True)
        )
        wrong = {
            (a, b) for a, b in zip(light, dark, strict=True)
            if in_dark.get(a.upper(), a.upper()) != b.upper()
        }  # fmt: skip
        assert not wrong, name
        compared += 1
    assert compared > 30


def test_no_colour_is_written_elsewhere() -> None:
    found = {
        str(path.relative_to(ROOT)): sorted(set(_HEX.findall(path.read_text())))
        for folder in FACES
        for kind in ("*.py", "*.css", "*.js")
        for path in (ROOT / folder).rglob(kind)
        if "node_modules" not in path.parts and _HEX.search(path.read_text())
    }
    assert {name: colours for name, colours in found.items() if name not in ALLOWED} == {}
    assert ALLOWED.keys() <= found.keys(), "no longer needed"


@pytest.mark.parametrize("theme", THEMES)
def test_the_canvas_of_the_timeline_has_the_same_colours(theme: str) -> None:
    """The timeline's script stands alone in notebooks and files, so it has a copy."""
    own, _ = THEMES[theme]
    text = (ROOT / "dashboard/assets/timeline_base.js").read_text()
    block = re.search(rf"T\.{theme.upper()} = {{(.*?)\n  }};", text, re.S)
    assert block
    fills = {name: colours for name, colours in re.findall(r"(\w+): \[([^\]]*)\]", block[1])}
    kinds = ("compute", "comm", "memory", "cpu", "launch")
    assert {name: fills[name].strip('"') for name in kinds} == {name: own[name] for name in kinds}
    assert own["idle"] in fills["idle"]
    plain = dict(re.findall(r'(\w+): "(#\w{6})"', block[1]))
    frame = {"ink": "ink", "soft": "mute", "paper": "panel", "line": "line", "accent": "accent",
             "unrecorded": "unrecorded", "hatch": "idle"}  # fmt: skip
    assert {name: plain[name] for name in frame} == {name: own[to] for name, to in frame.items()}
