"""The marks of each kind of chart, as plotly's traces."""

from collections.abc import Callable, Sequence
from functools import partial
from statistics import median
from typing import Any, NamedTuple

import pyarrow as pa

from htk.answers.output.figure_colours import colour_of, heat_scale, is_waiting, marker_of
from htk.answers.output.figure_columns import (
    NO_NAME,
    WITH_NUMBER,
    label_categories,
    scale_column,
    scale_of,
    series_of,
    title_of,
    words_of,
)
from htk.answers.output.step_bands import curves_of, step_bands
from htk.answers.output.tokens import DARK, blend_colour, series_colour
from htk.base.core.chart import Bar, Chart, Heatmap, Line, Scatter, TimelineChart

_MOST_LINES = 4  # of ranks; of more the median and the range are drawn
_DASHES = ("solid", "dot", "dash", "dashdot")


def marks_of(table: pa.Table, chart: Chart, palette: dict[str, str]) -> list[Any]:
    match chart:
        case Bar():
            return _draw_bars(table, chart, palette)
        case Line():
            return _draw_lines(table, chart, palette)
        case Scatter():
            return _draw_points(table, chart, palette)
        case Heatmap():
            return _draw_heat(table, chart, palette)
        case TimelineChart():
            return _draw_spans(table, chart, palette)


def _draw_bars(table: pa.Table, chart: Bar, palette: dict[str, str]) -> list[Any]:
    import plotly.graph_objects as go

    traces = []
    used: list[object] = []
    x = label_categories(table, chart.x)
    series = series_of(table, chart.y, chart.color)
    for number, (name, rows, y) in enumerate(series):
        along = [x[k] for k in rows]
        values = scale_column(table, y, rows)
        by_kind = _by_kind(table, chart, palette)
        nobody = name == NO_NAME and len(series) > 1
        colour = palette["undetermined"] if nobody else colour_of(name, palette, number)
        again = used.count((colour, is_waiting(name)))
        used.append((colour, is_waiting(name)))
        orientation = "h" if chart.horizontal else "v"
        marker = {"color": by_kind} if by_kind else marker_of(name, colour, palette, again)
        traces.append(
            go.Bar(
                x=values if chart.horizontal else along,
                y=along if chart.horizontal else values,
                orientation=orientation,
                name=name,
                marker=marker,
            )
        )
    return traces


def _by_kind(table: pa.Table, chart: Bar, palette: dict[str, str]) -> list[str] | None:
    """Return each bar's colour by its kind; None where the bars are not of one kind each."""
    if chart.color is not None or not isinstance(chart.y, str) or "kind" not in table.column_names:
        return None
    return [palette.get(kind or "", palette["gpu"]) for kind in table["kind"].to_pylist()]


def _draw_lines(table: pa.Table, chart: Line, palette: dict[str, str]) -> list[Any]:
    import plotly.graph_objects as go

    if chart.steps and "rank" in table.column_names:
        curves = curves_of(
            table,
            _series_names(table, chart),
            *(scale_column(table, name, range(table.num_rows)) for name in (chart.x, str(chart.y))),
        )
        return step_bands(curves, palette, scale_of(table, str(chart.y))[1])
    every = _split_by_owner(table, chart)
    series = [
        line for line in every if any(v is not None for v in scale_column(table, line.y, line.rows))
    ]
    if chart.x in WITH_NUMBER and len({line.owner for line in series}) > _MOST_LINES:
        return _draw_bands(table, chart, series, palette)
    owners = list(dict.fromkeys(line.owner for line in series))
    names = list(dict.fromkeys(line.name for line in series))
    apart = not isinstance(chart.y, str) or any(owners)  # lines that may lie on each other
    traces = []
    cycle = table["cycle"].to_pylist() if "cycle" in table.column_names else None
    for number, line in enumerate(series):
        pieces = _split_recordings(line.rows, cycle)
        colour = colour_of(line.name, palette, number)
        if line.owner is not None:  # a colour for each, a dash for each series of it
            colour = colour_of(line.owner, palette, owners.index(line.owner))
        mode = "lines+markers" if min(map(len, pieces), default=0) < 3 else "lines"
        traces.append(
            go.Scatter(
                x=_separate_pieces(pieces, partial(scale_column, table, chart.x)),
                y=_separate_pieces(pieces, partial(scale_column, table, line.y)),
                mode=mode,
                name=_line_name(line, len(names)),
                line={
                    "color": colour,
                    "width": 1.6,
                    "shape": "hv" if chart.steps else "linear",
                    "dash": _DASHES[names.index(line.name) % len(_DASHES)] if apart else "solid",
                },
            )
        )
    return traces


