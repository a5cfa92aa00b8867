"""The Dash app: a frame, the filters that hold on all pages, and the page of the address."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import dash_mantine_components as dmc
from dash import ALL, Dash, Input, Output, State, ctx, dcc, html, no_update
from flask import Response

from htk import api
from htk.analyses import ANALYSES, find
from htk.dashboard import pages
from htk.dashboard.guard import protect
from htk.dashboard.timeline.routes import add_routes
from htk.dashboard.view import FILTERS, View
from htk.errors import HtkError
from htk.render import to_bytes
from htk.trace import Trace

_HINTS = {
    "ranks": "0,2..5",
    "steps": "3..4",
    "from": "1.5ms",
    "to": "20ms",
    "annotation": "regular expression",
}


def create_app(trace: Trace, *, token: str | None = None) -> Dash:
    """The dashboard of one run. It keeps nothing between requests: all state is in the address."""
    app = Dash(
        __name__,
        title="htk",
        assets_folder=str(Path(__file__).parent / "assets"),
        serve_locally=True,
        suppress_callback_exceptions=True,
        update_title="",
    )
    app.index_string = app.index_string.replace("<html>", '<html lang="en">')
    app.layout = _frame(trace)
    _callbacks(app, trace)
    add_routes(app.server, trace)
    _exports(app, trace)
    protect(app, token)
    return app


def _frame(trace: Trace) -> Any:
    names = sorted({p.file for p in trace.parts})
    run = names[0] if len(names) == 1 else f"{len(names)} files, {len(trace.ranks)} ranks"
    return dmc.MantineProvider(
        id="theme",
        children=[
            dcc.Location(id="address", refresh="callback-nav"),
            dcc.Store(id="dark", storage_type="local", data=False),
            html.Header(
                [
                    html.Strong("htk"),
                    html.Span(run, className="run", title=run),
                    html.Div(id="filters", className="filters"),
                    html.Div(id="chips", className="chips"),
                    dmc.Switch(id="dark-switch", label="dark", size="sm"),
                ]
            ),
            html.Div(
                [html.Nav(id="menu"), dcc.Loading(html.Main(id="page"), delay_show=300)],
                className="body",
            ),
        ],
    )


def _callbacks(app: Dash, trace: Trace) -> None:
    @app.callback(
        Output("page", "children"),
        Output("menu", "children"),
        Output("chips", "children"),
        Output("filters", "children"),
        Input("address", "pathname"),
        Input("address", "search"),
        Input("dark", "data"),
    )
    def show(pathname: str, search: str, dark: bool) -> Sequence[Any]:
        view = View.of(pathname, search)
        page = pages.page(trace, view, dark=bool(dark))
        return [page, _menu(view), _chips(view), _filters(view)]

    @app.callback(
        Output("address", "search"),
        *[Input(f"filter-{name}", "value") for name in FILTERS],
        Input({"type": "option", "name": ALL}, "value"),
        Input({"type": "chip", "name": ALL}, "n_clicks"),
        State({"type": "option", "name": ALL}, "id"),
        State("address", "pathname"),
        State("address", "search"),
        prevent_initial_call=True,
    )
    def change(*given: Any) -> Any:
        *filters, options, _, ids, pathname, search = given
        view = View.of(pathname, search)
        trigger = ctx.triggered_id
        if isinstance(trigger, dict) and trigger.get("type") == "chip":
            if not ctx.triggered[0]["value"]:
                return no_update
            view = view.without(trigger["name"])
        elif isinstance(trigger, dict):
            values = {i["name"]: v for i, v in zip(ids, options, strict=True)}
            view = view.with_option(trigger["name"], values[trigger["name"]])
        else:
            named = {n: v for n, v in zip(FILTERS, filters, strict=True) if v}
            view = replace(view, filters=named)
        found = view.search()
        return no_update if found == (search or "") else found

    app.clientside_callback(
        "function(on){return [on, on ? 'dark' : 'light'];}",
        Output("dark", "data"),
        Output("theme", "forceColorScheme"),
        Input("dark-switch", "checked"),
    )
    app.clientside_callback(
        "function(page){return window.htkMountTimeline();}",
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
            w=120,
        )
        for name in FILTERS
    ]


def _menu(view: View) -> list[Any]:
    def link(page: str, title: str) -> Any:
        here = "here" if view.page == page else ""
        return dcc.Link(title, href=view.link(page), className=here)

    parts: list[Any] = [link("", "Overview"), link("timeline", "Timeline")]
    for subject, entries in pages.titles().items():
        parts.append(html.Div(subject, className="subject"))
        parts += [link(name, title) for name, title in entries]
    return parts


def _chips(view: View) -> list[Any]:
    return [
        html.Button(
            f"{name}: {value} ×",
            id={"type": "chip", "name": name},
            className="chip",
            title="remove",
        )
        for name, value in view.filters.items()
    ]


def _exports(app: Dash, trace: Trace) -> None:
    from flask import request

    kinds = {"csv": "text/csv", "md": "text/markdown", "parquet": "application/octet-stream"}

    @app.server.route("/export/<name>.<form>")
    def export(name: str, form: str) -> Response:
        if name not in ANALYSES or form not in kinds:
            return Response("no such export", 404)
        view = View.of(name, request.query_string.decode())
        try:
            chosen = view.values(find(name).options)
            result = api.run(view.narrowed(trace), name, **chosen)
        except HtkError as error:
            return Response(str(error), 400)
        disposition = {"Content-Disposition": f"attachment; filename={name}.{form}"}
        return Response(to_bytes(result, form), mimetype=kinds[form], headers=disposition)
