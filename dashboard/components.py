"""The pieces that pages are made of: tables, plots, tiles, controls, words for what went wrong."""

import functools
import logging
import re
import typing
from collections.abc import Callable, Sequence
from typing import Any

import dash_mantine_components as dmc
import pyarrow.compute as pc
from dash import dcc, html

from htk.answers.output.coverage_text import coverage_lines
from htk.answers.output.figure_text import with_plain_names
from htk.answers.output.figures import draw_figure
from htk.answers.output.rank_map import META as POPULATION
from htk.answers.output.result import Result
from htk.answers.output.tokens import palette_of
from htk.base.core.analysis import Option
from htk.base.errors import HtkError, MissingTable
from htk.base.mappings import Fields
from htk.dashboard.page import Visit
from htk.dashboard.url_state import spell_option

_FILES = re.compile(r"^.*?: (?=no )")  # the page is of these files alone
_COMMANDS = re.compile(r" \(htk [^)]*\)|; choose with --.*")  # said of the command line
_ADVICE = re.compile(r"; `htk [^`]*`[^;]*$")


# Pixels of a figure: the most, of a bar that lies, and of what is around those bars.
_HIGHEST, _ROW, _AROUND_ROWS = 380, 44, 130

# Of a choice: a list that waits closed in the page works out its place at each change of the page.
MADE_ON_OPENING: Any = {"keepMounted": False}


def draw_problem(text: str, title: str = "No answer") -> Any:
    return html.Div([html.B(title), html.P(text)], className="problem", role="alert")


def spell_attributes(**values: str) -> Fields:
    """Return keyword arguments as attributes: aria_label=… becomes aria-label."""
    return {name.replace("_", "-"): value for name, value in values.items()}


def draw_empty_panel(text: str) -> Any:
    """Return a panel that says why there is nothing to show, which is no fault."""
    return html.Div(text, className="empty")


def draw_section(heading: Any, *children: Any, note: str = "") -> Any:
    """Return a panel of a page: what it shows, in what way, and the thing itself."""
    return html.Section([html.H2(heading), *draw_hint(note), *children])


def draw_hint(words: str) -> list[Any]:
    """Return small words below a heading; nothing of none."""
    return [html.P(words, className="hint")] if words else []


def add_heading(
    heading: str | Callable[[Visit], Any],
) -> Callable[[Callable[[Visit], list[Any]]], Callable[[Visit], Any]]:
    """Make a panel of what a function returns; it keeps its heading where a table is missing."""

    def decorate_panel(make: Callable[[Visit], list[Any]]) -> Callable[[Visit], Any]:
        @functools.wraps(make)
        def draw_part(visit: Visit) -> Any:
            try:
                children = make(visit)
            except MissingTable as error:
                children = [draw_empty_panel(not_there(str(error)))]
            return draw_section(heading if isinstance(heading, str) else heading(visit), *children)

        return draw_part

    return decorate_panel


def of_all_steps(visit: Visit) -> str:
    """Return that figures are of the recording, where others beside them are of a step."""
    steps = len(pc.unique(visit.trace.tables["step_windows"]["step"]))
    return f"Added up over the recording: {steps} steps." if steps > 1 else ""


def draw_part_safely(make: Callable[[Visit], Any], visit: Visit, heading: Any = None) -> Any:
    """Return a part of a page, or what went wrong in its place; missing data keeps the heading."""
    try:
        return make(visit)
    except MissingTable as error:
        return html.Div([heading, draw_empty_panel(not_there(str(error)))])
    except HtkError as error:
        return draw_problem(str(error))
    except Exception as error:  # one part that fails leaves the others standing
        logging.getLogger("htk").exception("a part of the page %r failed", visit.view.page)
        words = f"Internal error; please report it. {type(error).__name__}: {error}"
        return draw_problem(words, "This part failed")


def without_commands(text: str) -> str:
    """Return a message without what it advises to type into a terminal."""
    return _ADVICE.sub("", text)


def not_there(message: str) -> str:
    """Return what is missing, in a page's words: filtered out, or not recorded."""
    reason = _FILES.sub("", message)
    if " within " in reason or " were recorded" in reason:
        return f"{reason[:1].upper()}{reason[1:]}."
    return f"Not recorded: {reason}."


def draw_tile(
    label: str, value: str, more: str = "", href: str = "", *, kind: str = "", drawn: Any = None
) -> Any:
    """Return a headline number: what it is, how much, and what stands beside it. Its unit is small;
    `kind` is `alert`, or the meaning of a meter's colour."""
    number, space, unit = value.rpartition(" ")
    is_number = bool(space) and number[:1].lstrip("+−-").isdigit() | number[:2].isdigit()
    shown_value: Any = [number, html.Small(unit)] if is_number else value
    inside = [
        html.Div(label, className="tile-label"),
        html.Div(shown_value, className="tile-value"),
        *([drawn] if drawn is not None else []),
        html.Div(more, className="tile-more"),
    ]
    name = f"tile {kind}".strip()
    return dcc.Link(inside, href=href, className=name) if href else html.Div(inside, className=name)


def draw_meter(pct: float, kind: str) -> Any:
    """Return a share as a bar in the colour of what it is of."""
    width = {"width": f"{max(0.0, min(pct, 100.0)):.2f}%"}
    return html.Div(html.I(className=f"k-{kind}", style=width), className="meter")


