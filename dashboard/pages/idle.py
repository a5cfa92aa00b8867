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
from htk.dashboard.components import coverage, empty, headed, hint, picture, plot
from htk.dashboard.example_ranges import gaps, link
from htk.dashboard.grids import answered, grid
from htk.dashboard.page import Page, Visit, panel
from htk.dashboard.time_shares import shares
from htk.dashboard.utilization_strip import strip
from htk.verdicts.overview.summary import IDLE_WORDS

_QUESTION = "Why were GPUs idle?"
_GAPS = headlines.GAPS
_IDLE = "idle: "  # said of each cause, which on a page of idle time needs no saying
_CODES = {words: cause.replace("_", " ") for cause, words in IDLE_WORDS.items()}
_CAUSES = Label("idle_causes", "Why was each GPU idle?")


def layout(visit: Visit) -> Any:
    return html.Div(
        [
            headlines.heading("idle", _QUESTION),
            *headlines.not_named(visit),
            panel("idle", "busy", 260),
            html.Div([panel("idle", "causes", 460), panel("idle", "gaps", 460)], className="two"),
            panel("idle", "stalls", 420),
            html.Div(
                [panel("idle", "launches", 420), panel("idle", "queue", 420)], className="halves"
            ),
        ]
    )


@headed("Causes")
def _causes(visit: Visit) -> list[Any]:
    result = _caused(visit)
    bars = shares(visit)
    idle = [layer for layer in bars.layers if layer.meaning == "idle"]
    if not idle:
        return [empty("No idle time: the GPUs always ran something.")]
    table = grid(result, visit, {}, rows=8)
    if len(bars.ranks) > MOST_BARS:
        drawn = picture(visit.ask("idle_breakdown"), dark=visit.dark)
        return [drawn, table, *coverage(result)[1:]]
    longest = max(map(sum, zip(*(layer.values for layer in idle), strict=True)))
    unrecorded = [  # as long as the longest bar: its length says nothing
        replace(layer, values=[longest * bool(value) for value in layer.values])
        for layer in bars.layers
        if layer.meaning == "unrecorded"
    ]
    drawn_layers = [*idle, *unrecorded]
    fig = plots.shares(bars.ranks, bars.labels, drawn_layers, visit.dark, axis_end=None)
    for bar in fig.data[len(idle) :]:
        bar.update(hovertemplate="%{y}: %{text}<extra></extra>")
    own = palette_of(visit.dark)
    for bar, layer in zip(fig.data, idle, strict=False):  # those of the unrecorded keep theirs
        code = _CODES.get(layer.name)  # beside one another greys look alike
        colour = colour_of(code, own) if code else own["idle"]
        bar.update(name=layer.name.removeprefix(_IDLE), marker={"color": colour})
    plot_id = {"type": "by-rank", "name": "idle"}
    drawn = plot(fig, "idle time by cause", plot_id, 130 + 34 * max(len(bars.ranks), 3))
    return [drawn, table, *coverage(result)[1:]]


def _caused(visit: Visit) -> Result:
    """Return the idle time of each GPU with its causes in words."""
    answer = visit.ask("idle_breakdown")
    causes = (str(cause) for cause in answer.table["cause"].to_pylist())
    words = [IDLE_WORDS.get(cause, cause).removeprefix(_IDLE) for cause in causes]
    column = answer.table.schema.get_field_index("cause")
    field = answer.table.schema.field("cause").with_type(STRING)
    table = answer.table.set_column(column, field, pa.array(words, STRING))
    return Result(_CAUSES, table, answer.coverage)


@headed("Longest gaps")
def _gaps(visit: Visit) -> list[Any]:
    """Return the longest gaps, each a link into the timeline."""
    visit.trace.need("activities")
    rows = [
        html.Tr(
            [
                html.Td(dcc.Link(format_duration(gap.to_ns - gap.from_ns), href=link(visit, gap))),
                html.Td(f"rank {gap.rank}" + ("" if gap.gpu is None else f" GPU {gap.gpu}")),
                html.Td(format_duration(gap.from_ns)),
            ]
        )
        for gap in visit.kept("gaps", lambda: gaps(visit, _GAPS))
    ]
    if not rows:
        return [empty("No gap between GPU activities.")]
    heads = html.Tr([html.Th(t) for t in ("length", "whose", "began at")])
    table = html.Table([html.Thead(heads), html.Tbody(rows)], className="runs")
    return [*hint("A length opens the timeline there."), table]


@headed("What does the host wait for, and what does it cost the GPU?")
def _stalls(visit: Visit) -> list[Any]:
    return answered(visit, "host_stalls")


@headed("How long do launches take?")
def _launches(visit: Visit) -> list[Any]:
    result = visit.ask("launch_stats")
    return [grid(result, visit, {}, rows=8), *coverage(result)[1:]]


@headed("How much work waits in the streams?")
def _queue(visit: Visit) -> list[Any]:
    result = visit.ask("queue_length")
    drawn = picture(result, dark=visit.dark)
    note = "Launches that have not started, a graph as one. Stream –: all of a device."
    return [*hint(note), drawn, grid(result, visit, {}, rows=4)]


PAGE = Page(
    "idle",
    "Idle & host stalls",
    14,
    layout,
    {
        headlines.PART: headlines.answering(_QUESTION, headlines.of_idle),
        "busy": strip,
        "causes": _causes,
        "gaps": _gaps,
        "stalls": _stalls,
        "launches": _launches,
        "queue": _queue,
    },
    answers={_CAUSES.name: _caused},
    group="Dig into",
    needs=("kernels",),
)
