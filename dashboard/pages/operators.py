"""Which operators take the time: a table by name, shape, source or module, and the call tree."""

from typing import Any

from dash import html

from htk.base.mappings import Fields
from htk.dashboard import headlines, plots
from htk.dashboard.components import (
    add_heading,
    draw_coverage,
    draw_empty_panel,
    draw_plot,
    draw_section,
    draw_select,
)
from htk.dashboard.grids import draw_grid, draw_question
from htk.dashboard.page import Page, Visit, draw_panel

_BY = ["name", "shape", "source", "module", "thread"]
_VALUES = {"GPU time": "device_total_ns", "CPU time": "cpu_total_ns"}
_QUESTION = "Which operators take the time?"
_DEFAULTS = {"by": "name", "tree": "GPU time"}


def layout(visit: Visit) -> Any:
    by, tree = (visit.option(name, value) for name, value in _DEFAULTS.items())
    return html.Div(
        [
            headlines.draw_heading("operators", _QUESTION),
            html.Div(
                [
                    draw_select("by", _BY, by, label="operators by"),
                    draw_select("tree", list(_VALUES), tree, label="tree of"),
                ],
                className="controls",
            ),
            draw_panel("operators", "tree", 260),
            draw_panel("operators", "table", 500),
            html.Div(
                [draw_panel("operators", "modules", 400), draw_panel("operators", "phases", 400)],
                className="halves",
            ),
            draw_panel("operators", "python", 300),
        ]
    )


def _draw_tree(visit: Visit) -> Any:
    result = visit.ask("op_tree")
    words = visit.option("tree", _DEFAULTS["tree"])
    value = _VALUES.get(words, "device_total_ns")
    rows = _select_complete_rows(result.to_pylist(), value)
    if not rows and value == "device_total_ns":
        value = "cpu_total_ns"
        recorded = visit.trace.tables["kernels"].num_rows
        words = "CPU time" if recorded else "CPU time (no GPU time was recorded)"
        rows = _select_complete_rows(result.to_pylist(), value)
    heading = f"Call tree by {words}"
    if not rows:
        return draw_section(
            heading, draw_empty_panel("No operators under the filters that are set.")
        )
    note = "Width is time; callees are below callers. Click to zoom in, the bar above to zoom out."
    fig = plots.draw_call_tree(rows, value, visit.dark)
    return draw_section(
        heading,
        draw_plot(fig, heading, None, plots.tree_height(rows)),
        *draw_coverage(result)[1:],
        note=note,
    )


def _select_complete_rows(rows: list[Fields], value: str) -> list[Fields]:
    """Return the rows with time whose callers are there too; no callee longer than its caller."""
    kept: dict[int, Fields] = {}
    left: dict[int | None, int] = {}
    for row in rows:  # callers stand before callees
        parent = row["parent"]
        most = left.get(parent, row[value]) if parent is not None else row[value]
        time = min(row[value] or 0, most or 0)
        if time and (parent is None or parent in kept):
            kept[row["id"]] = {**row, value: time}
            left[row["id"]] = time
            if parent is not None:
                left[parent] -= time
    return list(kept.values())


@add_heading(lambda visit: f"Operators by {visit.option('by', _DEFAULTS['by'])}")
def _draw_table(visit: Visit) -> list[Any]:
    by = visit.option("by", _DEFAULTS["by"])
    return draw_question(visit, "op_breakdown", rows=15, by=by, n=100)


@add_heading("Which modules take the time?")
def _draw_modules(visit: Visit) -> list[Any]:
    result = visit.ask("module_breakdown")
    if not len(result):
        return [draw_empty_panel(f"No {visit.trace.what_records('modules')}.")]
    return [draw_grid(result, visit, {}, rows=10)]


@add_heading("Phases of a step")
def _draw_phases(visit: Visit) -> list[Any]:
    return draw_question(visit, "phase_breakdown", rows=6)


@add_heading("Which Python functions take the time?")
def _draw_python(visit: Visit) -> list[Any]:
    return draw_question(visit, "python_hotspots")


PAGE = Page(
    "operators",
    "Operators",
    11,
    layout,
    {
        headlines.PART: headlines.fill_heading(_QUESTION, headlines.of_operators),
        "tree": _draw_tree,
        "table": _draw_table,
        "modules": _draw_modules,
        "phases": _draw_phases,
        "python": _draw_python,
    },
    _DEFAULTS,
    group="Dig into",
    needs=("cpu_ops",),
)
