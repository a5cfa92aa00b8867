"""What would a step take if …: sliders, answers with their bands, the badge always in sight."""

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import dash_mantine_components as dmc
import pyarrow as pa
from dash import ALL, Dash, Input, Output, State, ctx, dcc, html, no_update

from htk.analyses.whatif.edits import EDITS
from htk.analyses.whatif.table import Terms
from htk.dashboard import forecast
from htk.dashboard.page import Page, Visit, part
from htk.dashboard.parts import attributes, empty, grid, plot, problem, safely, section, tile
from htk.dashboard.runs import Runs
from htk.dashboard.view import View
from htk.errors import HtkError, UsageError
from htk.models.hardware import catalogue
from htk.result import Result
from htk.selection import Selection
from htk.units import size, time
from htk.whatif_api import WhatIf
from htk.whatif_text import error

_AS_IS = "as recorded"
_FACTORS = ("0.25x", "0.5x", "1x", "2x", "4x", "8x", "16x")
_SLIDERS = {"batch": "micro-batch", "network": "network bandwidth", "host": "CPU speed"}
_CHOICES: dict[str, tuple[str, tuple[str, ...]]] = {
    "sharding": ("sharding", forecast.SHARDINGS),
    "overlap": ("overlap", ("perfect", "realistic", "serial")),
    "checkpointing": ("checkpointing", ("on", "off")),
    "precision": ("precision", ("bf16", "fp8", "fp32")),
}
_TEXTS = {"world": ("nodes × GPUs", "4x8"), "replace": ("replace a kernel", "PATTERN=2x")}
_KNOWN = {one.NAME: one.HELP for one in EDITS}
_PRICE = "price"
_SAVED = "saved"
_Edits = tuple[tuple[str, str], ...]


def layout(visit: Visit) -> Any:
    given = dict(_edits(visit.view))
    return html.Div(
        [
            dmc.Title("What would a step take if …?", order=2),
            html.P(
                "Of the whole recording, whatever the filters are. The recorded step is replayed "
                "untouched first; the badge says how far that can be believed.",
                className="doc",
            ),
            html.Div(part("whatif", "badge", 40), className="badge"),
            html.Div(
                [part("whatif", "bounds", 340), part("whatif", "map", 340)], className="halves"
            ),
            html.Div(
                [
                    html.Div(_controls(visit, given), className="edits"),
                    html.Div(
                        dcc.Loading(
                            html.Div(part("whatif", "answer"), id="whatif-answer"), delay_show=400
                        )
                    ),
                ],
                className="panes",
            ),
            html.Div(part("whatif", "scenarios", 0), id="whatif-scenarios"),
            dcc.Store(id="whatif-address"),
            dcc.Store(id="whatif-saved", data=visit.option(_SAVED, "")),
        ]
    )


# The controls; their ids say which edit they are of.


def _controls(visit: Visit, given: dict[str, str]) -> list[Any]:
    sliders = [_slider(name, given) for name in _SLIDERS]
    choices = [_choice(name, label, values, given) for name, (label, values) in _CHOICES.items()]
    choices.append(_choice("hardware", "hardware", tuple(sorted(catalogue())), given))
    texts = [_text(name, label, hint, given) for name, (label, hint) in _TEXTS.items()]
    first = {*_SLIDERS, *_CHOICES, *_TEXTS, "hardware"}
    more = [_text(n, n.replace("_", " "), "", given) for n in _KNOWN if n not in first]
    price = dmc.TextInput(
        id={"type": "edit", "name": _PRICE},
        label="price of a GPU-hour",
        value=visit.option(_PRICE, ""),
        debounce=400,
        size="xs",
    )
    opened = any(name in given for name in _KNOWN if name not in first)
    return [
        *sliders,
        html.Div([*choices, *texts, price], className="fields"),
        html.Details([html.Summary("more edits"), html.Div(more, className="fields")], open=opened),
        dmc.Group(
            [
                dmc.TextInput(
                    id="scenario-name",
                    placeholder="name",
                    size="xs",
                    w=130,
                    **attributes(aria_label="name of the scenario"),
                ),
                html.Button("Save scenario", id="scenario-save", className="chip"),
                html.A(
                    "Reset", href="/whatif" + View(run=visit.view.run).search(), className="export"
                ),
            ],
            gap="xs",
            mt="sm",
        ),
    ]


