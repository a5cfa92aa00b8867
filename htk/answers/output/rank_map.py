"""A map of nodes and their GPUs, coloured by a figure of each rank; in words above it which ranks
are unlike the others, below it how each figure is spread over the ranks."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from htk.answers.output.figure_colours import colour_of, heat_scale
from htk.answers.output.figure_frame import frame_figure
from htk.answers.output.rank_figures import (
    RankFigure,
    amounts_in,
    groups_of,
    name_figure,
    range_of,
    title_above,
    wrap_words,
)
from htk.answers.output.rank_groups import AlikeRanks, NodePlaces, describe_groups
from htk.answers.output.tokens import blend_colour, palette_of
from htk.base.columns.types import Ints
from htk.base.mappings import Fields

META = "population"  # of a picture's layout: a click on it chooses a rank
_NODES_OF_A_BAND = 64  # of the map; more nodes begin a band below
# Pixels: of words and the choice above the map, of the map's axis, below all, of a row of each.
_ABOVE = 112
_WORDS_FROM = 62  # below the choice
_BETWEEN = 64
_BELOW = 44
_MAP_ROW = 14
_MAP = (112, 290)
_SPREAD_ROW = 25
_USUAL_PCT = (5, 95)
_LEAST_SCALE = 0.1  # of the median: what differs by less stays pale


def draw_rank_map(
    series: Sequence[RankFigure], ranks: Ints, nodes: NodePlaces, unit: str, dark: bool
) -> Any:
    """Return the map, and a choice of the figure that it shows."""
    groups = [groups_of(part, ranks) for part in series]
    shown = int(np.argmax([range_of(part) for part in series]))
    words = [
        name_figure(part.name, describe_groups(own, nodes, amounts_in(unit)), len(series))
        for part, own in zip(series, groups, strict=True)
    ]
    grid = _find_places(ranks, nodes)
    maps = [
        _map_of(part, ranks, grid, unit, is_shown=k == shown, dark=dark)
        for k, part in enumerate(series)
    ]
    map_height = min(max(_MAP_ROW * (int(grid.rows.max()) + 1), _MAP[0]), _MAP[1])
    spread_height = _SPREAD_ROW * (len(series) + 1)
    height = map_height + _BETWEEN + spread_height
    spread_to = spread_height / height
    map_from = 1 - map_height / height
    for part in maps:
        part.colorbar.update(len=1 - map_from, y=(1 + map_from) / 2)
    updatemenus = _build_menu(series, shown, words, height) if len(series) > 1 else []
    return frame_figure(
        [*maps, *_draw_spread(series, groups, unit, dark)],
        dark=dark,
        meta=META,
        showlegend=False,
        height=height + _ABOVE + _BELOW,
        **grid.axes(map_from),
        xaxis2={"domain": [0, 1], "anchor": "y2", "rangemode": "tozero", "title": unit},
        yaxis2={
            "domain": [0, spread_to],
            "anchor": "x2",
            "tickvals": list(range(len(series))),
            "ticktext": [part.name for part in series],
            "range": [len(series) - 0.4, -0.9],
            "showgrid": False,
            "zeroline": False,
        },
        margin={"l": 56, "r": 16, "t": _ABOVE, "b": _BELOW},
        title=title_above(words[shown], _WORDS_FROM / (height + _ABOVE + _BELOW)),
        updatemenus=updatemenus,
    )


class _Grid(NamedTuple):
    """Where the ranks' cells are, and the marks along the map."""

    rows: Ints
    columns: Ints
    marks: list[int]
    texts: list[str]
    title: str

    def axes(self, map_from: float) -> Fields:
        plain = {"showgrid": False, "zeroline": False}
        along = {"domain": [0, 1], "anchor": "y", "title": self.title, "nticks": 9}
        down = {"domain": [map_from, 1], "anchor": "x", "autorange": "reversed"}
        names = {"tickvals": self.marks, "ticktext": self.texts}
        return {"xaxis": {**plain, **along}, "yaxis": {**plain, **down, **names}}


