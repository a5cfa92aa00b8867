"""What the GPU runs: top kernels, families, tensor cores, sequences, occupancy, roofline, clock."""

from typing import Any

from dash import html

from htk.answers.output.figure_columns import scale_of_lengths
from htk.answers.output.figure_frame import frame_figure
from htk.answers.output.tokens import blend_colour, palette_of
from htk.base.core.humanize import make_sentence
from htk.base.names.rows_by import WORDS
from htk.dashboard import headlines, plots
from htk.dashboard.components import (
    add_heading,
    draw_answer,
    draw_coverage,
    draw_empty_panel,
    draw_hint,
    draw_plot,
    draw_select,
    draw_slider,
)
from htk.dashboard.counter_plots import draw_counters
from htk.dashboard.grids import draw_grid, draw_question
from htk.dashboard.page import Page, Visit, draw_panel
from htk.physics.hardware import Gpu, gpu, load_catalogue

_ORDERS = ["total", "count", "mean", "max"]
_QUESTION = "What do the GPUs run?"
_ROOFLINE = "Roofline: how close does the work come to what its GPU can do?"
_FAR = "How far are kernels from those measured at their size?"
_MOST_DRAWN = 30  # the table has them all
_FAR_DRAWN = 12
_SPANS = ("kernel", "op")  # what these name, the timeline draws
_POINTS = {"op": "operator", "shape": "operator and shape", "source": "line of the program"}
_DEFAULTS = {"by": "kernel", "n": "20", "sort_by": "total"}
_FILTERED = "No kernels under the filters that are set."


def layout(visit: Visit) -> Any:
    return html.Div(
        [
            headlines.draw_heading("kernels", _QUESTION),
            html.Div(
                [
                    draw_select("by", list(WORDS), _read_grouping(visit), label="rows by"),
                    draw_slider("n", _read_row_count(visit), 5, 100, "rows shown"),
                    draw_select("sort_by", _ORDERS, _sort_by(visit), label="sort by"),
                ],
                className="controls",
            ),
            draw_panel("kernels", "top", 500),
            html.Div(
                [draw_panel("kernels", "families", 420), draw_panel("kernels", "tensor", 420)],
                className="halves",
            ),
            html.Div(
                [draw_panel("kernels", "roofline", 520), draw_panel("kernels", "gap", 520)],
                className="halves",
            ),
            html.Div(
                [draw_panel("kernels", "occupancy", 420), draw_panel("kernels", "sequences", 420)],
                className="halves",
            ),
            draw_panel("kernels", "counters", 160),
        ]
    )


def _read_row_count(visit: Visit) -> int:
    typed = visit.option("n", _DEFAULTS["n"])
    return min(int(typed), 1000) if typed.isdigit() else int(_DEFAULTS["n"])


def _read_grouping(visit: Visit) -> str:
    return visit.option("by", _DEFAULTS["by"])


def _sort_by(visit: Visit) -> str:
    return visit.option("sort_by", _DEFAULTS["sort_by"])


@add_heading("Top kernels")
def _draw_kernels(visit: Visit) -> list[Any]:
    asked = {"by": _read_grouping(visit), "n": _read_row_count(visit), "sort_by": _sort_by(visit)}
    result = visit.ask("kernel_top", **asked)
    rows = result.to_pylist()
    if not rows:
        return [draw_empty_panel(_FILTERED)]
    first = rows[:_MOST_DRAWN]
    fig = plots.draw_ranked_bars(first, "name", "total_ns", visit.dark)
    drawn = draw_plot(fig, "top kernels", None, 120 + 20 * len(first))
    table = draw_grid(result, visit, asked, rows=10, spans=_read_grouping(visit) in _SPANS)
    return [drawn, table, *draw_coverage(result)[1:]]


@add_heading("Families")
def _draw_families(visit: Visit) -> list[Any]:
    return [*draw_hint(_whether_named(visit)), *draw_question(visit, "kernel_families", rows=6)]


def _whether_named(visit: Visit) -> str:
    """Return what to say of a panel of families, which have no names that a filter could look at,
    on a page that is filtered by name."""
    return "All kernels: the name filter does not apply." if visit.view.filters.get("name") else ""


def _unless_filtered(visit: Visit, reason: str) -> str:
    """Return why nothing is shown, where no filter of names left nothing."""
    return _FILTERED if visit.view.filters.get("name") else reason