def _slider(name: str, given: dict[str, str]) -> Any:
    value = given.get(name, "1x").removeprefix("bandwidth=")
    place = _FACTORS.index(value) if value in _FACTORS else _FACTORS.index("1x")
    bar = dmc.Slider(
        id={"type": "edit", "name": name},
        value=place,
        min=0,
        max=len(_FACTORS) - 1,
        step=1,
        marks=[{"value": k, "label": label} for k, label in enumerate(_FACTORS)],
        label=None,
        updatemode="mouseup",
        thumbLabel=_SLIDERS[name],
        mb=26,
    )
    return html.Div([html.Div(_SLIDERS[name], className="control-label"), bar])


def _choice(name: str, label: str, values: Sequence[str], given: dict[str, str]) -> Any:
    chosen = given.get(name, _AS_IS)
    data = [_AS_IS, *values, *([] if chosen in (_AS_IS, *values) else [chosen])]
    place = {"type": "edit", "name": name}
    return dmc.Select(
        id=place, label=label, data=data, value=chosen, allowDeselect=False, size="xs"
    )


def _text(name: str, label: str, hint: str, given: dict[str, str]) -> Any:
    return dmc.TextInput(
        id={"type": "edit", "name": name},
        label=label,
        placeholder=hint or _KNOWN[name].rstrip(".")[:60],
        value=given.get(name, ""),
        debounce=400,
        size="xs",
    )


def _value(name: str, value: Any) -> str:
    """What a control says, as the edit is written; empty: as recorded."""
    if name in _SLIDERS:
        text = _FACTORS[value] if isinstance(value, int) and 0 <= value < len(_FACTORS) else "1x"
        if text == "1x":
            return ""
        return f"bandwidth={text}" if name == "network" else text
    return "" if value in (None, _AS_IS) else str(value).strip()


# What is asked, from the address.


def _edits(view: View) -> _Edits:
    return tuple((name, view.options[name]) for name in _KNOWN if view.options.get(name))


def _start(visit: Visit) -> WhatIf:
    """The untouched step of the run, made once."""
    whole = visit.runs.trace(visit.view.run)
    if whole is None:
        raise UsageError("the run is not open")

    def made() -> WhatIf:
        asked = WhatIf(whole)
        _ = asked.stage
        return asked

    found: WhatIf = visit.runs.kept(visit.view.run, Selection(), "whatif", made)
    return found


def _asked(visit: Visit, edits: _Edits) -> WhatIf:
    asked = _start(visit)
    price = visit.option(_PRICE, "")
    try:
        terms = Terms(price=float(price)) if price else asked.terms
    except ValueError:
        raise UsageError(f"price {price!r}: a number was expected") from None
    asked = asked._with(replace(asked, terms=terms))
    for name, value in edits:
        asked = asked.change(name, value)
    return asked


def _row(visit: Visit, edits: _Edits) -> dict[str, Any]:
    key = ("whatif", edits, visit.option(_PRICE, ""))

    def made() -> dict[str, Any]:
        found: dict[str, Any] = _asked(visit, edits).run().to_pylist()[0]
        return found

    found: dict[str, Any] = visit.runs.kept(visit.view.run, Selection(), key, made)
    return found


# The parts.


def _badge(visit: Visit) -> Any:
    """Whether the replay can be believed, by which tests."""
    judged = _start(visit).stage.gate
    word, _, why = judged.verdict.partition(":")
    held = judged.held_out_error_pct
    tests = (
        f"step {error(judged.step_error_pct)} off",
        f"exposed communication {error(judged.exposed_error_points, 'points')} off",
        f"starts {error(judged.start_error_pct)} off",
        "no step held out" if held is None else f"another step {error(held)} off",
        f"{judged.observed_path_pct:.0f} % of the path recorded",
    )
    marks = [html.Span(text, className="mark") for text in tests]
    kind = "mark strong" if word == "trusted" else "mark strong warning"
    told = [html.Span(why.strip(), className="doc")] if why else []
    return html.Div([html.Span(word, className=kind), *marks, *told], className="trust")


def _bounds(visit: Visit) -> Any:
    heading = "What could be won at most"
    rows = visit.runs.kept(
        visit.view.run, Selection(), "bounds", lambda: _start(visit).run().to_pylist()
    )
    if all(r["step_time_ns"] is None for r in rows):
        return section(heading, empty(str(rows[0]["verdict"])))
    return section(heading, plot(forecast.bounds(rows, visit.dark), heading, None, 300))


