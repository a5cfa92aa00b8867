"""SQL over the run: a query, its answer, what can be read."""

import json
from typing import Any

import dash_mantine_components as dmc
import numpy as np
import pyarrow as pa
from dash import Dash, Input, Output, State, dcc, html

from htk.analyses import ANALYSES
from htk.answers.output.figures import draw_figure
from htk.answers.output.result import Result
from htk.base.columns.arrow import read_numbers
from htk.base.core.chart import Bar
from htk.base.schema import DERIVED, TABLES, doc_of
from htk.dashboard.components import (
    draw_coverage,
    draw_empty_panel,
    draw_part_safely,
    draw_plot,
    spell_attributes,
)
from htk.dashboard.grids import draw_grid
from htk.dashboard.markup import compact_components
from htk.dashboard.page import WAITING, Page, Visit, draw_panel, keep_address
from htk.dashboard.runs import Runs
from htk.dashboard.url_state import UrlState
from htk.traces.timeline.row_spans import ends_of
from htk.verdicts.query.sql import Prepared, prepare_query
from htk.verdicts.query.views import VIEWS
from htk.verdicts.query.worker import Limits

_LIMITS = Limits(seconds=20, memory="2GB")
_QUERY = "query"
_MOST_BARS = 60  # more rows are a table
_IDS = ("rank", "step", "cycle", "device", "stream", "start_ns", "end_ns")
EXAMPLES = {
    "GPU time by kind": (
        "select kind, count(*) as activities, sum(end_ns - start_ns) as total_ns\n"
        "from kernels group by kind order by total_ns desc"
    ),
    "exposed communication, by rank": (
        "with comm as (select * from kernels where kind = 'comm'),\n"
        "     compute as (select * from kernels where kind = 'compute')\n"
        "select rank, sum(end_ns - start_ns)::bigint as exposed_comm_ns\n"
        "from exposed_spans('comm', 'compute') group by rank order by rank"
    ),
    "slowest steps": (
        "select rank, step, gpu_period_ns from step_times order by gpu_period_ns desc limit 10"
    ),
    "slowest kernels by mean": (
        "select name, count, duration_ns_mean, kernel_time_pct\n"
        "from kernel_top(n := 10, sort_by := 'mean')"
    ),
    "gaps of more than 10 us": (
        "with spans as (from union_spans('kernels')),\n"
        "     gaps as (select rank, end_ns as gap_start_ns,\n"
        "                     lead(start_ns) over (partition by rank order by start_ns) - end_ns\n"
        "                         as gap_ns from spans)\n"
        "select rank, count(*) as gaps, sum(gap_ns)::bigint as gap_ns\n"
        "from gaps where gap_ns > 10000 group by rank order by rank"
    ),
}


def layout(visit: Visit) -> Any:
    text = visit.option(_QUERY, "")
    box = dmc.Textarea(
        id="sql-text",
        value=text or next(iter(EXAMPLES.values())),
        autosize=True,
        minRows=5,
        maxRows=20,
        label="One reading statement. Options of an analysis: kernel_top(n := 10)",
        **spell_attributes(aria_controls="sql-suggestions", aria_autocomplete="list"),
        styles={"input": {"fontFamily": "ui-monospace, monospace"}},
    )
    buttons = dmc.Group(
        [
            html.Button("Run", id="sql-run", className="chip main", title="Ctrl + Enter"),
            dmc.Select(
                id="sql-example",
                data=list(EXAMPLES),
                placeholder="an example …",
                size="xs",
                w=260,
                **spell_attributes(aria_label="an example"),
            ),
        ],
        mt="xs",
    )
    answer = (
        draw_panel("sql", "answer")
        if text
        else draw_empty_panel("Ctrl + Enter runs the query; Tab completes a name.")
    )
    return html.Div(
        [
            html.H1("Ask in SQL"),
            html.Div(
                [html.Div([box, _draw_completions(), buttons], className="query"), _draw_schema()],
                className="two",
            ),
            dcc.Loading(
                html.Div(answer, id="sql-answer", className="answer"), delay_show=300, **WAITING
            ),
            dcc.Store(id="sql-address"),
        ]
    )


def _draw_completions() -> Any:
    """Return what completes a word of the query, and the names that it knows."""
    names = {
        "tables": {name: schema.names for name, schema in _list_relations().items()},
        "analyses": list(ANALYSES),
    }
    return html.Div(
        html.Ul(
            id="sql-suggestions",
            role="listbox",
            **spell_attributes(aria_label="names that go on so"),
        ),
        id="sql-names",
        **spell_attributes(data_names=json.dumps(names)),
    )


