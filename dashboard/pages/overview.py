"""The first screen: where the time goes for each rank, and what costs most."""

from typing import Any

import dash_mantine_components as dmc
from dash import html

from htk.dashboard.page import Page, Visit, part
from htk.dashboard.parts import answered, section


def layout(_visit: Visit) -> Any:
    return html.Div([dmc.Title("Where did the time go?", order=2), part("", "time", 400)])


def _time(visit: Visit) -> Any:
    return section("For each rank", *answered(visit, "time_breakdown"))


PAGE = Page("", "Overview", 0, layout, {"time": _time})
