"""Colours and fills of a figure's marks, by what their names mean."""

import re
from collections.abc import Sequence
from typing import Any

from htk.answers.output.tokens import DARK, LIGHT, PALEST, blend_colour, palette_of, series_colour
from htk.base.mappings import Fields


def heat_scale(*, dark: bool) -> list[list[Any]]:
    """Return a scale from the paper to the accent: more is stronger, in light and in dark."""
    own = palette_of(dark)
    weak = blend_colour(own["accent"], own["panel"], 0.08)
    strong = blend_colour(own["accent"], own["ink"], 0.75)
    return [[0, weak], [0.6, own["accent"]], [1, strong]]


# What a word of a name means, as the palettes call it; the first that is in it decides.
_MEANINGS = (
    ("+", "overlapped"),  # several kinds at once
    ("idle", "idle"),
    ("between", "idle"),
    ("causes", "idle"),
    ("bubble", "idle"),
    ("gap", "idle"),
    ("overlap", "overlapped"),
    ("shared", "overlapped"),
    ("unrecorded", "unrecorded"),
    ("undetermined", "undetermined"),
    ("cost to others", "alert"),
    ("saved", "good"),
    ("gain", "good"),
    ("comm", "comm"),
    ("wait", "comm"),
    ("transfer", "comm"),
    ("memory", "memory"),
    ("copy", "memory"),
    ("copies", "memory"),
    ("compute", "compute"),
    ("kernel", "compute"),
    ("mfu", "compute"),
    ("launch", "launch"),
    ("call", "launch"),
    ("cpu", "cpu"),
    ("host", "cpu"),
    ("python", "cpu"),
    ("gpu", "gpu"),
    ("device", "gpu"),
    ("work", "gpu"),
    ("exposed", "comm"),
    ("total", "gpu"),
    ("other", "gpu"),
)
# Names of things that stand beside one another, in the order of the series' colours: each keeps its
# own whatever stands beside it, in every picture of every face.
_KEPT = (
    # Causes of idle time, as idle_breakdown has them.
    ("host data loading", "launch latency", "host python", "host operator", "host sync",
     "stream event wait", "host allocation", "host compilation", "host start up",
     "host lazy loading", "host gc", "profiler overhead", "unrecorded gpu work suspected",
     "back to back", "unknown", "between queued kernels", "inside cuda graph",
     "host runtime call"),
    # Collectives and messages.
    ("all_gather", "reduce_scatter", "all_reduce", "all_to_all", "broadcast", "reduce", "send",
     "recv", "gather", "scatter", "send_recv", "barrier"),
    ("send imbalance", "receive imbalance"),
    # Families of kernels.
    ("gemm", "attention", "elementwise", "optimizer", "softmax", "norm", "reduction", "embedding",
     "convolution", "moe", "loss", "recurrent", "sort", "random"),
    ("HtoD", "DtoH", "DtoD", "PtoP"),
    ("eager", "cuda graph", "compiled", "outside operators"),
    ("not short", "short"),
    ("recorded", "replayed", "ideal"),
    # What a GPU holds.
    ("parameters", "gradients", "optimizer state", "activations", "logits"),
)  # fmt: skip
_PLACE_OF = {name: place for names in _KEPT for place, name in enumerate(names)}
_PLACE_OF["receive"] = _PLACE_OF["recv"]
_RANK = re.compile(r"^rank (\d+)$")
_BLENDS = (1.0, 0.7, 0.5, 0.4, 0.25, 0.22)  # shares of a colour that marks have
_SHADE = 0.3  # of the paper, in each further series of one meaning
_LEAST_COLOUR = 0.25


def meaning_of(name: str) -> str | None:
    """Return what a column or value is about, as the palettes name it; None: nothing of its own."""
    return next((meaning for word, meaning in _MEANINGS if word in name), None)


def place_of(name: str) -> int | None:
    """Return the place of a name that keeps its colour, among those of the series."""
    rank = _RANK.match(name)
    return int(rank[1]) if rank else _PLACE_OF.get(name)


def class_of(name: str) -> str:
    """Return the style sheets' class of a share of the time: waiting is striped."""
    return f"k-{'wait' if is_waiting(name) else meaning_of(name) or 'gpu'}"


def classes_of(names: Sequence[str]) -> list[str]:
    """Return a class for each share of one bar: further causes of idle time are paler."""
    classes: list[str] = []
    idle = 0
    for name in names:
        own = class_of(name)
        classes.append(f"{own} k-pale-{min(idle, PALEST)}" if own == "k-idle" and idle else own)
        idle += own == "k-idle"
    return classes


def colour_of(name: str, palette: dict[str, str], number: int = 0) -> str:
    """Return the colour that a name keeps, that of what it means, else one of a fixed order."""
    dark = palette is DARK
    number_kept = place_of(name)
    if number_kept is not None:
        return series_colour(number_kept, dark=dark)
    meaning = meaning_of(name)
    return palette[meaning] if meaning else series_colour(number, dark=dark)


def marker_of(name: str, colour: str, palette: dict[str, str], again: int = 0) -> Fields:
    """Return a bar's fill: waiting is striped, the unrecorded a hatched outline, nothing else.

    `again` counts series of the same colour before it: each is paler.
    """
    if "unrecorded" in name:
        line = {"width": 1, "color": palette["idle"]}
        return {"color": palette["unrecorded"], "pattern": build_hatch(palette), "line": line}
    keep = max(1 - _SHADE * again, _LEAST_COLOUR)
    marker: Fields = {
        "color": blend_colour(colour, palette["panel"], keep),
        "line": {"width": 0},
    }
    if is_waiting(name):
        marker["pattern"] = {"shape": "/", "fgcolor": palette["wait"], "size": 7, "solidity": 0.45}
    return marker


def build_hatch(palette: dict[str, str]) -> Fields:
    """Return the pattern of what was not recorded."""
    return {"shape": "/", "fgcolor": palette["idle"], "size": 6, "solidity": 0.3}


def is_waiting(name: str) -> bool:
    """Return whether it is time in which communication moves nothing."""
    other = ("undetermined", "idle", "event wait")
    return "wait" in name and not any(word in name for word in other)


def dark_of_light() -> dict[str, str]:
    """Return the dark colour for each that figures have in light: a report holds them but once."""
    pairs = [(LIGHT[name], DARK[name]) for name in LIGHT]
    pairs += [(series_colour(k, dark=False), series_colour(k, dark=True)) for k in range(16)]
    pairs += [
        (blend_colour(light, LIGHT["panel"], share), blend_colour(dark, DARK["panel"], share))
        for light, dark in list(pairs)
        for share in _BLENDS
    ]
    scales = zip(heat_scale(dark=False), heat_scale(dark=True), strict=True)
    pairs += [(light, dark) for (_, light), (_, dark) in scales]
    return {light.upper(): dark.upper() for light, dark in reversed(pairs)}
