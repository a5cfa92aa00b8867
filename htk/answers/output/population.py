"""A figure of each of many ranks: stacked bars in order of a few dozen, of more a map."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from htk.answers.output.figure_colours import colour_of, marker_of
from htk.answers.output.figure_columns import scale_of
from htk.answers.output.figure_frame import frame_figure
from htk.answers.output.rank_figures import (
    RankFigure,
    amounts_in,
    figures_of_ranks,
    groups_of,
    name_figure,
    range_of,
    title_above,
)
from htk.answers.output.rank_groups import NodePlaces, describe_groups, find_nodes
from htk.answers.output.rank_map import META, draw_rank_map
from htk.answers.output.tokens import palette_of
from htk.base.columns.arrow import read_numbers
from htk.base.columns.types import Ints
from htk.base.core.chart import Bar, Chart

MOST_BARS = 16  # ranks that have a bar each, side by side
_MOST_STACKS = 64  # ranks whose stacks are wide enough to be seen
_STACKS_HEIGHT = 400
_APART = 0.22  # of the axis: names that are nearer lie over each other
_ROOM = 0.1  # of the ranks: beside the first stack, for its name


def is_population(table: pa.Table, chart: Chart) -> bool:
    """Return whether a chart is of more ranks than can have bars."""
    of_ranks = isinstance(chart, Bar) and chart.x == "rank" and not chart.horizontal
    return of_ranks and len(table["rank"].unique()) > MOST_BARS


def draw_population(table: pa.Table, chart: Bar, *, dark: bool) -> Any:
    """Return the picture of a figure of each rank."""
    ranks = np.unique(read_numbers(table["rank"]))
    ys = chart.y if isinstance(chart.y, str) else chart.y[0]
    series = figures_of_ranks(table, chart, ranks)
    nodes = find_nodes(ranks.tolist(), _list_rank_devices(table, ranks))
    unit = scale_of(table, ys)[1]
    if chart.stacked and len(ranks) <= _MOST_STACKS:
        return _draw_stacks(series, ranks, nodes, unit, dark)
    return draw_rank_map(series, ranks, nodes, unit, dark)


def _list_rank_devices(table: pa.Table, ranks: Ints) -> list[int | None]:
    if "device" not in table.column_names:
        return [None] * len(ranks)
    pairs = set(zip(table["rank"].to_pylist(), table["device"].to_pylist(), strict=True))
    device_of = dict(pairs)
    is_plain = len(pairs) == len(ranks)
    return [device_of[rank] if is_plain else None for rank in ranks.tolist()]


def _draw_stacks(
    series: Sequence[RankFigure], ranks: Ints, nodes: NodePlaces, unit: str, dark: bool
) -> Any:
    """Return a stack for each rank, in the order of the part that differs most; ranks that are
    unlike the others in it are named."""
    import plotly.graph_objects as go

    total = RankFigure("sum", np.nansum([part.values for part in series], axis=0))
    leading = max([total, *series], key=range_of)
    order = np.argsort(leading.values, kind="stable")
    groups = groups_of(leading, ranks)
    palette = palette_of(dark)
    bars = []
    used: list[str] = []
    for number, part in enumerate(series):
        colour = colour_of(part.name, palette, number)
        bars.append(
            go.Bar(
                x=list(range(len(ranks))),
                y=part.values[order].tolist(),
                name=part.name,
                customdata=ranks[order].tolist(),
                hovertemplate=f"rank %{{customdata}}: %{{y:.4g}} {unit}",
                marker=marker_of(part.name, colour, palette, used.count(colour)),
            )
        )
        used.append(colour)
    position_of = {rank: position for position, rank in enumerate(ranks[order].tolist())}
    odd = [rank for group in groups[1:] for rank in group.ranks]
    outer = [int(ranks[order[-1]]), int(ranks[order[0]])]
    marks = _select_apart([position_of[rank] for rank in (*odd, *outer)], len(ranks))
    title = f"ranks in the order of {leading.name}"
    names = [f"rank {ranks[order[mark]]}" for mark in marks]
    ends = [-_ROOM * len(ranks), len(ranks) - 0.5]
    xaxis = {"title": title, "tickvals": marks, "ticktext": names, "range": ends}
    words = name_figure(leading.name, describe_groups(groups, nodes, amounts_in(unit)), len(series))
    return frame_figure(
        bars,
        dark=dark,
        barmode="relative",
        bargap=0.1,
        meta=META,
        height=_STACKS_HEIGHT,
        xaxis=xaxis,
        yaxis={"title": unit},
        margin={"l": 56, "r": 36, "t": 64, "b": 92},
        legend={"orientation": "h", "x": 0, "y": -0.3, "yanchor": "top"},
        title=title_above(words, 22 / _STACKS_HEIGHT),
    )


def _select_apart(positions: Sequence[float], length: float) -> list[Any]:
    """Return the positions, first come first kept, whose names do not lie over each other."""
    kept: list[float] = []
    for position in positions:
        if all(abs(position - other) >= _APART * length for other in kept):
            kept.append(position)
    return kept
