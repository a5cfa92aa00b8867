"""Colours and fills of a figure's marks, by what their names mean."""

from typing import Any

from htk.output.tokens import DARK, LIGHT, series_colour


def heat_scale(*, dark: bool) -> list[list[Any]]:
    """Return a scale from the paper to the accent: more is stronger, in light and in dark."""
    own = DARK if dark else LIGHT
    weak = blended(own["accent"], own["panel"], 0.08)
    strong = blended(own["accent"], own["ink"], 0.75)
    return [[0, weak], [0.6, own["accent"]], [1, strong]]


_MEANINGS = (
    ("idle", "idle"),
    ("overlap", "overlapped"),
    ("shared", "overlapped"),
    ("unrecorded", "unrecorded"),
    ("undetermined", "undetermined"),
    ("comm", "comm"),
    ("wait", "comm"),
    ("transfer", "comm"),
    ("memory", "memory"),
    ("copy", "memory"),
    ("copies", "memory"),
    ("compute", "compute"),
    ("kernel", "compute"),
    ("launch", "launch"),
    ("cpu", "cpu"),
    ("host", "cpu"),
    ("gpu", "compute"),
    ("exposed", "comm"),
)
_SHADE = 0.3  # of the paper, in each further series of one meaning
_LEAST_COLOUR = 0.25


def meaning_of(name: str) -> str | None:
    """Return what a column or value is about, as the palettes name it; None: nothing of its own."""
    return next((meaning for word, meaning in _MEANINGS if word in name), None)


def colour_of(name: str, palette: dict[str, str], number: int = 0) -> str:
    """Return the colour of what a column or value means, else one of a fixed order."""
    meaning = meaning_of(name)
    return palette[meaning] if meaning else series_colour(number, dark=palette is DARK)


def marker_of(name: str, colour: str, palette: dict[str, str], again: int = 0) -> dict[str, Any]:
    """Return a bar's fill: waiting is striped, the unrecorded a hatched outline, nothing else.

    `again` counts series of the same colour before it: each is paler.
    """
    if "unrecorded" in name:
        pattern = {"shape": "/", "fgcolor": palette["idle"], "size": 7, "solidity": 0.15}
        line = {"width": 1, "color": palette["idle"]}
        return {"color": palette["unrecorded"], "pattern": pattern, "line": line}
    keep = max(1 - _SHADE * again, _LEAST_COLOUR)
    marker: dict[str, Any] = {
        "color": blended(colour, palette["panel"], keep),
        "line": {"width": 0},
    }
    if is_waiting(name):
        marker["pattern"] = {"shape": "/", "fgcolor": palette["wait"], "size": 7, "solidity": 0.45}
    return marker


def is_waiting(name: str) -> bool:
    """Return whether it is time in which communication moves nothing."""
    return "wait" in name and "undetermined" not in name and "idle" not in name


def blended(colour: str, paper: str, share: float) -> str:
    """Return so much of a colour on a paper."""
    pairs = [(int(colour[k : k + 2], 16), int(paper[k : k + 2], 16)) for k in (1, 3, 5)]
    return "#" + "".join(f"{round(c * share + p * (1 - share)):02X}" for c, p in pairs)