def _list_relations() -> dict[str, pa.Schema]:
    """Return every relation that a query may read, and its columns."""
    return {**TABLES, **DERIVED, **{name: view.columns for name, view in VIEWS.items()}}


def _draw_schema() -> Any:
    """Return what can be read. The browser makes its list from text: as components of their own,
    some hundred names take it longer than the rest of the page."""
    tables = [
        (name, "\n".join(f"{f.name}: {doc_of(f)}" for f in schema))
        for name, schema in _list_relations().items()
    ]
    asks = [(name, entry.question) for name, entry in ANALYSES.items()]
    parts = [
        html.Section(
            [html.H2(heading), html.Div(**spell_attributes(data_listed=json.dumps(entries)))]
        )
        for heading, entries in (("Tables", tables), ("Analyses", asks))
    ]
    label = spell_attributes(aria_label="what can be read")
    return html.Div(parts, className="readable", tabIndex=0, **label)


def _run_asked_query(visit: Visit) -> Result:
    text = visit.option(_QUERY, "")
    # What the query reads is made under the run's lock; while it runs, other pages of the run are
    # answered.
    prepared: Prepared = visit.kept(("prepared", text), lambda: prepare_query(visit.trace, text))
    result: Result = visit.computed(("sql", text), lambda: prepared.run(_LIMITS))
    return result


def _draw_answer(visit: Visit) -> Any:
    result = _run_asked_query(visit)
    text = visit.option(_QUERY, "")
    shown = draw_grid(result, visit, {_QUERY: text}, rows=16)
    links: list[Any] = []
    if len(result) and ends_of(result.table) is not None:
        view = UrlState("timeline", visit.view.filters, {_QUERY: text}, visit.view.run)
        link = dcc.Link("These rows as a track of the timeline", href=f"/timeline{view.search()}")
        links = [html.Div(link, className="links")]
    return html.Div([*links, _draw_picture(result, visit), shown, *draw_coverage(result)])


def _draw_picture(result: Result, visit: Visit) -> Any:
    """Return a picture of an answer of few rows: the number by which it is sorted, else the first,
    by what comes before it."""
    schema = result.table.schema
    is_number = [pa.types.is_integer(f.type) or pa.types.is_floating(f.type) for f in schema]
    names = [f.name for f in schema]
    texts = [name for name, number in zip(names, is_number, strict=True) if not number]
    x = texts[0] if texts else names[0]
    numeric = [n for n, number in zip(names, is_number, strict=True) if number and n not in _IDS]
    values = [name for name in numeric if name != x]
    if not values or not 1 < len(result) <= _MOST_BARS:
        return html.Div()
    value = next((name for name in values if _is_sorted_by(result.table[name])), values[0])
    drawn = draw_figure(result.table, Bar(x, value, horizontal=bool(texts)), dark=visit.dark)
    return draw_plot(drawn, f"{value} by {x}".replace("_", " "))


def _is_sorted_by(column: pa.ChunkedArray) -> bool:
    """Return whether the rows stand in the order of a column, which is not all one."""
    values = read_numbers(column.drop_null())
    change = np.diff(values)
    return bool(change.any() and ((change <= 0).all() or (change >= 0).all()))


def _register_callbacks(app: Dash, runs: Runs) -> None:
    @app.callback(
        Output("sql-answer", "children"),
        Output("sql-address", "data"),
        Input("sql-run", "n_clicks"),
        State("sql-text", "value"),
        State("address", "search"),
        State("dark", "data"),
        prevent_initial_call=True,
    )
    def run_typed_query(_clicks: Any, text: str, search: str, dark: bool) -> Any:
        view = UrlState.from_address("sql", search).with_option(_QUERY, text or "")
        if not view.options.get(_QUERY):
            return draw_empty_panel("Write a query first."), "?"
        return compact_components(
            draw_part_safely(_draw_answer, Visit(runs, view, bool(dark)))
        ), view.search()

    @app.callback(
        Output("sql-text", "value"), Input("sql-example", "value"), prevent_initial_call=True
    )
    def find_example(name: str) -> str:
        return EXAMPLES[name]

    keep_address(app, "sql-address")


PAGE = Page(
    "sql",
    "SQL",
    17,
    layout,
    {"answer": _draw_answer},
    answers={"sql": _run_asked_query},
    register=_register_callbacks,
    group="Ask",
)
