"""What-ifs: sliders, predictions with their intervals, and the verdict on the replay."""

from functools import partial
from typing import Any

import pyarrow as pa
from dash import ALL, Dash, Input, Output, State, ctx, dcc, html, no_update

from htk.answers.output.result import Result
from htk.base.core.humanize import format_duration, make_sentence
from htk.base.mappings import Fields
from htk.dashboard import headlines, whatif_plots
from htk.dashboard.components import (
    draw_empty_panel,
    draw_part_safely,
    draw_plot,
    draw_section,
    spell_attributes,
)
from htk.dashboard.edits import (
    KNOWN,
    SAVED,
    build_moved_view,
    build_whatif_address,
    draw_edit_controls,
    draw_presets,
    is_lone,
    is_of_server,
    read_chosen_edits,
    saved_of,
    strip_separators,
    write_scenarios,
)
from htk.dashboard.grids import draw_grid
from htk.dashboard.markup import compact_components
from htk.dashboard.page import WAITING, Page, Visit, draw_panel, keep_address
from htk.dashboard.runs import Runs
from htk.dashboard.url_state import UrlState
from htk.dashboard.whatif_answer import (
    draw_step_strips,
    draw_whatif_answer,
    field_errors,
    find_edited_step,
    find_replayed_step,
    is_of_few,
)
from htk.dashboard.whatif_verdict import describe_scenario, draw_verdict_badge
from htk.traces.trace.selection import Selection
from htk.whatif.label import BATCHES, SHARDINGS
from htk.whatif.text import in_words, read_savings

_QUESTION = "What would a step take if …?"
_MAP = "Micro-batch × sharding"


def layout(visit: Visit) -> Any:
    for side in ("kernels", "launches"):  # of what is replayed, said once
        visit.trace.everything.need(side)
    pictures = [draw_panel("whatif", "bounds", 340)]
    if is_of_few(visit):  # it is predicted from every rank, which takes longer than all the rest
        ask = html.Button("Predict it from every rank", id="whatif-map-ask", className="chip")
        pictures.append(html.Div(draw_section(_MAP, ask), id="whatif-map"))
    elif not is_of_server(visit) and not is_lone(visit):  # which have no shards
        pictures.append(draw_panel("whatif", "map", 340))
    return html.Div(
        [
            html.Div(headlines.draw_heading("whatif", _QUESTION), id="whatif-headline"),
            html.P(
                "Of the whole recording, whatever the filters are. The recorded step is replayed "
                "untouched first, and compared with what was measured.",
                className="doc",
            ),
            html.Div(draw_panel("whatif", "badge", 40), id="whatif-badge"),
            html.Div(draw_panel("whatif", "presets", 30)),
            html.Div(
                [
                    html.Div(draw_edit_controls(visit), className="edits"),
                    html.Div(
                        [
                            dcc.Loading(
                                html.Div(draw_panel("whatif", "answer"), id="whatif-answer"),
                                delay_show=400,
                                **WAITING,
                            ),
                            html.Div(draw_panel("whatif", "scenarios", 0), id="whatif-scenarios"),
                            html.Div(pictures, className="halves"),
                        ]
                    ),
                ],
                className="panes",
            ),
            dcc.Store(id="whatif-address"),
            dcc.Store(id="whatif-visit"),
            dcc.Store(id="whatif-saved", data=visit.option(SAVED, "")),
        ]
    )


def _draw_preset_links(visit: Visit) -> Any:
    return html.Div(
        draw_presets(visit, find_replayed_step(visit).stage.served), className="presets"
    )


def _write_sentences(visit: Visit) -> tuple[str, str] | None:
    return describe_scenario(visit) or _describe_best(visit)


def _best_cases(visit: Visit) -> list[Fields]:
    """Return the best case of each remedy, made once."""
    rows: list[Fields] = visit.runs.kept(
        visit.view.run, Selection(), "bounds", lambda: find_replayed_step(visit).run().to_pylist()
    )
    return rows


def _describe_best(visit: Visit) -> tuple[str, str] | None:
    """Return what the best single remedy brings a step to."""
    rows = [row for row in _best_cases(visit) if row["step_time_ns"] is not None]
    if not rows:
        return None
    best = max(rows, key=lambda row: read_savings(row)[0])
    now = format_duration(best["measured_step_time_ns"])
    then = format_duration(best["step_time_ns"])
    words = make_sentence(in_words(str(best["whatif"]))).rstrip(".")
    served = find_replayed_step(visit).stage.served
    if served is not None and best["tokens_per_s"]:
        before = served.tokens_per_s(best["measured_step_time_ns"])
        return (
            f"One change brings the replayed iterations from {before:,.0f} to "
            f"{best['tokens_per_s']:,.0f} tokens a second",
            words,
        )
    if best["step_time_ns"] >= best["measured_step_time_ns"]:
        return f"No remedy tried alone shortens the replayed step of {now}", ""
    return f"One remedy brings the replayed step from {now} to {then} at best", words