def _map(visit: Visit) -> Any:
    heading = "Micro-batch × sharding"

    def made() -> list[dict[str, Any]]:
        asked = _start(visit).sweep("batch", *forecast.BATCHES)
        found: list[dict[str, Any]] = asked.sweep("sharding", *forecast.SHARDINGS).run().to_pylist()
        return found

    rows = visit.runs.kept(visit.view.run, Selection(), "map", made)
    if all(r["step_time_ns"] is None for r in rows):
        return section(heading, empty(str(rows[0]["verdict"])))
    note = (
        "Step time; colour is the time of a sample against now. Blank: does not fit, or no answer."
    )
    return section(
        heading, plot(forecast.batch_map(rows, visit.dark), heading, None, 300), note=note
    )


def _answer(visit: Visit, *, whole: bool = True) -> Any:
    """The answer to the edits of the address; with none, what to do."""
    edits = _edits(visit.view)
    if not edits:
        return empty("Move a slider, or choose something: the answer stands here, with its bands.")
    try:
        row = _row(visit, edits)
    except HtkError as error:
        return problem(str(error))
    if row["step_time_ns"] is None:
        return problem(str(row["verdict"]), "No prediction")
    shown: list[Any] = [html.Div(_tiles(row), className="tiles")]
    if any(json.loads(row["waterfall"]).values()):
        fig = forecast.change(row, visit.dark)
        shown.append(section("What changes", plot(fig, "what changes", None, 260)))
    strips = _strips(visit) if whole else None
    place = html.Div(strips, id="whatif-strips", style={"minHeight": "330px"})
    return html.Div([*shown, place, *_words(row)])


def _strips(visit: Visit) -> Any:
    """The two steps as strips: drawn after the numbers, which are there at once."""
    fig = forecast.side_by_side(_asked(visit, _edits(visit.view)), visit.dark)
    return section("Measured and predicted step", plot(fig, "two steps", None, 260))


def _tiles(row: dict[str, Any]) -> list[Any]:
    band = f"{time(row['step_time_ns_lo90'])} to {time(row['step_time_ns_hi90'])} (90 %)"
    naive = f"in proportion: {time(row['naive_linear_ns'])}"
    shown = [
        tile("step time", time(row["step_time_ns"]), f"{row['change_pct']:+.1f} %, {band}"),
        tile("measured", time(row["measured_step_time_ns"]), naive),
        tile("time of a sample", f"{row['time_per_sample_change_pct']:+.1f} %"),
        tile("exposed communication", time(row["exposed_comm_ns"]), "mean over ranks"),
    ]
    if row["tokens_per_s"] is not None:
        each = f"{row['tokens_per_s_per_gpu']:,.0f} a GPU"
        shown.append(tile("tokens/s", f"{row['tokens_per_s']:,.0f}", each))
    if row["mfu_pct"] is not None:
        shown.append(tile("MFU", f"{row['mfu_pct']:.1f} %"))
    if row["peak_memory_bytes"] is not None:
        risk = "" if row["p_oom"] is None else f"out of memory: {100 * row['p_oom']:.0f} %"
        shown.append(tile("peak memory", size(row["peak_memory_bytes"]), risk))
    if row["cost_per_million_tokens"] is not None:
        shown.append(tile("a million tokens", f"{row['cost_per_million_tokens']:.3g}"))
    return shown


def _words(row: dict[str, Any]) -> list[Any]:
    doubt = json.loads(row["doubt"])
    told = ", ".join(f"{k} {v:.1f} %" for k, v in sorted(doubt.items(), key=lambda d: -d[1]) if v)
    lines = [
        ("Verdict", row["verdict"]),
        ("Assumed", row["assumptions"]),
        ("Doubt, one sigma, from", told),
        ("To record next", row["narrow"]),
    ]
    return [html.P([html.B(f"{head}: "), text]) for head, text in lines if text]


# Scenarios: in the address, so that a link shares them.


def _saved(text: str) -> list[tuple[str, _Edits]]:
    """`name~batch=2x~sharding=ddp|other~…`."""
    found = []
    for one in filter(None, text.split("|")):
        name, *pairs = one.split("~")
        edits = [tuple(pair.split("=", 1)) for pair in pairs if "=" in pair]
        found.append((name, tuple((k, v) for k, v in edits if k in _KNOWN)))
    return found


def _written(saved: Sequence[tuple[str, _Edits]]) -> str:
    return "|".join("~".join([name, *(f"{k}={v}" for k, v in edits)]) for name, edits in saved)


def _compared(visit: Visit) -> Result:
    """Saved scenarios and the current one as a table."""
    asked = _start(visit)
    tables = []
    for name, edits in _saved(visit.option(_SAVED, "")):
        result = _asked(visit, edits).run()
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