def _series_names(table: pa.Table, chart: Line) -> list[str]:
    """Return the series that each row is of."""
    names = [""] * table.num_rows
    for name, rows, _ in series_of(table, chart.y, chart.color):
        for row in rows:
            names[row] = name
    return names


def _split_recordings(rows: list[int], cycle: list[int | None] | None) -> list[list[int]]:
    """Return the rows of each recording on their own, in order."""
    if cycle is None:
        return [rows]
    pieces: dict[int | None, list[int]] = {}
    for row in rows:
        pieces.setdefault(cycle[row], []).append(row)
    return list(pieces.values())


def _separate_pieces(
    pieces: list[list[int]], values_of: Callable[[list[int]], list[Any]]
) -> list[Any]:
    """Return values with a hole between recordings: what lies between was not recorded."""
    holed: list[Any] = []
    for rows in pieces:
        holed += [*([None] if holed else []), *values_of(rows)]
    return holed


def _draw_bands(
    table: pa.Table, chart: Line, series: Sequence["_Drawn"], palette: dict[str, str]
) -> list[Any]:
    """Draw each series of many ranks as their median, in a band from the least to the most."""
    import plotly.graph_objects as go

    traces = []
    names = list(dict.fromkeys(line.name for line in series))
    for number, name in enumerate(names):
        values: dict[Any, list[tuple[float, str | None]]] = {}
        lines = [line for line in series if line.name == name]
        for line in lines:
            points = zip(
                scale_column(table, chart.x, line.rows),
                scale_column(table, line.y, line.rows),
                strict=True,
            )
            for x, y in points:
                if x is not None and y is not None:
                    values.setdefault(x, []).append((y, line.owner))
        x = sorted(values)
        colour = series_colour(number, dark=palette is DARK)
        most = [max(values[k], key=lambda point: point[0]) for k in x]
        shared = {"x": x, "mode": "lines", "hoverinfo": "skip", "showlegend": False}
        edge = {"width": 0.5, "color": blend_colour(colour, palette["panel"], 0.5)}
        fill = blend_colour(colour, palette["panel"], 0.22)
        traces += [
            go.Scatter(y=[y for y, _ in most], line=edge, **shared),
            go.Scatter(
                y=[min(y for y, _ in values[k]) for k in x],
                line=edge,
                fill="tonexty",
                fillcolor=fill,
                **{**shared, "showlegend": True, "name": f"{name}: least to most"},
            ),
            go.Scatter(
                x=x,
                y=[median(y for y, _ in values[k]) for k in x],
                mode="lines+markers",
                name=f"{name}: median of {len(lines)} ranks",
                line={"color": colour, "width": 2},
                customdata=[[y, owner] for y, owner in most],
                hovertemplate="%{y:.4g}, most %{customdata[0]:.4g} on %{customdata[1]}"
                "<extra></extra>",
            ),
        ]
    return traces


def _line_name(line: "_Drawn", series: int) -> str:
    if line.owner is None:
        return line.name
    return line.owner if series == 1 else f"{line.name}, {line.owner}"


class _Drawn(NamedTuple):
    """A line of a figure; whose it is, where several ranks or links have lines."""

    name: str
    owner: str | None
    rows: list[int]
    y: str


def _split_by_owner(table: pa.Table, chart: Line) -> list[_Drawn]:
    """Return a line for each series and owner, so that none runs from one to the next."""
    series = series_of(table, chart.y, chart.color)
    owners = _list_owners(table, chart)
    if chart.color == "rank" and any(owners):
        series = [(words_of(str(chart.y)), list(range(table.num_rows)), str(chart.y))]
    every = list(dict.fromkeys(owners))
    return [
        _Drawn(name, owner, of_owner, y)
        for name, rows, y in series
        for owner in every
        if (of_owner := [k for k in rows if owners[k] == owner])
    ]


