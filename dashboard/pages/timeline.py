"""What ran when: all ranks, threads and streams in lanes, drawn by the canvas component."""

from typing import Any

from dash import html

from htk.base.mappings import Fields
from htk.dashboard import headlines
from htk.dashboard.page import Page, Visit

_QUESTION = "What ran when?"


def layout(visit: Visit) -> Any:
    chosen = visit.view.selection
    facts: Fields = {
        "data-query": visit.view.search() or "?",
        "data-from": "" if chosen.from_ns is None else str(chosen.from_ns),
        "data-to": "" if chosen.to_ns is None else str(chosen.to_ns),
        "data-name": visit.view.filters.get("name", ""),
        "data-steps": ",".join(map(str, sorted(chosen.steps or ()))),
    }
    canvas = html.Div(id="timeline", className="timeline", **facts)
    # Another query is another timeline: nothing of the old one is kept.
    head = headlines.draw_heading("timeline", _QUESTION)
    return html.Div([head, html.Div(canvas, key=facts["data-query"])])


PAGE = Page(
    "timeline",
    "Timeline",
    1,
    layout,
    {headlines.PART: headlines.fill_heading(_QUESTION, headlines.of_timeline)},
    needs=(
        "kernels",
        "cpu_ops",
        "annotations",
        "launches",
        "collectives",
    ),
)
