"""The Dash app: a frame, the filters that hold on all pages, and the page of the address."""

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dash import ALL, MATCH, Dash, Input, Output, State, ctx, dcc, html, no_update
from flask import Response, request

from htk.analyses import ANALYSES, find_analysis
from htk.answers.output.plotting_library import packed_library
from htk.answers.output.tokens import FONT, MONO, css_classes, css_variables
from htk.base.core.defer_imports import spare_pandas
from htk.base.core.humanize import format_int_ranges
from htk.base.errors import HtkError
from htk.base.mappings import Fields
from htk.dashboard import compressed, derived, filters, grids, start
from htk.dashboard.components import draw_part_safely, draw_problem, spell_attributes
from htk.dashboard.files import add_routes as add_file_routes
from htk.dashboard.filters import IDS, draw_filter_pills
from htk.dashboard.frame import describe_run, draw_frame, draw_menu, draw_trust, plain_menu
from htk.dashboard.grids import rows_and_columns
from htk.dashboard.guard import install_guard
from htk.dashboard.markup import compact_components
from htk.dashboard.page import NAMED, Page, Visit, fill_drawn
from htk.dashboard.pages import answer_on_page, load_pages, needs_no_run
from htk.dashboard.runs import Runs
from htk.dashboard.table_view import group_rows
from htk.dashboard.timeline.routes import add_routes
from htk.dashboard.url_state import UrlState


def create_app(runs: Runs, *, token: str | None = None) -> Dash:
    """The dashboard. What a visitor looks at is all in the address; runs and answers are kept."""
    # Plotly looks into a loaded pandas, and fails where another request's thread still loads it.
    spare_pandas()
    app = Dash(
        "htk",
        title="htk",
        assets_folder=str(Path(__file__).parent / "assets"),
        serve_locally=True,
        suppress_callback_exceptions=True,
        update_title="",
    )
    app.index_string = _build_document()
    app.layout = compact_components(draw_frame())
    _serve_library(app)
    grids.defer_script()
    _register_pages(app, runs)
    _register_changes(app)
    _register_tables(app, runs)
    _register_colours(app)
    _register_following(app, runs)
    start.add_callbacks(app, runs)
    for page in load_pages().values():
        if page.register:
            page.register(app, runs)
    add_routes(app.server, runs)
    add_file_routes(app.server, runs)
    compressed.serve(app)
    install_guard(app, token)
    return app


_views = itertools.count()
_OF_RANKS = ("base", "new")  # options whose picker gives a list of ranks
# Where the charts of Dash look for the largest script: asked for while the first answers are made,
# run when a chart comes.
_PLOTTING = "/_dash-component-suites/plotly/package_data/plotly.min.js"


def _serve_library(app: Dash) -> None:
    """Serve what draws htk's pictures in place of all that Plotly can draw."""

    @app.server.route(_PLOTTING)
    def serve_library() -> Response:
        headers = {"Content-Encoding": "gzip", "Cache-Control": "no-cache"}
        answer = Response(packed_library(), mimetype="text/javascript", headers=headers)
        answer.add_etag()
        answer.make_conditional(request)
        return answer


def _build_document() -> str:
    """Return the page's skeleton: its colours stand before any script does."""
    schemes = (("", False), ('[data-mantine-color-scheme="dark"]', True))
    colours = "\n".join(f":root{where} {{ {css_variables(dark=dark)} }}" for where, dark in schemes)
    type_ = f":root {{ --font: {FONT}; --mono: {MONO}; }}"
    return (
        '<!DOCTYPE html><html lang="en"><head>{%metas%}'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<link rel="preload" as="script" fetchpriority="low" href="{_PLOTTING}">'
        f"<title>{{%title%}}</title>{{%favicon%}}<style>{colours}\n{type_}\n{css_classes()}</style>{{%css%}}</head>"
        "<body>{%app_entry%}<footer>{%config%}{%scripts%}{%renderer%}</footer></body></html>"
    )


def _register_pages(app: Dash, runs: Runs) -> None:
    @app.callback(
        Output("page", "children"),
        Output("menu", "children"),
        Output("filters", "children"),
        Output("run", "children"),
        Output("trust", "children"),
        Input("address", "pathname"),
        Input("address", "search"),
        Input("dark", "data"),
        Input("again", "data"),
        Input("followed", "data"),
    )
    def show_page(
        pathname: str, search: str, dark: bool, _again: Any, _followed: Any
    ) -> Sequence[Any]:
        return [
            compact_components(content) for content in _draw_places(runs, pathname, search, dark)
        ]

    @app.callback(
        Output({"type": "part", "page": MATCH, "part": MATCH}, "children"),
        Output({"type": "part", "page": MATCH, "part": MATCH}, "isAnswered"),
        Input({"type": "part", "page": MATCH, "part": MATCH}, "isWanted"),
        State({"type": "part", "page": MATCH, "part": MATCH}, "id"),
        State("address", "pathname"),
        State("address", "search"),
        State("dark", "data"),
        prevent_initial_call=True,  # the browser says which it wants first
    )
    def fill_part(
        _wanted: bool, part_id: dict[str, str], pathname: str, search: str, dark: bool
    ) -> tuple[Any, bool]:
        visit = Visit(runs, UrlState.from_address(pathname, search), bool(dark))
        return _draw_part(visit, part_id["page"], part_id["part"]), True


