"""Plans without a recording: the layouts of a described job, and one of them opened."""

from dataclasses import replace
from typing import Any

import dash_mantine_components as dmc
from dash import ALL, Dash, Input, Output, State, ctx, dcc, html, no_update

from htk.dashboard.components import draw_part_safely
from htk.dashboard.markup import compact_components
from htk.dashboard.page import WAITING, Page, Visit, draw_panel, keep_address
from htk.dashboard.plan_answer import (
    AGAINST,
    AGAINST_WHAT,
    LAYOUT,
    PICTURE,
    TABLE,
    build_plan_table,
    draw_opened_layout,
    draw_plan_answer,
    layout_of_row,
    ring_at,
    search_layouts,
)
from htk.dashboard.plan_fields import draw_plan_inputs, errors_of
from htk.dashboard.plan_of_run import find_first_fields, read_plan_fields
from htk.dashboard.runs import Runs
from htk.dashboard.url_state import UrlState

_FIELD = {"type": "plan-field", "name": ALL}
_PICTURE = {"type": PICTURE["type"], "name": ALL}


def layout(visit: Visit) -> Any:
    return html.Div(
        [
            html.H1("What would training take, and in which layout?"),
            html.P(
                "From models alone, without a recording: every way to divide the GPUs is planned, "
                "the fastest that fit come first.",
                className="doc",
            ),
            html.Div(
                [
                    html.Div(
                        [
                            html.Div(draw_plan_inputs(read_plan_fields(visit)), className="fields"),
                            _draw_objective_choice(visit.option(AGAINST, "memory")),
                        ],
                        className="edits",
                    ),
                    dcc.Loading(
                        html.Div(draw_panel("plan", "answer", 640), id="plan-answer"),
                        delay_show=400,
                        **WAITING,
                    ),
                ],
                className="panes",
            ),
            html.Div(draw_panel("plan", "opened", 400), id="plan-layout"),
            dcc.Store(id="plan-chosen", data=visit.option(LAYOUT, "")),
            dcc.Store(id="plan-address"),
        ]
    )


def _draw_objective_choice(value: str) -> Any:
    return dmc.Select(
        id={"type": "plan-field", "name": AGAINST},
        label="step time against",
        data=[
            {"value": name, "label": objective.words} for name, objective in AGAINST_WHAT.items()
        ],
        value=value if value in AGAINST_WHAT else "memory",
        allowDeselect=False,
        size="xs",
    )


def _build_view(search: str, ids: list[dict[str, str]], values: list[Any], chosen: str) -> UrlState:
    """Return what the fields and the chosen layout say."""
    fields = {i["name"]: str(v or "").strip() for i, v in zip(ids, values, strict=True)}
    return replace(UrlState.from_address("plan", search), options={**fields, LAYOUT: chosen})


def address_of(visit: Visit) -> str:
    """Return the address of a plan, without the fields that are as it begins."""
    usual = {AGAINST: "memory", LAYOUT: "", **find_first_fields(visit)}
    view = visit.view
    changed = {name: text for name, text in view.options.items() if text != usual.get(name)}
    return replace(view, options=changed).search() or "?"


def _register_callbacks(app: Dash, runs: Runs) -> None:
    @app.callback(
        Output("plan-answer", "children"),
        Output(_FIELD, "error"),
        Output("plan-chosen", "data"),
        Input(_FIELD, "value"),
        State(_FIELD, "id"),
        State("plan-chosen", "data"),
        State("address", "search"),
        State("dark", "data"),
        prevent_initial_call=True,
    )
    def draw_plan(values: Any, ids: Any, chosen: str, search: str, dark: bool) -> Any:
        view = _build_view(search, ids, values, chosen)
        wrong = errors_of(view.options)
        errors = [wrong.get(i["name"]) for i in ids]
        if wrong:  # the old answer stays beside the field that is wrong
            return no_update, errors, no_update
        return (
            compact_components(draw_part_safely(draw_plan_answer, Visit(runs, view, bool(dark)))),
            errors,
            chosen,
        )

    @app.callback(
        Output("plan-chosen", "data", allow_duplicate=True),
        Input(_PICTURE, "clickData"),
        Input({"type": "grid", "name": TABLE}, "cellClicked", allow_optional=True),
        State(_FIELD, "value"),
        State(_FIELD, "id"),
        State("address", "search"),
        prevent_initial_call=True,
    )
    def choose_layout(points: Any, cell: Any, values: Any, ids: Any, search: str) -> Any:
        if ctx.triggered_id == PICTURE:
            point = points[0]["points"][0] if points and points[0] else {}
            return point.get("customdata", no_update)
        view = _build_view(search, ids, values, "")
        if not cell or not str(cell.get("rowId")).isdigit() or errors_of(view.options):
            return no_update
        return layout_of_row(search_layouts(view.options), int(cell["rowId"])) or no_update

    @app.callback(
        Output("plan-layout", "children"),
        Output("plan-address", "data"),
        Output(_PICTURE, "figure"),
        Input("plan-chosen", "data"),
        State(_FIELD, "value"),
        State(_FIELD, "id"),
        State("address", "search"),
        State("dark", "data"),
        prevent_initial_call=True,
    )
    def open_layout(chosen: str, values: Any, ids: Any, search: str, dark: bool) -> Any:
        view = _build_view(search, ids, values, chosen)
        visit = Visit(runs, view, bool(dark))
        rings = [ring_at(visit) for _ in ctx.outputs_list[2]]
        return (
            compact_components(draw_part_safely(draw_opened_layout, visit)),
            address_of(visit),
            rings,
        )

    keep_address(app, "plan-address")


PAGE = Page(
    "plan",
    "Plan",
    4,
    layout,
    {"answer": draw_plan_answer, "opened": draw_opened_layout},
    {},
    {TABLE: build_plan_table},
    _register_callbacks,
    needs_run=False,
)
