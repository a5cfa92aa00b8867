"""Memory over time, what holds it at its peak, and where that is in the timeline."""

from typing import Any

import pyarrow.compute as pc
from dash import dcc, html

from htk.answers.output.figures import draw_figure
from htk.base.core.humanize import format_bytes, format_duration
from htk.dashboard import headlines
from htk.dashboard.components import (
    add_heading,
    draw_answer,
    draw_coverage,
    draw_empty_panel,
    draw_hint,
    draw_plot,
    draw_select,
    draw_tile,
)
from htk.dashboard.example_ranges import find_worst_instance, link_to_timeline
from htk.dashboard.grids import draw_grid
from htk.dashboard.page import Page, Visit, draw_panel

_OVER_TIME = "In use over time"
_SLICES = 200  # of a curve
_QUESTION = "How much memory is in use, and by what?"
_DEFAULTS = {"by": "device", "holders": "holder"}


def layout(visit: Visit) -> Any:
    visit.trace.need("memory")
    by, holders = (visit.option(name, value) for name, value in _DEFAULTS.items())
    return html.Div(
        [
            headlines.draw_heading("memory", _QUESTION),
            *headlines.not_named(visit),
            draw_panel("memory", "tiles", 90),
            html.Div(
                [
                    draw_select("by", ["device", "category"], by, label="over time by"),
                    draw_select("holders", ["holder", "category"], holders, label="at the peak by"),
                ],
                className="controls",
            ),
            draw_panel("memory", "line", 420),
            draw_panel("memory", "peaks", 420),
        ]
    )


def _draw_tiles(visit: Visit) -> Any:
    rows = visit.ask("memory_peaks").to_pylist()
    if not rows:
        return draw_empty_panel("No allocations under the filters that are set.")
    top = max(rows, key=lambda r: r["peak_bytes"])
    origin = visit.trace.origin_ns
    when = f"rank {top['rank']}, at {format_duration(top['peak_ns'] - origin)}"
    tiles = [draw_tile("highest in use", format_bytes(top["peak_bytes"]), when)]
    if top["reserved_bytes_max"]:
        unused = f"{top['unused_pct']:.1f} % of it unused at the peak"
        tiles.append(draw_tile("most reserved", format_bytes(top["reserved_bytes_max"]), unused))
    failed = sum(r["failed"] or 0 for r in {r["rank"]: r for r in rows}.values())
    tiles.append(draw_tile("failed allocations", f"{failed:,}", "out of memory, as recorded"))
    seen = find_worst_instance(visit, "memory_peaks")
    body: list[Any] = [html.Div(tiles, className="tiles")]
    if seen is not None:
        there = f"timeline: {seen.what}"
        body.append(dcc.Link(there, href=link_to_timeline(visit, seen), className="export"))
    return html.Div(body)


@add_heading(_OVER_TIME)
def _draw_line(visit: Visit) -> list[Any]:
    by = visit.option("by", _DEFAULTS["by"])
    result = visit.ask("memory_timeline", by=by, slices=_SLICES)
    if not len(result):
        return [draw_empty_panel("No allocations under the filters that are set.")]
    chart = result.analysis.chart
    assert chart is not None
    fig = draw_figure(result.table, chart, dark=visit.dark)
    before = (pc.min(result.table["time_ns"]).as_py() - visit.trace.origin_ns) / 1e6
    for trace in fig.data:
        trace.x = [None if x is None else x + before for x in trace.x]
    fig.update_layout(dragmode="select", selectdirection="h")
    fig.update_xaxes(title="ms since the recording began")
    note = (
        "Ranks that do the same are one line, in a band from the lowest to the highest of them. "
        "Drag across a range to look at it alone, on every page."
    )
    plot_id = {"type": "brush", "name": "memory"}
    drawn = draw_plot(fig, _OVER_TIME, plot_id, 420)
    return [*draw_hint(note), drawn, *draw_coverage(result)[1:]]


@add_heading("What holds it at the peak?")
def _draw_peaks(visit: Visit) -> list[Any]:
    by = visit.option("holders", _DEFAULTS["holders"])
    result = visit.ask("memory_peaks", by=by)
    shown = draw_answer(result, dark=visit.dark)
    return [shown, draw_grid(result, visit, {"by": by}), *draw_coverage(result)]


PAGE = Page(
    "memory",
    "Memory",
    13,
    layout,
    {
        headlines.PART: headlines.fill_heading(_QUESTION, headlines.of_memory),
        "tiles": _draw_tiles,
        "line": _draw_line,
        "peaks": _draw_peaks,
    },
    _DEFAULTS,
    group="Dig into",
    needs=("memory",),
)
