"""Memory over time, what holds it at its peak, and where that is in the timeline."""

from typing import Any

import pyarrow.compute as pc
from dash import dcc, html

from htk.answers.output.figures import figure
from htk.base.core.humanize import format_bytes, format_duration
from htk.dashboard import headlines
from htk.dashboard.components import coverage, empty, headed, hint, picture, plot, select, tile
from htk.dashboard.example_ranges import instance, link
from htk.dashboard.grids import grid
from htk.dashboard.page import Page, Visit, panel

_OVER_TIME = "In use over time"
_SLICES = 200  # of a curve
_QUESTION = "How much memory is in use, and by what?"
_DEFAULTS = {"by": "device", "holders": "holder"}


def layout(visit: Visit) -> Any:
    visit.trace.need("memory")
    by, holders = (visit.option(name, value) for name, value in _DEFAULTS.items())
    return html.Div(
        [
            headlines.heading("memory", _QUESTION),
            *headlines.not_named(visit),
            panel("memory", "tiles", 90),
            html.Div(
                [
                    select("by", ["device", "category"], by, label="over time by"),
                    select("holders", ["holder", "category"], holders, label="at the peak by"),
                ],
                className="controls",
            ),
            panel("memory", "line", 420),
            panel("memory", "peaks", 420),
        ]
    )


def _tiles(visit: Visit) -> Any:
    rows = visit.ask("memory_peaks").to_pylist()
    if not rows:
        return empty("No allocations under the filters that are set.")
    top = max(rows, key=lambda r: r["peak_bytes"])
    origin = visit.trace.origin_ns
    when = f"rank {top['rank']}, at {format_duration(top['peak_ns'] - origin)}"
    tiles = [tile("highest in use", format_bytes(top["peak_bytes"]), when)]
    if top["reserved_bytes_max"]:
        unused = f"{top['unused_pct']:.1f} % of it unused at the peak"
        tiles.append(tile("most reserved", format_bytes(top["reserved_bytes_max"]), unused))
    failed = sum(r["failed"] or 0 for r in {r["rank"]: r for r in rows}.values())
    tiles.append(tile("failed allocations", f"{failed:,}", "out of memory, as recorded"))
    seen = instance(visit, "memory_peaks")
    body: list[Any] = [html.Div(tiles, className="tiles")]
    if seen is not None:
        there = f"timeline: {seen.what}"
        body.append(dcc.Link(there, href=link(visit, seen), className="export"))
    return html.Div(body)


@headed(_OVER_TIME)
def _line(visit: Visit) -> list[Any]:
    by = visit.option("by", _DEFAULTS["by"])
    result = visit.ask("memory_timeline", by=by, slices=_SLICES)
    if not len(result):
        return [empty("No allocations under the filters that are set.")]
    chart = result.analysis.chart
    assert chart is not None
    fig = figure(result.table, chart, dark=visit.dark)
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
    drawn = plot(fig, _OVER_TIME, plot_id, 420)
    return [*hint(note), drawn, *coverage(result)[1:]]


@headed("What holds it at the peak?")
def _peaks(visit: Visit) -> list[Any]:
    by = visit.option("holders", _DEFAULTS["holders"])
    result = visit.ask("memory_peaks", by=by)
    shown = picture(result, dark=visit.dark)
    return [shown, grid(result, visit, {"by": by}), *coverage(result)]


PAGE = Page(
    "memory",
    "Memory",
    13,
    layout,
    {
        headlines.PART: headlines.answering(_QUESTION, headlines.of_memory),
        "tiles": _tiles,
        "line": _line,
        "peaks": _peaks,
    },
    _DEFAULTS,
    group="Dig into",
    needs=("memory",),
)