def _draw_part(visit: Visit, page_name: str, name: str) -> Any:
    """Return a part of a page."""
    page = load_pages().get("" if page_name == "overview" else page_name)
    if page is None or name not in page.parts:
        return draw_problem("There is no such part of the page.", "Not found")
    make = page.parts[name]
    return draw_part_safely(lambda v: v.drawn(name, lambda: compact_components(make(v))), visit)


def _draw_places(runs: Runs, pathname: str, search: str, dark: bool) -> Sequence[Any]:
    """Return the page of an address, the menu, the filters, the run's name, what it rests on."""
    view = UrlState.from_address(pathname, search)
    visit = Visit(runs, view, bool(dark))
    # Whose page it is; made anew, so that no chart of the last one becomes another of this one.
    here = {
        **spell_attributes(data_view=_join_address(pathname, search)),
        "key": f"view {next(_views)}",
    }
    if needs_no_run(view.page):
        shown = html.Div(draw_part_safely(_draw_page, visit), **here)
        if runs.trace(view.run) is None:
            return [shown, plain_menu(view, runs), [], describe_run(visit), []]
        return [shown, draw_menu(visit), [], describe_run(visit), draw_trust(visit)]
    if view.page == "runs" or (not view.run and not runs.has_initial):
        return [start.draw_start_page(runs), plain_menu(view, runs), [], "", []]
    waiting = _draw_opening_state(runs, view)
    if waiting is not None:
        return [waiting, plain_menu(view, runs), [], describe_run(visit), []]
    shown = html.Div(draw_part_safely(_draw_page, visit), **here)
    return [
        shown,
        draw_menu(visit),
        draw_filter_pills(visit),
        describe_run(visit),
        draw_trust(visit),
    ]


def _draw_opening_state(runs: Runs, view: UrlState) -> Any:
    """Return nothing where the run is open, else what to show until it is."""
    if runs.trace(view.run) is not None:
        return None
    try:
        return start.draw_opening(runs, view.run)
    except HtkError as error:
        return draw_problem(str(error), "Not opened")


def _draw_page(visit: Visit) -> Any:
    """Return what the address asks for."""
    page = load_pages().get(visit.view.page)
    if page is not None and not page.needs_run:
        return html.Div(_laid_out(page, visit), className="composed")
    if page is not None:
        left = html.Div(draw_part_safely(_whether_anything_is_left, visit))
        if left.children is not None:  # said before any part
            return html.Div([html.H1(page.title), left, _link_to_unfiltered(visit)])
        return html.Div(_laid_out(page, visit), className="composed")
    if visit.view.page in ANALYSES:
        return visit.drawn(
            "page", lambda: compact_components(derived.draw_question_page(visit, visit.view.page))
        )
    return draw_problem(f"There is no page {visit.view.page!r}.", "Not found")


def _laid_out(page: Page, visit: Visit) -> Any:
    return fill_drawn(draw_part_safely(page.layout, visit, html.H1(page.title)), visit)


def _whether_anything_is_left(visit: Visit) -> Any:
    """Nothing; what the filters say that cannot be read, or leaves nothing, is raised."""
    visit.trace.check_selection()


def _link_to_unfiltered(visit: Visit) -> Any:
    bare = UrlState(visit.view.page, {}, visit.view.options, visit.view.run)
    return dcc.Link("Remove all filters", href=f"/{bare.page}{bare.search()}", className="act")


def _register_changes(app: Dash) -> None:
    @app.callback(
        Output("changed", "data"),
        *[Input(f"filter-{name}", "value", allow_optional=True) for name in IDS],
        Input({"type": "option", "name": ALL}, "value"),
        Input({"type": "chip", "name": ALL}, "n_clicks"),
        Input({"type": "brush", "name": ALL}, "selectedData"),
        Input({"type": "by-rank", "name": ALL}, "clickData"),
        Input({"type": "grid", "name": ALL}, "cellDoubleClicked"),
        State({"type": "option", "name": ALL}, "id"),
        State("filter-time", "max", allow_optional=True),
        State("address", "pathname"),
        State("address", "search"),
        prevent_initial_call=True,
    )
    def change_address(*states: Any) -> Any:
        options, _, _, _, _, ids, longest, pathname, search = states[len(IDS) :]
        view = UrlState.from_address(pathname, search)
        trigger, value = ctx.triggered_id, ctx.triggered[0]["value"]
        if isinstance(trigger, dict):
            if trigger["type"] == "option":
                value = {i["name"]: v for i, v in zip(ids, options, strict=True)}[trigger["name"]]
            changed = _change_view(view, trigger, value)
        else:
            changed = filters.change_filter(
                view, str(trigger).removeprefix("filter-"), value, longest
            )
        query = changed.search()
        if query == (search or ""):
            return no_update
        return {"of": _join_address(pathname, search), "search": query}

    # An answer that comes when the visitor has gone elsewhere changes nothing there.
    app.clientside_callback(
        "function(changed, pathname, search){ return changed && "
        "changed.of === (pathname || '/') + (search || '') "
        "? window.htkWithTables(changed.search) : window.dash_clientside.no_update; }",
        Output("address", "search"),
        Input("changed", "data"),
        State("address", "pathname"),
        State("address", "search"),
        prevent_initial_call=True,
    )


