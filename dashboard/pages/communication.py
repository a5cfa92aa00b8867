"""Communication: how much, how fast, how well hidden, which rank waits for which."""

import math
from typing import Any

import numpy as np
import pyarrow as pa
from dash import html

from htk.answers.output.figure_colours import colour_of
from htk.answers.output.figure_frame import frame_figure
from htk.answers.output.figures import draw_figure, keep_marks_apart
from htk.answers.output.rank_groups import condense_ranks
from htk.answers.output.tokens import palette_of
from htk.base.columns.arrow import read_numbers
from htk.base.columns.order import order_by
from htk.base.core.chart import Bar
from htk.base.core.humanize import format_bytes, pluralize_count
from htk.dashboard import hang_panels, headlines, plots
from htk.dashboard.components import (
    add_heading,
    draw_answer,
    draw_coverage,
    draw_empty_panel,
    draw_hint,
    draw_plot,
    draw_section,
    draw_select,
    of_all_steps,
)
from htk.dashboard.grids import draw_grid, draw_question
from htk.dashboard.page import Page, Visit, draw_panel

_QUESTION = "What does communication cost?"
_BANDWIDTH = "Bus bandwidth by size"
_DEFAULTS = {"by": "size", "overlap": "total"}
_BY_SIZE = ("exposed_ns", "shared_ns")
_CALLED = ("comm_ns",)  # of collectives that no GPU ran
_MOST_SIZES = 16  # that have a bar
_MOST_MARKS = 7  # of sizes in words, on half a page
_LEAST_SIZES = 3  # through fewer no curve can be told from its point
_HIGHEST, _AROUND = 340, 100  # pixels of the rows of the heat map, and of what is around them
_MOST_COLUMNS = 400  # of the heat map; longer runs are shown by their worst collectives


def layout(visit: Visit) -> Any:
    visit.trace.need("collectives")
    hung = [draw_panel("communication", "hang", 200)] if hang_panels.has_flight_dumps(visit) else []
    chosen = visit.option("overlap", _DEFAULTS["overlap"])
    by = visit.option("by", _DEFAULTS["by"])
    overlap = draw_select("overlap", ["total", "group", "collective"], chosen, label="hidden by")
    on_gpu = bool(visit.trace.tables["kernels"].num_rows)
    return html.Div(
        [
            headlines.draw_heading("communication", _QUESTION),
            *headlines.not_named(visit),
            *hung,
            html.Div(
                [
                    *([overlap] if on_gpu else []),
                    draw_select("by", ["size", "group", "type"], by, label="summed by"),
                ],
                className="controls",
            ),
            *(_beside_compute() if on_gpu else []),
            _draw_pair("bandwidth", "summary"),
            _draw_pair("late", "matrix"),
        ]
    )


def _beside_compute() -> list[Any]:
    """Return the places of what only kernels on GPUs can tell."""
    return [
        _draw_pair("ratio", "overlap"),
        draw_panel("communication", "waits", 420),
        _draw_pair("groups", "steps"),
    ]


def _draw_pair(*names: str) -> Any:
    return html.Div([draw_panel("communication", name, 420) for name in names], className="halves")


@add_heading("Communication beside compute")
def _draw_ratio(visit: Visit) -> list[Any]:
    result = visit.ask("comm_compute_ratio")
    drawn = draw_answer(result, dark=visit.dark)
    return [*draw_hint(of_all_steps(visit)), drawn, draw_grid(result, visit, {}, rows=4)]


@add_heading("How much is hidden behind compute?")
def _draw_overlap(visit: Visit) -> list[Any]:
    by = visit.option("overlap", _DEFAULTS["overlap"])
    asked = {"by": by}
    result = visit.ask("comm_compute_overlap", by=by)
    drawn = [draw_answer(result, dark=visit.dark)] if by == _DEFAULTS["overlap"] else []
    table = draw_grid(result, visit, asked, rows=5 if drawn else 16)
    return [*draw_hint(of_all_steps(visit)), *drawn, table]


@add_heading("Which group's communication is exposed, and is it waiting or transfer?")
def _draw_groups(visit: Visit) -> list[Any]:
    result = visit.ask("comm_overlap_by_group")
    drawn = draw_answer(result, dark=visit.dark)
    return [*draw_hint(of_all_steps(visit)), drawn, draw_grid(result, visit, {}, rows=4)]


