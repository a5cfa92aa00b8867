"""What ran when: all ranks, threads and streams in lanes, drawn by the canvas component."""

from typing import Any

import dash_mantine_components as dmc
from dash import html

from htk.dashboard.page import Page, Visit


def layout(_visit: Visit) -> Any:
    return html.Div(
        [
            dmc.Title("What ran when?", order=2),
            html.P("W/S zoom, A/D pan, 0 all, / search; drag to pan, click an event for details."),
            html.Div(id="timeline", className="timeline"),
            html.Pre(id="event", className="event"),
        ]
    )


PAGE = Page("timeline", "Timeline", 1, layout)