def _draw_bounds(visit: Visit) -> Any:
    heading = "Best case of each remedy alone"
    rows = _best_cases(visit)
    if all(r["step_time_ns"] is None for r in rows):
        return draw_section(heading, draw_empty_panel(str(rows[0]["verdict"])))
    fig = whatif_plots.draw_savings_bounds(rows, visit.dark)
    note = "Each on its own, with its 90 % interval; they overlap. Click one to try it."
    if is_of_few(visit):
        note += " Slow and late ranks, which only all ranks tell, are not among them."
    return draw_section(
        heading, draw_plot(fig, heading, {"type": "sweep", "name": "bounds"}, 260), note=note
    )


def _draw_map(visit: Visit) -> Any:
    def compute_cells() -> list[Fields]:
        asked = find_replayed_step(visit, of_few=False).sweep("batch", *BATCHES)
        cells: list[Fields] = asked.sweep("sharding", *SHARDINGS).run().to_pylist()
        return cells

    rows = visit.runs.kept(visit.view.run, Selection(), "map", compute_cells)
    if all(r["step_time_ns"] is None for r in rows):
        return draw_section(_MAP, draw_empty_panel(str(rows[0]["verdict"])))
    note = "Step time; the bluer, the longer a sample takes a GPU. Blank: too large, or no answer."
    return draw_section(
        _MAP,
        draw_plot(
            whatif_plots.batch_map(rows, visit.dark),
            _MAP,
            {"type": "sweep", "name": "map"},
            260,
        ),
        note=f"{note} A click tries a cell.",
    )


def _build_compared(visit: Visit) -> Result:
    """Saved scenarios and the current one as a table."""
    asked = find_replayed_step(visit)
    tables = []
    for name, edits in saved_of(visit.option(SAVED, "")):
        result = find_edited_step(visit, edits).run()
        row = result.table.slice(0, 1)
        label = row["whatif"].type
        named = pa.array([f"{name}: {row['whatif'][0].as_py()}"]).cast(label)
        tables.append(row.set_column(0, row.schema.field(0), named))
    bare = asked.run()  # what could be won at most: for the label, and the facts of the recording
    table = pa.concat_tables(tables).unify_dictionaries() if tables else bare.table.slice(0, 0)
    return Result(bare.analysis, table, bare.coverage)


_COLUMNS = (
    "whatif", "step_time_ns", "step_time_ns_lo90", "step_time_ns_hi90", "change_pct",
    "time_per_sample_change_pct", "tokens_per_s", "mfu_pct", "peak_memory_bytes", "p_oom",
    "exposed_comm_ns", "cost_per_million_tokens", "mark", "verdict",
)  # fmt: skip


def _draw_scenarios(visit: Visit) -> Any:
    saved = saved_of(visit.option(SAVED, ""))
    if not saved:
        return html.Div()
    shown = draw_part_safely(
        lambda v: draw_grid(
            _build_compared(v), v, {SAVED: v.option(SAVED, "")}, rows=len(saved), only=_COLUMNS
        ),
        visit,
    )
    opens = [
        html.Span(
            [
                html.A(name, href=build_whatif_address(visit.view, edits), className="export"),
                html.Button(
                    "×",
                    id={"type": "scenario-drop", "name": name},
                    className="chip",
                    **spell_attributes(aria_label=f"forget {name}"),
                ),
            ]
        )
        for name, edits in saved
    ]
    bands = draw_part_safely(_draw_bands, visit)
    return draw_section("Scenarios", html.Div(opens, className="controls"), bands, shown)


def _draw_bands(visit: Visit) -> Any:
    """Return the step of each scenario with its intervals, beside the measured one."""
    rows = _build_compared(visit).to_pylist()
    heading = "Step time, with 50 % and 90 % intervals"
    height = 90 + 30 * (len(rows) + 1)
    return draw_plot(whatif_plots.draw_intervals(rows, visit.dark), heading, None, height)


def fields_in_error(visit: Visit) -> dict[str, str]:
    """Return what is wrong with fields; nothing where the answer says that it failed itself."""
    try:
        return field_errors(visit)
    except Exception:  # logged with the answer
        return {}


_HEADLINE = headlines.fill_heading(_QUESTION, _write_sentences)