def _draw_waits(visit: Visit) -> Any:
    """Rank × collective: a pale row never waits, and so makes the others wait."""
    heading = "Who waits in which collective?"
    table = visit.ask("collective_times").table
    match = read_numbers(table["match"], -1)
    rank = read_numbers(table["rank"], -1)
    wait = read_numbers(table["wait_ns"], -1)
    start = read_numbers(table["start_ns"], -1)
    has_wait = (match >= 0) & (wait >= 0)
    if not has_wait.any():
        text = "No collective was found on more than one rank, so waiting cannot be told."
        return draw_section(heading, draw_empty_panel(text))
    match = match[has_wait]
    rank = rank[has_wait]
    wait = wait[has_wait]
    start = start[has_wait]
    shown, column = np.unique(match, return_inverse=True)
    ranks, row = np.unique(rank, return_inverse=True)
    cells = np.full((len(ranks), len(shown)), np.nan)
    cells[row, column] = wait / 1e6
    begin = np.full(len(shown), np.iinfo(np.int64).max)
    np.minimum.at(begin, column, start)
    worst = np.sort(np.argsort(-np.nansum(cells, axis=0))[:_MOST_COLUMNS])
    worst = worst[order_by(begin[worst])]
    kinds = dict(
        zip(read_numbers(table["match"], -1).tolist(), table["type"].to_pylist(), strict=True)
    )
    texts = [f"{kinds[int(m)]} {m}" for m in shown[worst].tolist()]
    names, shown_cells = condense_ranks(ranks.tolist(), cells[:, worst])
    fig = plots.draw_heat_map(
        texts,
        names,
        shown_cells,
        dark=visit.dark,
        title="wait, ms",
        hover="%{y} waits %{z:.3g} ms in %{x}<extra></extra>",
        xaxis={"showticklabels": False, "title": "collectives in the order of their start"},
        yaxis={"autorange": "reversed"},
    )
    left = len(shown) - len(worst)
    note = "A pale row among dark ones is the rank that the others wait for."
    note += f" The {_MOST_COLUMNS} with most waiting, {left} left out." if left else ""
    if len(names) < len(ranks):
        note += " Ranks least like the others are named, the others are one row."
    finding = headlines.longest_wait(visit) or heading
    height = _AROUND + min(26 * max(len(names), 4), _HIGHEST)
    return draw_section(finding, draw_plot(fig, heading, None, height), note=note)


@add_heading("Is it the same rank that is late in every step?")
def _draw_steps(visit: Visit) -> list[Any]:
    return draw_question(visit, "straggler_steps", rows=4)


@add_heading(_BANDWIDTH)
def _draw_bandwidth(visit: Visit) -> list[Any]:
    result = visit.ask("bucket_study")
    rows = [r for r in result.to_pylist() if r["busbw_gbps_p50"] and r["size_from_bytes"]]
    if not rows:
        return [draw_empty_panel("No collective of known size and transfer time.")]
    import plotly.graph_objects as go

    keys = dict.fromkeys((r["type"], r["level"], r["group_size"]) for r in rows)
    data: list[Any] = []
    for k, key in enumerate(keys):
        of_key = [r for r in rows if (r["type"], r["level"], r["group_size"]) == key]
        colour = colour_of(key[0], palette_of(visit.dark))
        x = [r["size_from_bytes"] for r in of_key]
        name = ", ".join([key[0], f"{key[2]} ranks", *([key[1]] if key[1] else [])])
        data.append(
            go.Scatter(
                x=x,
                y=[r["busbw_gbps_p50"] for r in of_key],
                mode="markers+lines",
                name=name,
                marker={"symbol": k, "size": 10, "color": colour},
                line={"color": colour},
            )
        )
        peak = max((r["peak_busbw_gbps"] or 0 for r in of_key), default=0)
        if peak and len({r["size_from_bytes"] for r in of_key}) >= _LEAST_SIZES:
            line = {"dash": "dot", "color": colour}
            wide = [min(x) / 2, max(x) * 2]
            data.append(
                go.Scatter(x=wide, y=[peak, peak], mode="lines", name=f"limit: {name}", line=line)
            )
    sizes = sorted({r["size_from_bytes"] for r in rows})
    marks = keep_marks_apart(sizes, _MOST_MARKS, math.log)
    ticks = {"tickvals": marks, "ticktext": [format_bytes(size) for size in marks]}
    axes = {
        "xaxis": {"type": "log", "title": "size of a call, from", **ticks},
        "yaxis": {"title": "GB/s", "rangemode": "tozero"},
    }
    fig = frame_figure(data, dark=visit.dark, **axes)
    note = "Dotted, if at least three sizes were measured: the limit for very large calls."
    drawn = draw_plot(fig, _BANDWIDTH)
    return [
        *draw_hint(note),
        drawn,
        draw_grid(result, visit, {}, rows=4),
        *draw_coverage(result)[1:],
    ]


