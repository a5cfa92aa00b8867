"""Which operators take the time: a table by name, shape, source or module, and the call tree."""

from typing import Any

from dash import html

from htk.base.mappings import Fields
from htk.dashboard import headlines, plots
from htk.dashboard.components import coverage, empty, headed, plot, section, select
from htk.dashboard.grids import answered, grid
from htk.dashboard.page import Page, Visit, panel

_BY = ["name", "shape", "source", "module", "thread"]
_VALUES = {"GPU time": "device_total_ns", "CPU time": "cpu_total_ns"}
_QUESTION = "Which operators take the time?"
_DEFAULTS = {"by": "name", "tree": "GPU time"}


def layout(visit: Visit) -> Any:
    by, tree = (visit.option(name, value) for name, value in _DEFAULTS.items())
    return html.Div(
        [
            headlines.heading("operators", _QUESTION),
            html.Div(
                [
                    select("by", _BY, by, label="operators by"),
                    select("tree", list(_VALUES), tree, label="tree of"),
                ],
                className="controls",
            ),
            panel("operators", "tree", 260),
            panel("operators", "table", 500),
            html.Div(
                [panel("operators", "modules", 400), panel("operators", "phases", 400)],
                className="halves",
            ),
            panel("operators", "python", 300),
        ]
    )


def _tree(visit: Visit) -> Any:
    result = visit.ask("op_tree")
    words = visit.option("tree", _DEFAULTS["tree"])
    value = _VALUES.get(words, "device_total_ns")
    rows = _whole(result.to_pylist(), value)
    if not rows and value == "device_total_ns":
        value = "cpu_total_ns"
        recorded = visit.trace.tables["kernels"].num_rows
        words = "CPU time" if recorded else "CPU time (no GPU time was recorded)"
        rows = _whole(result.to_pylist(), value)
    heading = f"Call tree by {words}"
    if not rows:
        return section(heading, empty("No operators under the filters that are set."))
    note = "Width is time; callees are below callers. Click to zoom in, the bar above to zoom out."
    fig = plots.tree(rows, value, visit.dark)
    return section(
        heading, plot(fig, heading, None, plots.tree_height(rows)), *coverage(result)[1:], note=note
    )


def _whole(rows: list[Fields], value: str) -> list[Fields]:
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


@headed(lambda visit: f"Operators by {visit.option('by', _DEFAULTS['by'])}")
def _table(visit: Visit) -> list[Any]:
    by = visit.option("by", _DEFAULTS["by"])
    return answered(visit, "op_breakdown", rows=15, by=by, n=100)


@headed("Which modules take the time?")
def _modules(visit: Visit) -> list[Any]:
    result = visit.ask("module_breakdown")
    if not len(result):
        return [empty(f"No {visit.trace.what_records('modules')}.")]
    return [grid(result, visit, {}, rows=10)]


@headed("Phases of a step")
def _phases(visit: Visit) -> list[Any]:
    return answered(visit, "phase_breakdown", rows=6)


@headed("Which Python functions take the time?")
def _python(visit: Visit) -> list[Any]:
    return answered(visit, "python_hotspots")


PAGE = Page(
    "operators",
    "Operators",
    11,
    layout,
    {
        headlines.PART: headlines.answering(_QUESTION, headlines.of_operators),
        "tree": _tree,
        "table": _table,
        "modules": _modules,
        "phases": _phases,
        "python": _python,
    },
    _DEFAULTS,
    group="Dig into",
    needs=("cpu_ops",),
)
