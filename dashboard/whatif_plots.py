"""What-ifs as pictures: bounds, the batch × sharding map, what changes, two steps side by side."""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from htk.answers.output.figure_frame import frame_figure
from htk.answers.output.tokens import palette_of
from htk.base.columns.intervals import Spans, merge_spans, subtract_spans
from htk.base.core.humanize import format_duration
from htk.dashboard import plots
from htk.planning.plan.search import STRATEGIES
from htk.quantities.graph.build import Graph
from htk.whatif.api import WhatIf
from htk.whatif.edited_step import apply_edits, order_edits
from htk.whatif.label import BATCHES, SHARDINGS
from htk.whatif.text import in_words, read_savings

_KINDS = ("compute", "comm", "memory")  # as the graph numbers them
_BINS = 500
_MOST_RANKS = 4


def draw_savings_bounds(rows: Sequence[dict[str, Any]], dark: bool) -> Any:
    """Draw the best-case savings of each remedy, with its 90 % interval; largest first."""
    import plotly.graph_objects as go

    predicted = {str(r["whatif"]): read_savings(r) for r in rows if r["step_time_ns"]}
    saved = sorted(predicted.items(), key=lambda item: item[1][0])
    bar = go.Bar(
        y=[f"{in_words(edit)}: {format_duration(gain)}" for edit, (gain, _, _) in saved],
        x=[gain / 1e6 for _, (gain, _, _) in saved],
        orientation="h",
        marker={"color": palette_of(dark)["good"]},
        error_x={
            "type": "data",
            "color": palette_of(dark)["ink"],
            "thickness": 1.5,
            "symmetric": False,
            "array": [(most - gain) / 1e6 for _, (gain, _, most) in saved],
            "arrayminus": [(gain - least) / 1e6 for _, (gain, least, _) in saved],
        },
        customdata=[edit for edit, _ in saved],
        hovertemplate="%{y}; click to try it<extra></extra>",
    )
    axis = {"title": {"text": "ms of the measured time, best case"}}
    margin = {"l": 8, "r": 16, "t": 8, "b": 40}
    # A click beside a small gain, in its row, tries it too.
    return frame_figure([bar], dark=dark, xaxis=axis, margin=margin, hovermode="y")


def draw_intervals(rows: Sequence[dict[str, Any]], dark: bool) -> Any:
    """Draw predicted steps as dots in their intervals, 50 % inside 90 %, and what was measured."""
    import plotly.graph_objects as go

    own = palette_of(dark)
    predicted = [row for row in rows if row["step_time_ns"] is not None]
    names = [str(row["whatif"]).partition(":")[0] for row in predicted]
    steps = [row["step_time_ns"] / 1e6 for row in predicted]

    def draw_interval_bars(level: int, width: int, opacity: float) -> Any:
        low = [row[f"step_time_ns_lo{level}"] / 1000000.0 for row in predicted]
        high = [row[f"step_time_ns_hi{level}"] / 1000000.0 for row in predicted]
        return go.Bar(
            y=names,
            x=[b - a for a, b in zip(low, high, strict=True)],
            base=low,
            width=width / 10,
            orientation="h",
            name=f"{level} % interval",
            marker={"color": own["accent"], "opacity": opacity},
            customdata=list(zip(low, high, strict=True)),
            hovertemplate="%{y}: %{customdata[0]:,.4g} to %{customdata[1]:,.4g} ms<extra></extra>",
        )

    dots = go.Scatter(
        y=names,
        x=steps,
        mode="markers",
        name="predicted",
        marker={"color": own["ink"], "symbol": "line-ns-open", "size": 16, "line": {"width": 2}},
        hovertemplate="%{y}: %{x:,.4g} ms<extra></extra>",
    )
    measured = [row["measured_step_time_ns"] / 1e6 for row in predicted[:1]]
    fig = frame_figure(
        [draw_interval_bars(90, 3, 0.3), draw_interval_bars(50, 5, 0.6), dots],
        dark=dark,
        barmode="overlay",
        xaxis={"title": {"text": "ms of a step"}, "rangemode": "tozero"},
        yaxis={"autorange": "reversed"},
    )
    for value in measured:
        fig.add_vline(
            value, line={"dash": "dash", "color": own["mute"]}, annotation_text="measured"
        )
    return fig


