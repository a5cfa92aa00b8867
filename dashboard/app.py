"""The Dash app: a frame, the filters that hold on all pages, and the page of the address."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import dash_mantine_components as dmc
from dash import ALL, MATCH, Dash, Input, Output, State, ctx, dcc, html, no_update

from htk.analyses import ANALYSES, find
from htk.dashboard import derived, start
from htk.dashboard.components import attributes, grouped, problem, rows_and_columns, safely
from htk.dashboard.files import add_routes as add_file_routes
from htk.dashboard.guard import protect
from htk.dashboard.page import NAMED, WAITING, Visit
from htk.dashboard.pages import answer, composed
from htk.dashboard.runs import Runs
from htk.dashboard.timeline.routes import add_routes
from htk.dashboard.url_state import FILTERS, View
from htk.errors import HtkError

_HINTS = {
    "ranks": "0,2..5",
    "steps": "3..4",
    "from": "1.5ms",
    "to": "20ms",
    "name": "part of a name",
    "annotation": "regular expression",
}


def create_app(runs: Runs, *, token: str | None = None) -> Dash:
    """The dashboard. What a visitor looks at is all in the address; runs and answers are kept."""
    app = Dash(
        "htk",
        title="htk",
        assets_folder=str(Path(__file__).parent / "assets"),
        serve_locally=True,
        suppress_callback_exceptions=True,
        update_title="",
    )
    app.index_string = app.index_string.replace("<html>", '<html lang="en">')
    app.layout = _frame()
    _show(app, runs)
    _change(app)
    _tables(app, runs)
    _colours(app)
    start.add_callbacks(app, runs)
    for page in composed().values():
        if page.register:
            page.register(app, runs)
    add_routes(app.server, runs)
    add_file_routes(app.server, runs)
    protect(app, token)
    return app


def _frame() -> Any:
    return dmc.MantineProvider(
        id="theme",
        theme={"fontFamily": "system-ui, sans-serif"},
        children=[
            dcc.Location(id="address", refresh="callback-nav"),
            dcc.Store(id="dark", storage_type="local"),
            dcc.Store(id="again"),
            dcc.Store(id="changed"),
            html.Header(
                [
                    dcc.Link("htk", href="/runs", className="logo", title="choose a run"),
                    html.Span(id="run", className="run"),
                    html.Div(id="filters", className="filters"),
                    html.Div(id="chips", className="chips"),
                    html.Button("Copy link", id="copy", className="chip"),
                    dmc.Switch(id="dark-switch", label="dark", size="sm"),
                ]
            ),
            html.Div(
                [
                    html.Nav(id="menu", **attributes(aria_label="pages")),
                    html.Main(
                        dcc.Loading(
                            html.Div(id="page"),
                            delay_show=300,
                            **{**WAITING, "target_components": {"page": "children"}},
                        )
                    ),
                ],
                className="body",
            ),
        ],
    )


def _show(app: Dash, runs: Runs) -> None:
    @app.callback(
        Output("page", "children"),
        Output("menu", "children"),
        Output("chips", "children"),
        Output("filters", "children"),
        Output("run", "children"),
        Input("address", "pathname"),
        Input("address", "search"),
        Input("dark", "data"),
        Input("again", "data"),
    )
    def show(pathname: str, search: str, dark: bool, _again: Any) -> Sequence[Any]:
        view = View.of(pathname, search)
        if view.page == "runs" or (not view.run and not runs.given):
            return [start.page(runs), [], [], [], ""]
        waiting = _opened(runs, view)
        if waiting is not None:
            return [waiting, [], [], [], view.run]
        visit = Visit(runs, view, bool(dark))
        here = attributes(data_view=_address(pathname, search))  # whose page it is
        shown = html.Div(safely(_page, visit), **here)
        return [shown, _menu(view), _chips(view), _filters(view), _about(visit)]

    @app.callback(
        Output({"type": "part", "page": MATCH, "part": MATCH}, "children"),
        Input({"type": "part", "page": MATCH, "part": MATCH}, "id"),
        State("address", "pathname"),
        State("address", "search"),
        State("dark", "data"),
    )
    def fill(panel_id: dict[str, str], pathname: str, search: str, dark: bool) -> Any:
        path = "" if panel_id["page"] == "overview" else panel_id["page"]
        page = composed().get(path)
        if page is None or panel_id["part"] not in page.parts:
            return problem("there is no such part")
        visit = Visit(runs, View.of(pathname, search), bool(dark))
        make = page.parts[panel_id["part"]]
        heading = dmc.Title(panel_id["part"].capitalize(), order=3)
        return safely(lambda v: v.drawn(panel_id["part"], lambda: make(v)), visit, heading)


def _opened(runs: Runs, view: View) -> Any:
    """Nothing where the run is at hand; else what to show until it is."""
    if runs.trace(view.run) is not None:
        return None
    try:
        return start.opening(runs, view.run)
    except HtkError as error:
        return problem(str(error), "Not opened")


def _page(visit: Visit) -> Any:
    """What the address asks for."""
    page = composed().get(visit.view.page)
    if page is not None:
        visit.view.selection  # noqa: B018  filters that cannot be read are said before any part
        heading = dmc.Title(page.title, order=2)
        return html.Div(safely(page.layout, visit, heading), className="composed")
    if visit.view.page in ANALYSES:
        return visit.drawn("page", lambda: derived.page(visit, visit.view.page))
    return problem(f"there is no page {visit.view.page!r}")


def _change(app: Dash) -> None:
    @app.callback(
        Output("changed", "data"),
        *[Input(f"filter-{name}", "value") for name in FILTERS],
        Input({"type": "option", "name": ALL}, "value"),
        Input({"type": "chip", "name": ALL}, "n_clicks"),
        Input({"type": "brush", "name": ALL}, "selectedData"),
        Input({"type": "by-rank", "name": ALL}, "clickData"),
        Input({"type": "grid", "name": ALL}, "cellDoubleClicked"),
        State({"type": "option", "name": ALL}, "id"),
        State({"type": "group", "name": ALL}, "value"),
        State({"type": "group", "name": ALL}, "id"),
        State("address", "pathname"),
        State("address", "search"),
        prevent_initial_call=True,
    )
    def change(*states: Any) -> Any:
        filters, (options, _, _, _, _, ids, groups, tables, pathname, search) = (
            states[: len(FILTERS)],
            states[len(FILTERS) :],
        )
        view = View.of(pathname, search)
        trigger, value = ctx.triggered_id, ctx.triggered[0]["value"]
        if isinstance(trigger, dict):
            if trigger["type"] == "option":
                value = {i["name"]: v for i, v in zip(ids, options, strict=True)}[trigger["name"]]
            changed = _changed(view, trigger, value)
        else:  # what else the fields say may be of the page before
            used = set(ctx.triggered_prop_ids.values())
            pairs = zip(FILTERS, filters, strict=True)
            changed = view.with_filters(**{n: f or "" for n, f in pairs if f"filter-{n}" in used})
        query = changed.search()
        if query == (search or ""):
            return no_update
        kept = {table["name"]: by for table, by in zip(tables, groups, strict=True)}
        return {"of": _address(pathname, search), "search": changed.grouped(kept).search()}

    # An answer that comes when the visitor has gone elsewhere changes nothing there.
    app.clientside_callback(
        "function(changed, pathname, search){ return changed && "
        "changed.of === (pathname || '/') + (search || '') "
        "? changed.search : window.dash_clientside.no_update; }",
        Output("address", "search"),
        Input("changed", "data"),
        State("address", "pathname"),
        State("address", "search"),
        prevent_initial_call=True,
    )


def _address(pathname: str | None, search: str | None) -> str:
    return f"{pathname or '/'}{search or ''}"


def _changed(view: View, trigger: dict[str, str], value: Any) -> View:
    """The view after a control was used."""
    if trigger["type"] == "option":
        return view.with_option(trigger["name"], value, _default(view.page, trigger["name"]))
    if not value:
        return view
    if trigger["type"] == "chip":
        return view.without(trigger["name"])
    if trigger["type"] == "brush":
        low, high = sorted(value.get("range", {}).get("x", [0, 0]))
        return view.with_filters(from_=time_text(low), to=time_text(high)) if high > low else view
    if trigger["type"] == "by-rank":
        return view.with_filters(ranks=str(value["points"][0]["customdata"]))
    column, cell = value.get("colId"), value.get("value")
    target = {"rank": "ranks", "step": "steps", **dict.fromkeys(NAMED, "name")}.get(column)
    return view.with_filters(**{target: str(cell)}) if target and cell is not None else view


def time_text(ms: float) -> str:
    """Milliseconds of a plot's axis as a filter writes them."""
    return f"{max(ms, 0):.6f}".rstrip("0").rstrip(".") + "ms"


