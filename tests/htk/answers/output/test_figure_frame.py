"""Figures are framed at once as they are when plotly's usual figure is changed."""

from typing import Any

import plotly.graph_objects as go
import pytest

from htk.answers.output.figure_frame import frame_figure
from htk.answers.output.tokens import DARK, LIGHT

BARS = go.Bar(x=["a", "b"], y=[1, 2], name="bars")
LINE = go.Scatter(x=["a", "b"], y=[2, 1], mode="lines")
CELLS = go.Heatmap(x=["a"], y=["b"], z=[[3]])


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("traces", [[BARS], [BARS, LINE], [CELLS], []])
def test_nothing_that_the_traces_look_at_is_missing(dark: bool, traces: list[Any]) -> None:
    made = frame_figure(traces, dark=dark, barmode="stack", xaxis={"title": "ms"}, margin={"l": 8})
    usual = go.Figure(traces).update_layout(barmode="stack", xaxis={"title": "ms"})
    usual.layout.margin = {"l": 8}
    shown, expected = made.to_plotly_json(), usual.to_plotly_json()
    assert shown["data"] == expected["data"]
    theirs, ours = (fig["layout"].pop("template") for fig in (expected, shown))
    assert {k: shown["layout"][k] for k in expected["layout"]} == expected["layout"]
    looked_at = {trace.type for trace in traces} & set(theirs["data"])
    assert ours.get("data", {}) == {kind: theirs["data"][kind] for kind in looked_at}
    spaces = {"polar", "ternary", "scene", "geo", "mapbox"}  # of maps and of three dimensions
    assert set(theirs["layout"]) - set(ours["layout"]) == spaces & set(theirs["layout"])
    axes = {"xaxis", "yaxis"}
    for name in set(ours["layout"]) - axes:
        assert ours["layout"][name] == theirs["layout"][name]
    for axis in axes:
        own = ours["layout"][axis]
        assert own["gridcolor"] == (DARK if dark else LIGHT)["line"]
        assert own["zerolinewidth"] == 2 and own["title"]["standoff"] == 8


def test_what_is_given_stands_in_place_of_the_usual() -> None:
    made = frame_figure([BARS], dark=False, legend={"x": 1})
    assert made.layout.legend.to_plotly_json() == {"x": 1}
    assert made.layout.margin.t == 30
    with pytest.raises(ValueError, match="brmode"):
        frame_figure([BARS], dark=False, brmode="stack")