def _join_address(pathname: str | None, search: str | None) -> str:
    return f"{pathname or '/'}{search or ''}"


def _change_view(view: UrlState, trigger: dict[str, str], value: Any) -> UrlState:
    """The view after a control was used."""
    if trigger["type"] == "option":
        if trigger["name"] in _OF_RANKS:
            value = format_int_ranges([int(rank) for rank in value or []]).replace(" ", "")
        return view.with_option(trigger["name"], value, _find_default(view.page, trigger["name"]))
    if not value:
        return view
    if trigger["type"] == "chip":
        return filters.clear_filter(view, trigger["name"])
    if trigger["type"] == "brush":
        drawn = value.get("range", {})  # on the axis of one recording: x, x2, …
        low, high = sorted(next((drawn[axis] for axis in drawn if axis.startswith("x")), [0, 0]))
        return (
            view.with_filters(from_=filters.time_text(low), to=filters.time_text(high))
            if high > low
            else view
        )
    if trigger["type"] == "by-rank":
        return view.with_filters(ranks=str(value["points"][0]["customdata"]))
    column = value.get("colId")
    cell = value.get("value")
    target = {"rank": "ranks", "step": "steps", **dict.fromkeys(NAMED, "name")}.get(column)
    return view.with_filters(**{target: str(cell)}) if target and cell is not None else view


def _find_default(page: str, name: str) -> Any:
    if page in load_pages():
        return load_pages()[page].options.get(name)
    return find_analysis(page).options[name].default if page in ANALYSES else None


def _register_tables(app: Dash, runs: Runs) -> None:
    @app.callback(
        Output({"type": "grid", "name": MATCH}, "rowData"),
        Output({"type": "grid", "name": MATCH}, "columnDefs"),
        Input({"type": "group", "name": MATCH}, "value"),
        State({"type": "asked", "name": MATCH}, "data"),
        State("address", "search"),
        prevent_initial_call=True,
    )
    def group_grid(by: str | None, asked: Fields, search: str) -> Any:
        visit = Visit(runs, UrlState.from_address("", search))
        result = answer_on_page(visit, asked["analysis"], asked["options"])
        table = group_rows(result.table, by) if by else result.table
        grid = rows_and_columns(table, int(result.coverage.get("origin_ns") or 0))
        return grid["rowData"], grid["columnDefs"]

    app.clientside_callback(
        "function(cells){ return window.htkRowTimeline(cells); }",
        Output("visited", "data"),
        Input({"type": "grid", "name": ALL}, "cellClicked"),
        prevent_initial_call=True,
    )

    # Into the address too, which does not make the page anew.
    app.clientside_callback(
        "function(groups, columns, filters, tables, grids){"
        " window.htkTables(groups, columns, filters, tables, grids); }",
        Input({"type": "group", "name": ALL}, "value"),
        Input({"type": "grid", "name": ALL}, "columnState"),
        Input({"type": "grid", "name": ALL}, "filterModel"),
        State({"type": "group", "name": ALL}, "id"),
        State({"type": "grid", "name": ALL}, "id"),
        prevent_initial_call=True,
    )


def _register_following(app: Dash, runs: Runs) -> None:
    """Show the page again, under the same filters, when a followed run has been reread."""
    app.clientside_callback(
        "function(on){ return !on; }",
        Output("follow-tick", "disabled"),
        Input("follow", "checked"),
    )

    @app.callback(
        Output("followed", "data"),
        Output("follow-state", "children"),
        Input("follow-tick", "n_intervals"),
        State("followed", "data"),
        State("address", "search"),
        prevent_initial_call=True,
    )
    def look_for_news(_ticks: int, shown: Fields | None, search: str) -> Any:
        key = UrlState.from_address("", search).run
        try:
            news = runs.follow(key)
        except HtkError as error:
            return no_update, str(error)
        if news is None:
            return no_update, "this run has no files that could change"
        now = {"run": key, "version": news.version}
        return (no_update if now == shown or not news.version else now), news.text


def _register_colours(app: Dash) -> None:
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