def draw_spark(values: Sequence[float], *, dark: bool) -> Any:
    """Return a few values as a small line, the last with a dot; from zero where they stand."""
    if len(values) < 2:
        return None
    colour = palette_of(dark)["accent"].replace("#", "%23")
    low = min(values)
    high = max(values)
    span = (high - low) or 1.0
    x = [4 + 152 * k / (len(values) - 1) for k in range(len(values))]
    y = [22 - 18 * (v - low) / span if high > low else 13 for v in values]
    points = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x, y, strict=True))
    drawn = (
        "data:image/svg+xml;utf8,<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 160 26'>"
        f"<polyline points='{points}' fill='none' stroke='{colour}' stroke-width='1.8'/>"
        f"<circle cx='{x[-1]:.1f}' cy='{y[-1]:.1f}' r='2.6' fill='{colour}'/></svg>"
    )
    return html.Img(src=drawn, className="spark", alt="")


def draw_control(option: Option, value: Any) -> Any:
    """Return a control for an option; its id says which."""
    choices = [str(c) for c in typing.get_args(option.type) if c is not type(None)]
    optional = type(None) in typing.get_args(option.type)
    literals = [a for a in (option.type, *typing.get_args(option.type)) if _is_literal(a)]
    if literals:
        choices = [str(c) for c in typing.get_args(literals[0])]
    if option.type is bool:
        choices = ["true", "false"]
    words: Fields = {"label": option.name.replace("_", " "), "description": option.doc}
    if option.type is bool or literals:
        return draw_select(option.name, choices, spell_option(value), clearable=optional, **words)
    control_id = {"type": "option", "name": option.name}
    return dmc.TextInput(id=control_id, value=spell_option(value), debounce=400, w=220, **words)


def _is_literal(kind: Any) -> bool:
    return typing.get_origin(kind) is typing.Literal


def draw_select(name: str, choices: list[str], value: str, **more: Any) -> Any:
    """Return a choice that the address keeps."""
    control_id = {"type": "option", "name": name}
    shared: Fields = {"w": 220, "allowDeselect": False, "label": name, **more}
    shared["comboboxProps"] = MADE_ON_OPENING
    return dmc.Select(id=control_id, data=choices, value=value or None, **shared)


def draw_slider(name: str, value: int, low: int, high: int, label: str) -> Any:
    """Return a number that the address keeps."""
    control_id = {"type": "option", "name": name}
    marks: Any = [{"value": v, "label": str(v)} for v in (low, (low + high) // 2, high)]
    bar = dmc.Slider(
        id=control_id,
        value=value,
        min=low,
        max=high,
        marks=marks,
        updatemode="mouseup",
        w=320,
        mb=24,
        thumbLabel=label,
    )
    return html.Div([html.Div(label, className="control-label"), bar])


def draw_answer(result: Result, *, dark: bool) -> Any:
    """Return an answer as it likes to be drawn."""
    chart = result.analysis.chart
    if chart is None or not len(result):
        return html.Div()
    drawn = draw_figure(result.table, chart, dark=dark)
    if not any(_has_values(trace) for trace in drawn.data):
        return html.Div()  # the table says what there is: axes without a mark say nothing
    if drawn.layout.meta != POPULATION:
        return draw_plot(drawn, result.analysis.question, height=_find_height(drawn))
    chosen = {"type": "by-rank", "name": result.analysis.name}
    map_of_ranks = draw_plot(drawn, result.analysis.question, chosen, drawn.layout.height)
    map_of_ranks.className += " population"
    map_of_ranks.tabIndex = 0  # arrows go from rank to rank
    return map_of_ranks


def _find_height(drawn: Any) -> int:
    """Return the height of a figure: of bars that lie, as much as they need."""
    rows = {y for trace in drawn.data if trace.type == "bar" and trace.orientation == "h"
            for y in trace.y}  # fmt: skip
    return min(_AROUND_ROWS + _ROW * len(rows), _HIGHEST) if rows else _HIGHEST


def _has_values(trace: Any) -> bool:
    """Return whether a trace of a figure shows anything."""
    if trace.type not in ("bar", "scatter"):
        return True
    values = trace.x if trace.orientation == "h" else trace.y
    return values is not None and any(value is not None for value in values)


def draw_plot(fig: Any, label: str, plot_id: Any = None, height: int = _HIGHEST) -> Any:
    """Return a figure that can be saved; its id, where it has one, makes clicks into filters."""
    config: Any = {"displaylogo": False, "displayModeBar": False, "responsive": True}
    identity = {"id": plot_id} if plot_id is not None else {}
    graph = dcc.Graph(
        figure=with_plain_names(fig), config=config, style={"height": f"{height}px"}, **identity
    )
    saves = [
        html.Button(
            kind.upper(),
            className="save",
            title=f"save as {kind}",
            **spell_attributes(data_save=kind),
        )
        for kind in ("png", "svg")
    ]
    return html.Figure(
        [graph, html.Div(saves, className="saves")],
        className="plot",
        **spell_attributes(aria_label=label),
    )


def draw_coverage(result: Result) -> list[Any]:
    """Return what an answer rests on in a line; facts of its analysis unfold from another."""
    lines = [_COMMANDS.sub("", line) for line in coverage_lines(result.coverage)]
    own = "; ".join(line.strip() for line in lines[1:])
    facts = [html.Details([html.Summary("How this was counted"), own], className="coverage")]
    return [*(html.Div(line, className="coverage") for line in lines[:1]), *(facts if own else [])]
