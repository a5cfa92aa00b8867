"""The frame of every figure: quiet lines, marks that lie flat, room for long names."""

from collections.abc import Sequence
from functools import cache
from typing import Any

from htk.answers.output.tokens import FONT, palette_of
from htk.base.mappings import Fields

# What plotly's own template says of pictures that none of ours is, which it would send with each.
_OTHER_SPACES = ("polar", "ternary", "scene", "geo", "mapbox")


def frame_figure(data: Sequence[Any], *, dark: bool, **layout: Any) -> Any:
    """Return traces as a figure in these colours; `layout` stands in place of the usual one.

    The layout is given at once, with the template that these traces read: plotly takes twenty times
    as long to change one that is there, which is most of what a figure costs.
    """
    import plotly.graph_objects as go

    traces = list(data)
    template = _build_template(dark, frozenset(trace.type for trace in traces))
    return go.Figure(traces, {"template": template, **_build_layout(dark), **layout})


@cache
def _build_template(dark: bool, types: frozenset[str]) -> Fields:
    """Return plotly's template as far as traces of these types look at it, with our own axes."""
    import plotly.io as pio

    usual = pio.templates["plotly"].to_plotly_json()
    layout = {name: value for name, value in usual["layout"].items() if name not in _OTHER_SPACES}
    for name, axis in _build_axes(dark).items():
        layout[name] = {**layout[name], **axis}
    data = {kind: like for kind, like in usual["data"].items() if kind in types}
    return {"layout": layout, "data": data}


def _build_axes(dark: bool) -> Fields:
    own = palette_of(dark)
    axis = {
        "gridcolor": own["line"],
        "zerolinecolor": own["idle"],
        "linecolor": own["line"],
        "tickangle": 0,
        "automargin": True,
        "title": {"font": {"size": 12, "color": own["mute"]}, "standoff": 8},
        "tickfont": {"size": 12, "color": own["mute"]},
    }
    apart = {"ticks": "outside", "ticklen": 5, "tickcolor": "rgba(0,0,0,0)"}  # names off the bars
    return {"xaxis": axis, "yaxis": {**axis, **apart}}


def _build_layout(dark: bool) -> Fields:
    own = palette_of(dark)
    return {
        "margin": {"l": 56, "r": 16, "t": 30, "b": 40},
        "legend": {
            "orientation": "h",
            "traceorder": "normal",
            "y": 1.02,
            "yanchor": "bottom",
            "x": 0,
            "xanchor": "left",
        },
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"family": FONT, "size": 12.5, "color": own["ink"]},
        "hoverlabel": {
            "align": "left",
            "bgcolor": own["ink"],
            "bordercolor": own["ink"],
            "font": {"family": FONT, "size": 12, "color": own["panel"]},
        },
    }