@add_heading(lambda visit: f"Communication by {visit.option('by', _DEFAULTS['by'])}")
def _draw_summary(visit: Visit) -> list[Any]:
    by = visit.option("by", _DEFAULTS["by"])
    parts = draw_question(visit, "comm_summary", by=by)
    if by == "size":
        parts[0] = _draw_sizes(visit, parts[0])
    note = "Sums over calls and ranks: calls that run at once count each in full."
    if visit.trace.tables["kernels"].num_rows:
        note = (
            "Sums over ranks. Shared: all its time, exposed or not; where several collectives run "
            "at once on a GPU, each has its share."
        )
    return [*draw_hint(note), *parts]


def _draw_sizes(visit: Visit, otherwise: Any) -> Any:
    """Return a bar for each size of each type, the smallest of a type first."""
    table = visit.ask("comm_summary", by="size").table
    if table["size_from_bytes"].null_count == table.num_rows or not table.num_rows:
        return otherwise
    kinds = table["type"].to_pylist()
    sizes = table["size_from_bytes"].to_pylist()
    rows = sorted(range(len(kinds)), key=lambda k: (kinds[k], sizes[k] or 0))
    words = ["size not known" if size is None else f"from {format_bytes(size)}" for size in sizes]
    labels = [f"{kinds[k]}, {words[k]}" for k in rows]
    table = table.take(pa.array(rows))
    values = _BY_SIZE if table["shared_ns"].null_count < len(table) else _CALLED
    columns = {"label": pa.array(labels), **{y: table[y] for y in values}}
    bars = Bar("label", values, stacked=False, horizontal=True)
    sums = pa.table(columns).group_by("label", use_threads=False)
    added = sums.aggregate([(y, "sum") for y in values]).rename_columns(["label", *values])
    height = 150 + 40 * min(added.num_rows, _MOST_SIZES)
    drawn = draw_figure(added, bars, dark=visit.dark)
    return draw_plot(drawn, "Communication by size", None, height)


@add_heading("In which collectives did ranks wait longest, and for whom?")
def _draw_late(visit: Visit) -> list[Any]:
    result = visit.ask("late_arrivals")
    return [draw_answer(result, dark=visit.dark), draw_grid(result, visit, {}, rows=4)]


@add_heading("Who sends how much to whom?")
def _draw_matrix(visit: Visit) -> list[Any]:
    result = visit.ask("comm_matrix")
    if not len(result):
        text = "No messages between two ranks and no all-to-alls: only these have a direction."
        if left_out := result.coverage.get("calls_left_out"):
            calls = pluralize_count(left_out, "message or all-to-all call")
            text = f"Not recorded: how much went from which rank to which, in {calls}."
        return [draw_empty_panel(text)]
    return [draw_answer(result, dark=visit.dark), draw_grid(result, visit, {}, rows=4)]


PAGE = Page(
    "communication",
    "Communication",
    12,
    layout,
    {
        headlines.PART: headlines.fill_heading(_QUESTION, headlines.of_communication),
        "hang": hang_panels.draw_hang_verdict,
        "ratio": _draw_ratio,
        "overlap": _draw_overlap,
        "groups": _draw_groups,
        "waits": _draw_waits,
        "steps": _draw_steps,
        "bandwidth": _draw_bandwidth,
        "summary": _draw_summary,
        "late": _draw_late,
        "matrix": _draw_matrix,
    },
    _DEFAULTS,
    group="Dig into",
    needs=(
        "collectives",
        "bench_points",
        "comm_counts",
    ),
)
