"""The answer to the edits of an address: numbers, waterfall, strips, assumptions."""

import json
from dataclasses import replace
from typing import Any

from dash import html

from htk.base.core.humanize import format_bytes, format_duration
from htk.base.errors import HtkError, UsageError
from htk.base.mappings import Fields
from htk.dashboard import whatif_plots
from htk.dashboard.components import (
    draw_empty_panel,
    draw_plot,
    draw_problem,
    draw_section,
    draw_tile,
)
from htk.dashboard.edits import PRICE, Edits, edits_of, label_of
from htk.dashboard.page import Visit
from htk.traces.trace.selection import Selection
from htk.whatif.api import WhatIf
from htk.whatif.left_out_ranks import needs_all_ranks
from htk.whatif.table import Terms

_MANY = 64  # ranks; of more a few stand for all


def is_of_few(visit: Visit) -> bool:
    """Return whether a few ranks stand for all of the run, where these are many."""
    trace = visit.runs.trace(visit.view.run)
    return trace is not None and len(trace.ranks) > _MANY


def find_replayed_step(visit: Visit, *, of_few: bool | None = None) -> WhatIf:
    """Return the replayed step of the run, made once; of many ranks that of a few which stand for
    all, unless all are asked for."""
    trace = visit.runs.trace(visit.view.run)
    if trace is None:
        raise UsageError("the run is not open")
    of_few = is_of_few(visit) if of_few is None else of_few

    def replay_baseline() -> WhatIf:
        asked = WhatIf(trace).representatives() if of_few else WhatIf(trace)
        _ = asked.stage
        return asked

    start: WhatIf = visit.runs.kept(
        visit.view.run, Selection(), ("whatif", of_few), replay_baseline
    )
    return start


def find_edited_step(visit: Visit, edits: Edits) -> WhatIf:
    """Return the step with the edits and the price of the address."""
    of_few = is_of_few(visit) and not any(needs_all_ranks(name) for name, _ in edits)
    asked = find_replayed_step(visit, of_few=of_few)
    price = visit.option(PRICE, "")
    try:
        terms = Terms(price=float(price)) if price else asked.terms
    except ValueError:
        raise UsageError(f"price {price!r}: a number was expected") from None
    asked = replace(asked, terms=terms)
    for name, value in edits:
        asked = asked.change(name, value)
    return asked


def predict_row(visit: Visit, edits: Edits) -> Fields:
    """Return the row that predicts the edited step, made once."""
    key = ("whatif", edits, visit.option(PRICE, ""))

    def replay_baseline() -> Fields:
        row: Fields = find_edited_step(visit, edits).run().to_pylist()[0]
        return row

    row: Fields = visit.runs.kept(visit.view.run, Selection(), key, replay_baseline)
    return row


def field_errors(visit: Visit) -> dict[str, str]:
    """Return what is wrong with fields of the address, by their names; found once, and only where
    all of them together have no answer."""
    edits = edits_of(visit.view)
    price = visit.option(PRICE, "")

    def replay_baseline() -> dict[str, str]:
        wrong_fields = {}
        try:
            predict_row(visit, edits)
        except UsageError:
            for name, value in edits:
                try:
                    predict_row(_with_edits(visit, ((name, value),)), ((name, value),))
                except UsageError as error:
                    wrong_fields[name] = str(error).removeprefix(f"{name} {value!r}: ")
        except HtkError:
            pass
        return wrong_fields

    try:
        float(price or 0)
    except ValueError:
        fitting = field_errors(_with_edits(visit, edits))
        return {**fitting, PRICE: "a number was expected"}
    wrong: dict[str, str] = visit.runs.kept(
        visit.view.run, Selection(), ("whatif errors", edits, price), replay_baseline
    )
    return wrong


def _with_edits(visit: Visit, edits: Edits) -> Visit:
    """Return a visit with these edits alone, without a price."""
    return replace(visit, view=replace(visit.view, options=dict(edits)))


def drop_unreadable_fields(visit: Visit) -> Visit:
    """Return the visit without fields that cannot be read."""
    wrong = field_errors(visit)
    options = {name: text for name, text in visit.view.options.items() if name not in wrong}
    return replace(visit, view=replace(visit.view, options=options)) if wrong else visit