@add_heading("Tensor cores")
def _draw_tensor_use(visit: Visit) -> list[Any]:
    """GPU time that could run on tensor cores, and does or does not."""
    result = visit.ask("kernel_families")
    rows = [r for r in result.to_pylist() if r["kind"] == "compute"]
    if not rows:
        return [draw_empty_panel("No kernels that compute.")]
    import plotly.graph_objects as go

    own = palette_of(visit.dark)
    parts = (
        ("on tensor cores", "tensor_core_ns", own["compute"]),
        (
            "not on tensor cores",
            "no_tensor_core_ns",
            blend_colour(own["compute"], own["panel"], 0.4),
        ),
        ("undetermined", "tensor_core_unknown_ns", own["undetermined"]),
    )
    longest = max(sum(r[column] or 0 for _, column, _ in parts) for r in rows)
    factor, unit = scale_of_lengths(longest)
    bars = [
        go.Bar(
            y=[r["family"] for r in rows],
            x=[(r[column] or 0) * factor for r in rows],
            orientation="h",
            name=name,
            marker={"color": colour},
        )
        for name, column, colour in parts
    ]
    axes = {"xaxis": {"title": f"{unit}, all ranks"}, "yaxis": {"autorange": "reversed"}}
    fig = frame_figure(bars, dark=visit.dark, barmode="stack", **axes)
    return [*draw_hint(_whether_named(visit)), draw_plot(fig, "tensor cores")]


@add_heading(_ROOFLINE)
def _draw_kernel_roofline(visit: Visit) -> list[Any]:
    asked: dict[str, Any] = {"by": _read_grouping(visit), "n": 100}
    result = visit.ask("roofline", **asked)
    rows = [r for r in result.to_pylist() if r["flops_per_byte"] and r["achieved_tflops"]]
    if not rows:
        how = make_sentence(visit.trace.what_records("shapes"))
        text = f"No operator has a model of its work. {how}"
        return [draw_empty_panel(_unless_filtered(visit, text)), *draw_coverage(result)]
    names = result.coverage.get("gpu") or []
    names = [names] if isinstance(names, str) else list(names)
    lines = [
        line for name in names[:1] if name in load_catalogue() for line in _list_peaks(gpu(name))
    ]
    fig = plots.draw_roofline(rows, lines or [("", 1.0, 1.0)], visit.dark)
    table = draw_grid(
        result, visit, asked, rows=6, spans=_read_grouping(visit) in (*_SPANS, "shape")
    )
    point = _POINTS.get(_read_grouping(visit), _read_grouping(visit))
    note = f"One point per {point}, sized by GPU time; lines are dense peaks."
    return [*draw_hint(note), draw_plot(fig, _ROOFLINE, None, 460), table, *draw_coverage(result)]


@add_heading(_FAR)
def _draw_gap(visit: Visit) -> list[Any]:
    """What the costliest calls take beyond kernels that were measured at their size."""
    asked: dict[str, Any] = {"by": _read_grouping(visit)}
    result = visit.ask("kernel_gap", **asked)
    far = [{**r, "kind": "compute"} for r in result.to_pylist() if r["gap_ns"] > 0]
    rows = far[:_FAR_DRAWN]
    if not rows:
        text = "No product, attention or expert takes longer than one that was measured."
        return [draw_empty_panel(_unless_filtered(visit, text)), *draw_coverage(result)]
    fig = plots.draw_ranked_bars(rows, "name", "gap_ns", visit.dark)
    drawn = draw_plot(fig, _FAR, None, 120 + 20 * len(rows))
    return [drawn, draw_grid(result, visit, asked, rows=6), *draw_coverage(result)]


def _list_peaks(gpu: Gpu) -> list[tuple[str, float, float]]:
    half = "bf16" if gpu.has("bf16") else "fp16"
    peaks = ((half, gpu.half_tflops), ("tf32", gpu.tf32_tflops), ("fp32", gpu.fp32_tflops))
    bandwidth = gpu.memory_gbps / 1000
    return [(f"{gpu.name} {kind}", peak, bandwidth) for kind, peak in peaks if peak]


@add_heading("How well do kernels fill the GPU?")
def _draw_occupancy(visit: Visit) -> list[Any]:
    result = visit.ask("kernel_occupancy", n=_read_row_count(visit))
    rows = [r for r in result.to_pylist() if r["occupancy_pct"] is not None]
    if not rows:
        text = _unless_filtered(visit, "The files do not record occupancy.")
        return [draw_empty_panel(text), *draw_coverage(result)]
    return [draw_grid(result, visit, {"n": _read_row_count(visit)}, rows=8)]


@add_heading("Which sequences of kernels do operators launch again and again?")
def _draw_sequences(visit: Visit) -> list[Any]:
    result = visit.ask("kernel_sequences")
    return [draw_answer(result, dark=visit.dark), draw_grid(result, visit, {}, rows=4)]


PAGE = Page(
    "kernels",
    "Kernels",
    10,
    layout,
    {
        headlines.PART: headlines.fill_heading(_QUESTION, headlines.of_kernels),
        "top": _draw_kernels,
        "families": _draw_families,
        "tensor": _draw_tensor_use,
        "roofline": _draw_kernel_roofline,
        "gap": _draw_gap,
        "occupancy": _draw_occupancy,
        "sequences": _draw_sequences,
        "counters": draw_counters,
    },
    _DEFAULTS,
    group="Dig into",
    needs=("kernels",),
)