def _register_callbacks(app: Dash, runs: Runs) -> None:
    edits = (
        State({"type": "edit", "name": ALL}, "value"),
        State({"type": "edit", "name": ALL}, "id"),
    )

    # Saving and forgetting wait for no answer, and no answer for them: of two requests to one
    # callback the browser hears the later alone.
    @app.callback(
        Output("whatif-saved", "data"),
        Input("scenario-save", "n_clicks"),
        *edits,
        State("scenario-name", "value"),
        State("whatif-saved", "data"),
        prevent_initial_call=True,
    )
    def save_scenario(
        _: Any, values: list[Any], ids: list[Any], name: str | None, stored: str
    ) -> Any:
        now = tuple((k, v) for k, v in read_chosen_edits(ids, values).items() if v and k in KNOWN)
        saved = saved_of(stored)
        label = strip_separators(name) or f"scenario {len(saved) + 1}"
        others = [scenario for scenario in saved if scenario[0] != label]
        return write_scenarios([*others, (label, now)]) if now else no_update

    @app.callback(
        Output("whatif-saved", "data", allow_duplicate=True),
        Input({"type": "scenario-drop", "name": ALL}, "n_clicks"),
        State("whatif-saved", "data"),
        prevent_initial_call=True,
    )
    def drop_scenario(clicks: list[Any], stored: str) -> Any:
        trigger = ctx.triggered_id
        if not any(clicks) or trigger is None:  # they have only come
            return no_update
        return write_scenarios(
            [scenario for scenario in saved_of(stored) if scenario[0] != trigger["name"]]
        )

    @app.callback(
        Output("whatif-scenarios", "children"),
        Input("whatif-saved", "data"),
        *edits,
        State("address", "search"),
        State("dark", "data"),
        prevent_initial_call=True,
    )
    def compare_scenarios(saved: str, values: Any, ids: Any, search: str, dark: bool) -> Any:
        return compact_components(
            _draw_scenarios(Visit(runs, build_moved_view(search, ids, values, saved), bool(dark)))
        )

    @app.callback(
        Output("whatif-answer", "children"),
        Output("whatif-address", "data"),
        Output({"type": "edit-error", "name": ALL}, "children"),
        Output("whatif-headline", "children"),
        Output("whatif-badge", "children"),
        Input({"type": "edit", "name": ALL}, "value"),
        Input("whatif-saved", "data"),
        State({"type": "edit", "name": ALL}, "id"),
        State({"type": "edit-error", "name": ALL}, "id"),
        State("address", "search"),
        State("dark", "data"),
        prevent_initial_call=True,
    )
    def predict_step(
        values: list[Any],
        saved: str,
        ids: list[Any],
        fields: list[Any],
        search: str,
        dark: bool,
    ) -> Any:
        now = build_moved_view(search, ids, values, saved)
        visit = Visit(runs, now, bool(dark))
        shown = compact_components(
            draw_part_safely(partial(draw_whatif_answer, with_strips=False), visit)
        )
        wrong = fields_in_error(visit)
        errors = [wrong.get(field["name"], "") for field in fields]
        head = compact_components(draw_part_safely(_HEADLINE, visit))
        marks = compact_components(draw_part_safely(draw_verdict_badge, visit))
        return shown, now.search() or "?", errors, html.Div(head, className="headline"), marks

    @app.callback(
        Output("whatif-strips", "children"),
        Input("whatif-address", "data"),
        State("dark", "data"),
        prevent_initial_call=True,
    )
    def draw_step_times(search: str | None, dark: bool) -> Any:
        if not search:
            return no_update
        return compact_components(
            draw_part_safely(
                draw_step_strips, Visit(runs, UrlState.from_address("whatif", search), bool(dark))
            )
        )

    @app.callback(
        Output("whatif-visit", "data"),
        Input({"type": "sweep", "name": ALL}, "clickData"),
        State("address", "search"),
        prevent_initial_call=True,
    )
    def try_edit(_clicks: Any, search: str) -> Any:
        trigger = ctx.triggered_id
        clicked = ctx.triggered[0]["value"] if trigger else None
        if not clicked or trigger is None:
            return no_update
        point = clicked["points"][0]
        if trigger["name"] == "bounds":
            name, _, value = point["customdata"].partition(" ")
            edits: tuple[tuple[str, str], ...] = ((name, value),)
        else:
            edits = (("batch", point["x"].removeprefix("batch ")), ("sharding", point["y"]))
        return build_whatif_address(UrlState.from_address("whatif", search), edits)

    app.clientside_callback(
        "function(href){return window.htkVisit(href);}",
        Output("whatif-visit", "title"),
        Input("whatif-visit", "data"),
        prevent_initial_call=True,
    )
    keep_address(app, "whatif-address")

    @app.callback(
        Output("whatif-map", "children"),
        Input("whatif-map-ask", "n_clicks"),
        prevent_initial_call=True,
    )
    def draw_map(_: Any) -> Any:
        return dcc.Loading(draw_panel("whatif", "map", 340), **WAITING)


PAGE = Page(
    "whatif",
    "What if",
    2,
    layout,
    {
        headlines.PART: _HEADLINE,
        "badge": draw_verdict_badge,
        "presets": _draw_preset_links,
        "bounds": _draw_bounds,
        "map": _draw_map,
        "answer": draw_whatif_answer,
        "scenarios": _draw_scenarios,
    },
    {},
    {"whatif": _build_compared},
    _register_callbacks,
    needs=("launches",),
)
