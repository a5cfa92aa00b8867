"""The pages: those composed by hand, then one for each analysis of the menu."""

import typing
from typing import Any

import dash_ag_grid as dag
import dash_mantine_components as dmc
from dash import dcc, html

from htk import api
from htk.analyses import ANALYSES, find
from htk.analysis import Analysis, Option
from htk.dashboard.view import View, shown
from htk.errors import HtkError
from htk.figures import figure
from htk.render import coverage_lines
from htk.result import Result
from htk.schema import ABSOLUTE_TIMES, doc_of
from htk.schema.columns import unit_of
from htk.trace import Trace

ROWS = 5000  # more is for files, not for a page


def titles() -> dict[str, list[tuple[str, str]]]:
    """Subjects, and the (page, title) of each question."""
    found: dict[str, list[tuple[str, str]]] = {}
    for name, entry in sorted(ANALYSES.items()):
        found.setdefault(entry.module.split(".")[0], []).append((name, name.replace("_", " ")))
    return found


def page(trace: Trace, view: View, *, dark: bool) -> Any:
    """What the address asks for; what goes wrong is said in its place."""
    try:
        narrowed = view.narrowed(trace)
        if view.page == "":
            return overview(narrowed, view, dark=dark)
        if view.page == "timeline":
            return timeline()
        if view.page in ANALYSES:
            return answer(narrowed, find(view.page), view, dark=dark)
    except HtkError as error:
        return problem(str(error))
    return problem(f"there is no page {view.page!r}")


def problem(text: str) -> Any:
    return dmc.Alert(text, title="No answer", color="yellow", id="problem")


def answer(trace: Trace, analysis: Analysis[...], view: View, *, dark: bool) -> Any:
    """The page of an analysis: its question, controls, picture, table and coverage."""
    options = view.values(analysis.options)
    head = [
        dmc.Title(analysis.question, order=2),
        html.P(analysis.doc.partition("\n")[2].strip(), className="doc"),
        dmc.Group([control(o, options.get(o.name, o.default)) for o in analysis.options.values()]),
    ]
    try:
        result = api.run(trace, analysis.name, **options)
    except HtkError as error:
        return html.Div([*head, problem(str(error))])
    return html.Div(
        [*head, picture(result, dark=dark), *coverage(result), grid(result, view, dark=dark)]
    )


def control(option: Option, value: Any) -> Any:
    """A control for an option; its id says which."""
    shared = {
        "id": {"type": "option", "name": option.name},
        "label": option.name.replace("_", " "),
        "description": option.doc,
    }
    choices = [str(c) for c in typing.get_args(option.type)]
    if option.type is bool:
        choices = ["true", "false"]
    if option.type is bool or typing.get_origin(option.type) is typing.Literal:
        return dmc.Select(data=choices, value=shown(value), w=220, **shared)
    return dmc.TextInput(value=shown(value), debounce=400, w=220, **shared)


def picture(result: Result, *, dark: bool) -> Any:
    chart = result.analysis.chart
    if chart is None or not len(result):
        return html.Div()
    config: Any = {"displaylogo": False, "toImageButtonOptions": {"format": "svg"}}
    return dcc.Graph(figure=figure(result.table, chart, dark=dark), config=config, className="plot")


def coverage(result: Result) -> list[Any]:
    return [html.Div(line, className="coverage") for line in coverage_lines(result.coverage)]


def grid(result: Result, view: View, *, dark: bool) -> Any:
    """A table that sorts, filters and exports."""
    table = result.table.slice(0, ROWS)
    note = [] if len(result) <= ROWS else [html.Div(f"first {ROWS:,} of {len(result):,} rows")]
    return html.Div(
        [
            dmc.Group(
                [
                    html.A(
                        f"Export {form}",
                        href=f"/export/{result.analysis.name}.{form}{view.search()}",
                        className="export",
                    )
                    for form in ("csv", "md", "parquet")
                ]
            ),
            *note,
            dag.AgGrid(
                id="grid",
                rowData=[_row(r, result, table) for r in table.to_pylist()],
                columnDefs=[_column(field) for field in table.schema if _used(table, field)],
                defaultColDef={"sortable": True, "filter": True, "resizable": True},
                columnSize="autoSize",
                dashGridOptions={"pagination": True, "paginationPageSize": 50},
                className="ag-theme-quartz" + ("-dark" if dark else ""),
                style={"height": "560px"},
            ),
        ]
    )


def _used(table: Any, field: Any) -> bool:
    return bool(table.num_rows == 0 or table[field.name].null_count < table.num_rows)


def _row(row: dict[str, Any], result: Result, table: Any) -> dict[str, Any]:
    """Absolute times as the browser can hold them: since the trace began."""
    origin = int(result.coverage.get("origin_ns") or 0)
    for name in ABSOLUTE_TIMES:
        if isinstance(row.get(name), int):
            row[name] -= origin
    return row


def _column(field: Any) -> dict[str, Any]:
    unit = unit_of(field.name)
    is_text = str(field.type).startswith(("string", "dictionary"))
    shape = {"ns": "htkTime", "bytes": "htkSize", "%": "htkShare"}.get(unit, "htkPlain")
    numeric = {
        "type": "numericColumn",
        "filter": "agNumberColumnFilter",
        "valueFormatter": {"function": f"{shape}(params.value)"},
    }
    return {
        "field": field.name,
        "headerName": field.name.replace("_", " "),
        "headerTooltip": doc_of(field),
        "tooltipField": field.name,
        "maxWidth": 480,
        **({} if is_text else numeric),
    }


def overview(trace: Trace, view: View, *, dark: bool) -> Any:
    """The first screen: where the time goes for each rank, and what costs most."""
    parts: list[Any] = [dmc.Title("Where did the time go?", order=2)]
    for name in ("time_breakdown", "comm_compute_overlap", "kernel_top"):
        if name not in ANALYSES:
            continue
        analysis = find(name)
        heading = dcc.Link(analysis.question, href=view.link(name))
        parts.append(dmc.Title(heading, order=4))
        try:
            result = api.run(trace, name)
        except HtkError as error:
            parts.append(problem(str(error)))
            continue
        parts += [picture(result, dark=dark), *coverage(result)]
    return html.Div(parts)


def timeline() -> Any:
    """All ranks, threads and streams in lanes, drawn by the canvas component."""
    return html.Div(
        [
            dmc.Title("What ran when?", order=2),
            html.P("W/S zoom, A/D pan, 0 all, / search; drag to pan, click an event for details."),
            html.Div(id="timeline", className="timeline"),
            html.Pre(id="event", className="event"),
        ]
    )