def batch_map(rows: Sequence[dict[str, Any]], dark: bool) -> Any:
    """Draw the time per sample by batch and strategy; what does not fit is blank, and says so."""
    row_of = {r["whatif"]: r for r in rows}
    shares = []
    texts = []
    marks = []
    for sharding in SHARDINGS:
        cells = [row_of.get(f"batch {b}, sharding {sharding}", {}) for b in BATCHES]
        shares.append([_build_cell(c) for c in cells])
        texts.append([_describe_cell(c) for c in cells])
        marks.append([c.get("mark") or c.get("verdict") or "" for c in cells])
    fig = plots.draw_heat_map(
        [str(b) for b in BATCHES],
        SHARDINGS,
        shares,
        dark=dark,
        title="% of now",
        hover="%{y}, batch %{x}<br>%{customdata}<extra></extra>",
        xaxis={"title": {"text": "micro-batch"}, "type": "category"},
        yaxis={"tickvals": SHARDINGS, "ticktext": [STRATEGIES[s] for s in SHARDINGS]},
    )
    fig.update_traces(customdata=marks)
    return fig.add_trace(_cell_words(shares, texts, dark))


def _cell_words(shares: list[list[float | None]], texts: list[list[str]], dark: bool) -> Any:
    """Return what stands in the cells, in the ink that reads on each; pointers go to the cells."""
    import plotly.graph_objects as go

    own = palette_of(dark)
    present = [share for row in shares for share in row if share is not None]
    middle = (min(present) + max(present)) / 2 if present else 0.0
    cells = [
        (str(batch), sharding, text, share)
        for sharding, words, row in zip(SHARDINGS, texts, shares, strict=True)
        for batch, text, share in zip(BATCHES, words, row, strict=True)
    ]
    is_strong = [share is not None and share > middle for *_, share in cells]
    return go.Scatter(
        x=[batch for batch, *_ in cells],
        y=[sharding for _, sharding, *_ in cells],
        text=[text for _, _, text, _ in cells],
        mode="text",
        textfont={"size": 11, "color": [own["panel" if strong else "ink"] for strong in is_strong]},
        hoverinfo="skip",
        showlegend=False,
    )


def _build_cell(row: dict[str, Any]) -> float | None:
    if row.get("time_per_sample_change_pct") is None or "out of memory" in (row["mark"] or ""):
        return None
    return 100 + float(row["time_per_sample_change_pct"])


_SHORT = {"out of memory": "too large", "last": "just fits", "launch": "launch-bound",
          "wave": "under a wave"}  # fmt: skip


def _describe_cell(row: dict[str, Any]) -> str:
    """Return what a cell says; the mark whole is in its hover text."""
    if row.get("step_time_ns") is None:
        return "no answer"
    mark = row["mark"] or ""
    note = next((short for word, short in _SHORT.items() if word in mark), "")
    return "<br>".join(filter(None, [format_duration(row["step_time_ns"]), note]))


def draw_step_change(row: dict[str, Any], dark: bool) -> Any:
    """Draw the way from the measured step to the predicted, by cause."""
    causes = {k: v for k, v in json.loads(row["waterfall"]).items() if v}
    names = sorted(causes, key=lambda name: -abs(causes[name]))
    base = row["measured_step_time_ns"] / 1e6
    parts = [causes[name] / 1e6 for name in names]
    return plots.draw_waterfall(names, base, parts, dark, ends=("measured", "predicted"))