def draw_whatif_answer(visit: Visit, *, with_strips: bool = True) -> Any:
    """Return the answer to the edits of the address; with none, what to do. A field that cannot be
    read is left out, and said."""
    left_out = [
        html.P(
            f"{label_of(name)}: {words.removeprefix(f'{name}: ')}. The answer is without it.",
            className="hint",
        )
        for name, words in field_errors(visit).items()
    ]
    visit = drop_unreadable_fields(visit)
    edits = edits_of(visit.view)
    notes = [html.Div(left_out, role="alert")] if left_out else []
    if notes and not edits:
        return html.Div(notes)
    if not edits:
        what_to_do = draw_empty_panel("Move a slider, choose a value or take a preset.")
        return html.Div([*notes, draw_section("What would change?", what_to_do)])
    try:
        row = predict_row(visit, edits)
    except HtkError as error:
        return html.Div([*notes, draw_problem(str(error))])
    if row["step_time_ns"] is None:
        return html.Div([*notes, draw_problem(str(row["verdict"]), "No prediction")])
    shown: list[Any] = [*notes, html.Div(_draw_tiles(row), className="tiles")]
    if any(json.loads(row["waterfall"]).values()):
        fig = whatif_plots.draw_step_change(row, visit.dark)
        shown.append(draw_section("What changes", draw_plot(fig, "what changes", None, 260)))
    drawn = draw_step_strips(visit) if with_strips else None
    strips_panel = html.Div(drawn, id="whatif-strips", style={"minHeight": "330px"})
    rests = draw_section("What the prediction rests on", *_describe_row(row))
    return html.Div([*shown, strips_panel, rests])


def draw_step_strips(visit: Visit) -> Any:
    """Return the two steps as strips: drawn after the numbers, which are there at once."""
    asked = find_edited_step(visit, edits_of(drop_unreadable_fields(visit).view))
    fig = whatif_plots.side_by_side(asked, visit.dark)
    shown = len(whatif_plots.telling_ranks(asked.stage.graph))
    ranks = len(set(asked.stage.graph.activities.rank.tolist()))
    note = "Most compute first."
    if shown < ranks:
        note = f"{shown} of {ranks} ranks, from the most compute to the least."
    return draw_section(
        "Measured and predicted step", draw_plot(fig, "two steps", None, 260), note=note
    )


def _draw_tiles(row: Fields) -> list[Any]:
    low = format_duration(row["step_time_ns_lo90"])
    high = format_duration(row["step_time_ns_hi90"])
    band = f"{low} to {high} (90 %)"
    naive = f"in proportion: {format_duration(row['naive_linear_ns'])}"
    shown = [
        draw_tile(
            "step time", format_duration(row["step_time_ns"]), f"{row['change_pct']:+.1f} %, {band}"
        ),
        draw_tile("measured", format_duration(row["measured_step_time_ns"]), naive),
        draw_tile("time per sample (per GPU)", f"{row['time_per_sample_change_pct']:+.1f} %"),
    ]
    if row["exposed_comm_ns"] is not None:  # representatives do not tell it of all ranks
        exposed = format_duration(row["exposed_comm_ns"])
        shown.append(draw_tile("exposed communication", exposed, "mean over ranks"))
    if row["tokens_per_s"] is not None:
        each = f"{row['tokens_per_s_per_gpu']:,.0f} a GPU"
        shown.append(draw_tile("tokens/s", f"{row['tokens_per_s']:,.0f}", each))
    if row["mfu_pct"] is not None:
        shown.append(draw_tile("MFU", f"{row['mfu_pct']:.1f} %"))
    if row["peak_memory_bytes"] is not None:
        risk = "" if row["p_oom"] is None else f"out of memory: {100 * row['p_oom']:.0f} %"
        shown.append(draw_tile("peak memory", format_bytes(row["peak_memory_bytes"]), risk))
    if row["cost_per_million_tokens"] is not None:
        shown.append(draw_tile("a million tokens", f"{row['cost_per_million_tokens']:.3g}"))
    return shown


def _describe_row(row: Fields) -> list[Any]:
    sigmas = json.loads(row["sigma_by_source"])
    parts = ", ".join(f"{k} {v:.1f} %" for k, v in sorted(sigmas.items(), key=lambda d: -d[1]) if v)
    lines = [
        ("Verdict", row["verdict"]),
        ("Assumed", row["assumptions"]),
        ("Uncertainty, one standard deviation, from", parts),
        ("90 % intervals so far", row["intervals_held"] or ""),
        ("To record next", (row["next_recording"] or "").replace(" (--with)", "")),
    ]
    return [html.P([html.B(f"{head}: "), text]) for head, text in lines if text]
