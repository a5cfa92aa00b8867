"""Why GPUs stood still, and what the host did meanwhile."""

from dataclasses import replace
from typing import Any

import pyarrow as pa
from dash import dcc, html

from htk.answers.output.figure_colours import colour_of
from htk.answers.output.population import MOST_BARS
from htk.answers.output.result import Result
from htk.answers.output.tokens import palette_of
from htk.base.core.humanize import format_duration
from htk.base.core.label import Label
from htk.base.schema import STRING
from htk.dashboard import headlines, plots
from htk.dashboard.components import (
    add_heading,
    draw_answer,
    draw_coverage,
    draw_empty_panel,
    draw_hint,
    draw_plot,
)
from htk.dashboard.example_ranges import find_longest_gaps, link_to_timeline
from htk.dashboard.grids import draw_grid, draw_question
from htk.dashboard.page import Page, Visit, draw_panel
from htk.dashboard.time_shares import compute_time_shares
from htk.dashboard.utilization_strip import draw_utilization_strip
from htk.verdicts.overview.summary import IDLE_WORDS

_QUESTION = "Why were GPUs idle?"
_GAPS = headlines.GAPS
_IDLE = "idle: "  # said of each cause, which on a page of idle time needs no saying
_CODES = {words: cause.replace("_", " ") for cause, words in IDLE_WORDS.items()}
_CAUSES = Label("idle_causes", "Why was each GPU idle?")


def layout(visit: Visit) -> Any:
    return html.Div(
        [
            headlines.draw_heading("idle", _QUESTION),
            *headlines.not_named(visit),
            draw_panel("idle", "busy", 260),
            html.Div(
                [draw_panel("idle", "causes", 460), draw_panel("idle", "gaps", 460)],
                className="two",
            ),
            draw_panel("idle", "stalls", 420),
            html.Div(
                [draw_panel("idle", "launches", 420), draw_panel("idle", "queue", 420)],
                className="halves",
            ),
        ]
    )


@add_heading("Causes")
def _draw_causes(visit: Visit) -> list[Any]:
    result = _build_caused_idle(visit)
    bars = compute_time_shares(visit)
    idle = [layer for layer in bars.layers if layer.meaning == "idle"]
    if not idle:
        return [draw_empty_panel("No idle time: the GPUs always ran something.")]
    table = draw_grid(result, visit, {}, rows=8)
    if len(bars.ranks) > MOST_BARS:
        drawn = draw_answer(visit.ask("idle_breakdown"), dark=visit.dark)
        return [drawn, table, *draw_coverage(result)[1:]]
    longest = max(map(sum, zip(*(layer.values for layer in idle), strict=True)))
    unrecorded = [  # as long as the longest bar: its length says nothing
        replace(layer, values=[longest * bool(value) for value in layer.values])
        for layer in bars.layers
        if layer.meaning == "unrecorded"
    ]
    drawn_layers = [*idle, *unrecorded]
    fig = plots.draw_time_shares(bars.ranks, bars.labels, drawn_layers, visit.dark, axis_end=None)
    for bar in fig.data[len(idle) :]:
        bar.update(hovertemplate="%{y}: %{text}<extra></extra>")
    own = palette_of(visit.dark)
    for bar, layer in zip(fig.data, idle, strict=False):  # those of the unrecorded keep theirs
        code = _CODES.get(layer.name)  # beside one another greys look alike
        colour = colour_of(code, own) if code else own["idle"]
        bar.update(name=layer.name.removeprefix(_IDLE), marker={"color": colour})
    plot_id = {"type": "by-rank", "name": "idle"}
    drawn = draw_plot(fig, "idle time by cause", plot_id, 130 + 34 * max(len(bars.ranks), 3))
    return [drawn, table, *draw_coverage(result)[1:]]


def _build_caused_idle(visit: Visit) -> Result:
    """Return the idle time of each GPU with its causes in words."""
    answer = visit.ask("idle_breakdown")
    causes = (str(cause) for cause in answer.table["cause"].to_pylist())
    words = [IDLE_WORDS.get(cause, cause).removeprefix(_IDLE) for cause in causes]
    column = answer.table.schema.get_field_index("cause")
    field = answer.table.schema.field("cause").with_type(STRING)
    table = answer.table.set_column(column, field, pa.array(words, STRING))
    return Result(_CAUSES, table, answer.coverage)


@add_heading("Longest gaps")
def _draw_gaps(visit: Visit) -> list[Any]:
    """Return the longest gaps, each a link into the timeline."""
    visit.trace.need("activities")
    rows = [
        html.Tr(
            [
                html.Td(
                    dcc.Link(
                        format_duration(gap.to_ns - gap.from_ns), href=link_to_timeline(visit, gap)
                    )
                ),
                html.Td(f"rank {gap.rank}" + ("" if gap.gpu is None else f" GPU {gap.gpu}")),
                html.Td(format_duration(gap.from_ns)),
            ]
        )
        for gap in visit.kept("gaps", lambda: find_longest_gaps(visit, _GAPS))
    ]
    if not rows:
        return [draw_empty_panel("No gap between GPU activities.")]
    heads = html.Tr([html.Th(t) for t in ("length", "whose", "began at")])
    table = html.Table([html.Thead(heads), html.Tbody(rows)], className="runs")
    return [*draw_hint("A length opens the timeline there."), table]


@add_heading("What does the host wait for, and what does it cost the GPU?")
def _draw_stalls(visit: Visit) -> list[Any]:
    return draw_question(visit, "host_stalls")


@add_heading("How long do launches take?")
def _draw_launches(visit: Visit) -> list[Any]:
    result = visit.ask("launch_stats")
    return [draw_grid(result, visit, {}, rows=8), *draw_coverage(result)[1:]]


@add_heading("How much work waits in the streams?")
def _draw_queue(visit: Visit) -> list[Any]:
    result = visit.ask("queue_length")
    drawn = draw_answer(result, dark=visit.dark)
    note = "Launches that have not started, a graph as one. Stream –: all of a device."
    return [*draw_hint(note), drawn, draw_grid(result, visit, {}, rows=4)]


PAGE = Page(
    "idle",
    "Idle & host stalls",
    14,
    layout,
    {
        headlines.PART: headlines.fill_heading(_QUESTION, headlines.of_idle),
        "busy": draw_utilization_strip,
        "causes": _draw_causes,
        "gaps": _draw_gaps,
        "stalls": _draw_stalls,
        "launches": _draw_launches,
        "queue": _draw_queue,
    },
    answers={_CAUSES.name: _build_caused_idle},
    group="Dig into",
    needs=("kernels",),
)