def _find_places(ranks: Ints, nodes: NodePlaces) -> _Grid:
    """Return the cell of each rank in a map of bands:

    GPU 0  ▢ ▢ ▢ … of nodes 0 to 63
    GPU 1  ▢ ▢ ▢
           ─────
    GPU 0  ▢ ▢ ▢ … of nodes 64 to 127
    """
    node = np.array([nodes.node[rank] for rank in ranks.tolist()])
    gpu = np.array([nodes.place[rank] for rank in ranks.tolist()])
    band, column = np.divmod(node, _NODES_OF_A_BAND)
    high = int(gpu.max()) + 1
    rows = band * (high + 1) + gpu
    title = "node" if nodes.are_told else "ranks, eight in a column"
    bands = int(band.max()) + 1
    if bands == 1:
        ends = sorted({0, high - 1})
        return _Grid(rows, column, ends, [f"GPU {end}" for end in ends], title)
    marks = [k * (high + 1) + high // 2 for k in range(bands)]
    word = "node " if nodes.are_told else "column "
    texts = [f"{word}{k * _NODES_OF_A_BAND}+" for k in range(bands)]
    return _Grid(rows, column, marks, texts, f"{title}, {_NODES_OF_A_BAND} in a band")


def _map_of(
    part: RankFigure, ranks: Ints, grid: _Grid, unit: str, *, is_shown: bool, dark: bool
) -> Any:
    import plotly.graph_objects as go

    size = (int(grid.rows.max()) + 1, int(grid.columns.max()) + 1)
    cells = np.full(size, np.nan)
    cells[grid.rows, grid.columns] = part.values
    whose = np.full(size, "", object)
    whose[grid.rows, grid.columns] = ranks
    middle = float(np.nanmedian(part.values))
    low = min(float(np.nanmin(part.values)), middle * (1 - _LEAST_SCALE))
    high = max(float(np.nanmax(part.values)), middle * (1 + _LEAST_SCALE))
    zmax = high if high > low else low + 1
    return go.Heatmap(
        z=[[None if np.isnan(v) else v for v in row] for row in cells.tolist()],
        customdata=whose.tolist(),
        visible=is_shown,
        zmin=low,
        zmax=zmax,
        colorscale=heat_scale(dark=dark),
        colorbar={"title": unit, "thickness": 10, "nticks": 4},
        xgap=1,
        ygap=1,
        hoverongaps=False,
        hovertemplate=f"rank %{{customdata}}: %{{z:.4g}} {unit}<extra>{part.name}</extra>",
    )


def _build_menu(
    series: Sequence[RankFigure], shown: int, words: Sequence[str], height: int
) -> list[Fields]:
    """Return the choice of the figure that the map shows."""
    buttons = []
    for chosen, part in enumerate(series):
        visible = [k == chosen for k in range(len(series))]
        change = {"visible": visible}
        text = {"title.text": wrap_words(words[chosen])}
        args = [change, text, list(range(len(series)))]
        buttons.append({"label": part.name, "method": "update", "args": args})
    top = 1 + (_ABOVE - 4) / height
    where = {"x": 0, "xanchor": "left", "y": top, "yanchor": "top", "pad": {"l": -48}}
    return [{"buttons": buttons, "active": shown, "direction": "down", **where}]


def _draw_spread(
    series: Sequence[RankFigure], groups: Sequence[list[AlikeRanks]], unit: str, dark: bool
) -> list[Any]:
    """Return a row for each series: from the least to the most thin, of 90 of 100 ranks thick, the
    median a mark, and a dot for ranks that are unlike the others."""
    import plotly.graph_objects as go

    palette = palette_of(dark)
    longest = max(float(np.nanmax(part.values)) for part in series) or 1.0
    drawn = []
    for row, (part, own) in enumerate(zip(series, groups, strict=True)):
        there = part.values[~np.isnan(part.values)]
        colour = colour_of(part.name, palette, row)
        shared: Fields = {"xaxis": "x2", "yaxis": "y2", "hoverinfo": "skip", "name": part.name}
        usual = np.percentile(there, _USUAL_PCT).tolist()
        pale = blend_colour(colour, palette["panel"], 0.5)
        for ends, width, line in (
            ([there.min(), there.max()], 1.5, pale),
            (usual, 9, blend_colour(colour, palette["panel"], 0.7)),
        ):
            drawn.append(
                go.Scatter(
                    x=ends,
                    y=[row, row],
                    mode="lines",
                    line={"width": width, "color": line},
                    **shared,
                )
            )
        middle = float(np.median(there))
        drawn.append(
            go.Scatter(
                x=[middle],
                y=[row],
                mode="markers",
                marker={"symbol": "line-ns", "size": 13, "line": {"width": 2.5, "color": colour}},
                hovertemplate=f"{part.name}: median %{{x:.4g}} {unit}<extra></extra>",
                xaxis="x2",
                yaxis="y2",
            )
        )
        drawn += _odd_ones(part, own[1:], row, longest, unit, palette)
    return drawn


def _odd_ones(
    part: RankFigure,
    groups: Sequence[AlikeRanks],
    row: int,
    longest: float,
    unit: str,
    palette: dict[str, str],
) -> list[Any]:
    """Return a dot for each group of ranks that are unlike the others, the farthest named."""
    import plotly.graph_objects as go

    if not groups:
        return []
    usual = float(np.nanmedian(part.values))
    farthest = max(groups, key=lambda group: abs(group.middle - usual))
    names = [_shorten_ranks(group.ranks) if group is farthest else "" for group in groups]
    return [
        go.Scatter(
            x=[group.middle for group in groups],
            y=[row] * len(groups),
            mode="markers+text",
            text=names,
            textposition=[
                "top left" if group.middle > 0.8 * longest else "top right" for group in groups
            ],
            textfont={"size": 11, "color": palette["mute"]},
            customdata=[group.ranks[0] for group in groups],
            hovertext=[_shorten_ranks(group.ranks) for group in groups],
            hovertemplate=f"%{{hovertext}}: %{{x:.4g}} {unit}<extra>{part.name}</extra>",
            marker={"size": 8, "color": palette["alert"]},
            xaxis="x2",
            yaxis="y2",
        )
    ]


def _shorten_ranks(ranks: Sequence[int]) -> str:
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"{len(ranks)} ranks"