def _default(page: str, name: str) -> Any:
    if page in composed():
        return composed()[page].options.get(name)
    return find(page).options[name].default if page in ANALYSES else None


def _tables(app: Dash, runs: Runs) -> None:
    @app.callback(
        Output({"type": "grid", "name": MATCH}, "rowData"),
        Output({"type": "grid", "name": MATCH}, "columnDefs"),
        Input({"type": "group", "name": MATCH}, "value"),
        State({"type": "asked", "name": MATCH}, "data"),
        State("address", "search"),
        prevent_initial_call=True,
    )
    def group(by: str | None, asked: dict[str, Any], search: str) -> Any:
        visit = Visit(runs, View.of("", search))
        result = answer(visit, asked["analysis"], asked["options"])
        table = grouped(result.table, by) if by else result.table
        grid = rows_and_columns(table, int(result.coverage.get("origin_ns") or 0))
        return grid["rowData"], grid["columnDefs"]

    # Into the address too, which does not make the page anew.
    app.clientside_callback(
        "function(groups, tables){ window.htkGrouped(groups, tables); }",
        Input({"type": "group", "name": ALL}, "value"),
        State({"type": "group", "name": ALL}, "id"),
        prevent_initial_call=True,
    )


def _colours(app: Dash) -> None:
    app.clientside_callback(
        "function(on, kept){return window.htkColours(on, kept);}",
        Output("dark", "data"),
        Output("theme", "forceColorScheme"),
        Output("dark-switch", "checked"),
        Input("dark-switch", "checked"),
        State("dark", "data"),
    )
    app.clientside_callback(
        "function(page){return window.htkDrawn();}",
        Output("page", "title"),
        Input("page", "children"),
    )