def side_by_side(asked: WhatIf, dark: bool) -> Any:
    """Return what each of a few GPUs does over a step, measured and predicted."""
    start = asked.stage
    edited, after = apply_edits(start, order_edits(asked.edits))
    before = start.graph
    period = max(before.period_ns, after.period_ns)
    labels = []
    strips = []
    for rank in telling_ranks(before):
        for word, graph, times, own_period in (
            ("measured", before, before.time, before.period_ns),
            ("predicted", edited.graph, after.time, after.period_ns),
        ):
            labels.append(f"rank {rank}, {word}")
            strip = _classify_slices(graph, times - before.window[0], rank, period).astype(
                np.float64
            )
            strip[np.arange(_BINS) * period >= own_period * _BINS] = np.nan  # the step is over
            strips.append(strip)
    return _draw_strips(labels, strips, period, dark)


def telling_ranks(graph: Graph) -> list[int]:
    """Return a few ranks that tell most: the longest and the shortest compute, those between."""
    ranks, code = np.unique(graph.activities.rank, return_inverse=True)
    length = graph.time[graph.end] - graph.time[graph.start]
    compute = np.bincount(code.ravel(), length * (graph.activities.kind == 0))
    order = np.argsort(-compute, kind="stable")
    if len(order) > _MOST_RANKS:
        places = np.linspace(0, len(order) - 1, _MOST_RANKS).round().astype(int)
        order = order[places]
    chosen: list[int] = ranks[order].tolist()
    return chosen


def _classify_slices(
    graph: Graph, times: NDArray[np.int64], rank: int, period: int
) -> NDArray[np.int64]:
    """Return what runs most in each slice: nothing (0), copies, exposed communication, compute."""
    of_rank = graph.activities.rank == rank
    kinds: list[Spans] = []
    for kind in range(len(_KINDS)):
        chosen = of_rank & (graph.activities.kind == kind)
        kinds.append(merge_spans(times[graph.start[chosen]], times[graph.end[chosen]]))
    compute, comm, memory = kinds
    layers = [
        subtract_spans(subtract_spans(memory, comm), compute),
        subtract_spans(comm, compute),
        compute,
    ]
    edges = np.linspace(0, period, _BINS + 1)
    share = np.stack([_measure_inside(spans, edges) for spans in layers])
    most = share.argmax(axis=0) + 1
    return np.where(share.sum(axis=0) > 0.5 * period / _BINS, most, 0)


def _measure_inside(spans: Spans, edges: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return how much of each slice the spans fill."""
    if not len(spans.start):
        return np.zeros(len(edges) - 1)
    points = np.column_stack([spans.start, spans.end]).ravel()
    filled = np.column_stack(
        [np.append(0, np.cumsum(spans.end - spans.start)[:-1]), np.cumsum(spans.end - spans.start)]
    ).ravel()
    return np.diff(np.interp(edges, points, filled))


def _draw_strips(
    labels: list[str], strips: list[NDArray[np.float64]], period: int, dark: bool
) -> Any:
    import plotly.graph_objects as go

    own = palette_of(dark)
    colours = [own["idle"], own["memory"], own["comm"], own["compute"]]
    scale = [(edge / 4, c) for k, c in enumerate(colours) for edge in (k, k + 1)]
    cells = go.Heatmap(
        z=strips,
        y=labels,
        x=np.linspace(0, period / 1e6, _BINS),
        zmin=-0.5,
        zmax=3.5,
        colorscale=scale,
        ygap=2,
        hoverongaps=False,
        colorbar={
            "tickvals": [0, 1, 2, 3],
            "ticktext": ["idle", "copies", "exposed communication", "compute"],
            "thickness": 12,
        },
        hovertemplate="%{y} at %{x:.2f} ms<extra></extra>",
    )
    axes = {"xaxis": {"title": "ms of the step"}, "yaxis": {"autorange": "reversed"}}
    return frame_figure([cells], dark=dark, margin={"l": 120, "r": 16, "t": 8, "b": 44}, **axes)