def _list_owners(table: pa.Table, chart: Line) -> Sequence[str | None]:
    """Return whose each row is, where it is of several: as the chart's columns say, else ranks."""
    none = [None] * table.num_rows
    columns = chart.owner or (() if chart.x == "rank" else ("rank",))
    values = {name: table[name].to_pylist() for name in columns if name in table.column_names}
    differing = [name for name, column in values.items() if len(set(column)) > 1]
    if not differing:
        return none
    words = [
        [f"{name} {v}" if name in WITH_NUMBER else str(v) for v in values[name]]
        for name in differing
    ]
    return [" ".join(row) for row in zip(*words, strict=True)]


def _draw_points(table: pa.Table, chart: Scatter, palette: dict[str, str]) -> list[Any]:
    import plotly.graph_objects as go

    names = label_categories(table, "name") if "name" in table.column_names else None
    traces = []
    for number, (name, rows, y) in enumerate(series_of(table, chart.y, chart.color)):
        traces.append(
            go.Scatter(
                x=scale_column(table, chart.x, rows),
                y=scale_column(table, y, rows),
                mode="markers",
                name=name,
                text=[names[k] for k in rows] if names else None,
                marker={"color": colour_of(name, palette, number), "size": 8, "opacity": 0.8},
            )
        )
    return traces


def _draw_heat(table: pa.Table, chart: Heatmap, palette: dict[str, str]) -> list[Any]:
    import plotly.graph_objects as go

    cells = scale_column(table, chart.value, range(table.num_rows))
    x = label_categories(table, chart.x)
    y = label_categories(table, chart.y)
    zmin = 0 if min((v for v in cells if v is not None), default=0) >= 0 else None
    return [
        go.Heatmap(
            x=x,
            y=y,
            z=cells,
            zmin=zmin,
            colorscale=heat_scale(dark=palette is DARK),
            colorbar={
                "title": {"text": title_of(table, chart.value), "side": "right"},
                "thickness": 12,
            },
        ),
        *_mark_missing_cells(x, y, cells, chart, palette),
    ]


def _mark_missing_cells(
    x: list[str], y: list[str], cells: list[Any], chart: Heatmap, palette: dict[str, str]
) -> list[Any]:
    """Return the cells without a value, where the chart says what they are: they are not zero."""
    import plotly.graph_objects as go

    filled = {(a, b) for a, b, value in zip(x, y, cells, strict=True) if value is not None}
    lost = [(a, b) for b in dict.fromkeys(y) for a in dict.fromkeys(x) if (a, b) not in filled]
    if not chart.missing or not lost:
        return []
    return [
        go.Heatmap(
            x=[a for a, _ in lost],
            y=[b for _, b in lost],
            z=[0] * len(lost),
            name=chart.missing,
            colorscale=[[0, palette["unrecorded"]], [1, palette["unrecorded"]]],
            showscale=False,
            showlegend=True,
            hovertemplate=f"%{{x}}, %{{y}}: {chart.missing}<extra></extra>",
        )
    ]


def _draw_spans(table: pa.Table, chart: TimelineChart, palette: dict[str, str]) -> list[Any]:
    import plotly.graph_objects as go

    start = table[chart.start].to_pylist()
    end = table[chart.end].to_pylist()
    factor = scale_of(table, chart.start)[0] or 1
    origin = min((s for s in start if s is not None), default=0)  # of both: ends have no other
    lanes = label_categories(table, chart.lane)
    traces = []
    for number, (name, every, _) in enumerate(series_of(table, chart.start, chart.color)):
        rows = [k for k in every if start[k] is not None and end[k] is not None]
        traces.append(
            go.Bar(
                base=[(start[k] - origin) * factor for k in rows],
                x=[(end[k] - start[k]) * factor for k in rows],
                y=[lanes[k] for k in rows],
                orientation="h",
                name=name,
                marker={"color": colour_of(name, palette, number)},
            )
        )
    return traces