def _filters(view: View) -> list[Any]:
    return [
        dmc.TextInput(
            id=f"filter-{name}",
            value=view.filters.get(name, ""),
            placeholder=_HINTS[name],
            label=name,
            size="xs",
            debounce=500,
            w=112,
        )
        for name in FILTERS
    ]


def _menu(view: View) -> list[Any]:
    def link(page: str, title: str) -> Any:
        here = "here" if view.page == page else ""
        return dcc.Link(title, href=view.link(page), className=here)

    pages = [link(page.path, page.title) for page in composed().values()]
    subjects = [
        html.Details(
            [html.Summary(subject, className="subject"), *(link(n, title) for n, title in entries)],
            open=view.page in dict(entries),
        )
        for subject, entries in derived.titles().items()
    ]
    return [*pages, html.Div("Every question", className="heading"), *subjects]


def _chips(view: View) -> list[Any]:
    return [
        html.Button(
            f"{name}: {value} ×",
            id={"type": "chip", "name": name},
            className="chip",
            title=f"remove the filter {name}",
        )
        for name, value in view.filters.items()
    ]


def _about(visit: Visit) -> str:
    """Which run the page speaks of."""
    trace = visit.runs.trace(visit.view.run)
    if trace is None:
        return visit.view.run
    names = sorted({p.file for p in trace.files})
    if visit.view.run.startswith("upload/"):
        return names[0].rsplit("/", 1)[-1]
    if visit.view.run:
        return visit.view.run
    folder = names[0].rsplit("/", 2)
    return (
        names[0]
        if len(names) == 1
        else f"{folder[-2] if len(folder) > 1 else ''} ({len(names)} files)"
    )