def _scenarios(visit: Visit) -> Any:
    saved = _saved(visit.option(_SAVED, ""))
    if not saved:
        return html.Div()
    shown = safely(
        lambda v: grid(
            _compared(v), v, {_SAVED: v.option(_SAVED, "")}, rows=len(saved), only=_COLUMNS
        ),
        visit,
    )
    opens = [
        html.Span(
            [
                html.A(name, href=_opening(visit.view, edits), className="export"),
                html.Button(
                    "×",
                    id={"type": "scenario-drop", "name": name},
                    className="chip",
                    **attributes(aria_label=f"forget {name}"),
                ),
            ]
        )
        for name, edits in saved
    ]
    return section("Scenarios", html.Div(opens, className="controls"), shown)


def _opening(view: View, edits: _Edits) -> str:
    kept = {k: v for k, v in view.options.items() if k in (_SAVED, _PRICE)}
    return "/whatif" + View("whatif", view.filters, {**kept, **dict(edits)}, view.run).search()


# The callbacks: an answer is filled in place, and the address follows without a new page.


def _register(app: Dash, runs: Runs) -> None:
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
    def save(_: Any, values: list[Any], ids: list[Any], name: str | None, known: str) -> Any:
        chosen = tuple((k, v) for k, v in _chosen(ids, values).items() if v and k in _KNOWN)
        saved = _saved(known)
        label = _plain(name) or f"scenario {len(saved) + 1}"
        others = [one for one in saved if one[0] != label]
        return _written([*others, (label, chosen)]) if chosen else no_update

    @app.callback(
        Output("whatif-saved", "data", allow_duplicate=True),
        Input({"type": "scenario-drop", "name": ALL}, "n_clicks"),
        State("whatif-saved", "data"),
        prevent_initial_call=True,
    )
    def drop(clicks: list[Any], known: str) -> Any:
        trigger = ctx.triggered_id
        if not any(clicks) or trigger is None:  # they have only come
            return no_update
        return _written([one for one in _saved(known) if one[0] != trigger["name"]])

    @app.callback(
        Output("whatif-scenarios", "children"),
        Input("whatif-saved", "data"),
        *edits,
        State("address", "search"),
        State("dark", "data"),
        prevent_initial_call=True,
    )
    def compare(saved: str, values: Any, ids: Any, search: str, dark: bool) -> Any:
        return _scenarios(Visit(runs, _moved(search, ids, values, saved), bool(dark)))

    @app.callback(
        Output("whatif-answer", "children"),
        Output("whatif-address", "data"),
        Input({"type": "edit", "name": ALL}, "value"),
        Input("whatif-saved", "data"),
        State({"type": "edit", "name": ALL}, "id"),
        State("address", "search"),
        State("dark", "data"),
        prevent_initial_call=True,
    )
    def predict(values: list[Any], saved: str, ids: list[Any], search: str, dark: bool) -> Any:
        now = _moved(search, ids, values, saved)
        quick = partial(_answer, whole=False)
        return safely(quick, Visit(runs, now, bool(dark))), now.search() or "?"

    @app.callback(
        Output("whatif-strips", "children"),
        Input("whatif-address", "data"),
        State("dark", "data"),
        prevent_initial_call=True,
    )
    def draw(moved: str | None, dark: bool) -> Any:
        if not moved:
            return no_update
        return safely(_strips, Visit(runs, View.of("whatif", moved), bool(dark)))

    app.clientside_callback(
        "function(search){ if (search) { history.replaceState(history.state, '', "
        "location.pathname + (search === '?' ? '' : search)); } return ''; }",
        Output("whatif-address", "title"),
        Input("whatif-address", "data"),
        prevent_initial_call=True,
    )


def _chosen(ids: list[dict[str, str]], values: list[Any]) -> dict[str, str]:
    """What the controls say."""
    return {i["name"]: _value(i["name"], v) for i, v in zip(ids, values, strict=True)}


def _moved(search: str, ids: list[dict[str, str]], values: list[Any], saved: str) -> View:
    """The view that the controls and the saved scenarios make of the address."""
    options = {**_chosen(ids, values), _SAVED: saved}
    return replace(View.of("whatif", search), options={k: v for k, v in options.items() if v})


def _plain(name: str | None) -> str:
    """A name without the signs that part scenarios."""
    return " ".join((name or "").replace("~", " ").replace("|", " ").split())[:40]


PAGE = Page(
    "whatif",
    "What if",
    16,
    layout,
    {
        "badge": _badge,
        "bounds": _bounds,
        "map": _map,
        "answer": _answer,
        "scenarios": _scenarios,
    },
    {},
    {"whatif": _compared},
    _register,
)
