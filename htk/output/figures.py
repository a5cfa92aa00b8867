"""A chart and a table become a plotly figure: the only file that knows plotly."""

from collections.abc import Sequence
from dataclasses import replace
from statistics import median
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from htk.core.chart import Bar, Chart, Heatmap, Line, Scatter, TimelineChart
from htk.core.extras import require
from htk.core.humanize import shorten
from htk.output.tokens import DARK, FONT, LIGHT, series_colour
from htk.schema import ABSOLUTE_TIMES
from htk.schema.columns import heading_of, unit_of

_MOST_POINTS = 2000
_MOST_CELLS = 50_000  # of a heat map
_MOST_BARS = 16  # that lie: each has its name
_MOST_MARKS = 20  # of an axis
_WITH_NUMBER = ("rank", "step", "device", "stage")  # axes whose marks say what they are
_SCALE = {"ns": (1e-6, "ms")}
_SIZES = ((2**30, "GiB"), (2**20, "MiB"))  # the first that the largest reaches
_SIZES_LEAST = (1 / 2**10, "KiB")
_MOST_LINES = 4  # of ranks; of more the median and the range are drawn
_DASHES = ("solid", "dot", "dash", "dashdot")


def figure(table: pa.Table, chart: Chart, *, dark: bool = False) -> Any:
    """The picture of an answer."""
    require("plot", "a picture")
    import plotly.graph_objects as go

    chart = _recorded(chart, table)
    shown, mean = _over_ranks(_single_ranks(table, chart).slice(0, _MOST_POINTS), chart)
    if isinstance(chart, Bar) and chart.horizontal:
        shown = shown.slice(0, _MOST_BARS)
    drawn = _drawn(shown, chart, DARK if dark else LIGHT)
    fig = go.Figure(drawn)
    fig.update_layout(
        **layout_of(dark=dark),
        barmode="stack" if isinstance(chart, Bar) and chart.stacked else "group",
    )
    _label(fig, shown, chart, " (mean over ranks)" if mean else "")
    if isinstance(chart, Line) and chart.x in _WITH_NUMBER:
        marks = sorted(v for v in shown[chart.x].unique().to_pylist() if v is not None)
        every = -(-len(marks) // _MOST_MARKS)
        fig.update_xaxes(tickmode="array", tickvals=marks[:: every or 1])
    if isinstance(chart, Bar):
        _arrange(fig, shown, chart)
        fig.update_layout(showlegend=chart.color != chart.x and len(drawn) > 1)
    return fig


def _recorded(chart: Chart, table: pa.Table) -> Chart:
    """The bars that were recorded; on a trace without GPU work those of the host."""
    if not isinstance(chart, Bar) or not table.num_rows:
        return chart
    ys = (chart.y,) if isinstance(chart.y, str) else chart.y
    kept = tuple(y for y in ys if table[y].null_count < table.num_rows)
    if kept == ys:
        return chart
    if kept:
        return replace(chart, y=kept)
    return chart if chart.instead is None else replace(chart, y=chart.instead)


def layout_of(*, dark: bool) -> dict[str, Any]:
    """Return the frame of every figure: quiet lines, marks that lie flat, room for long names."""
    own = DARK if dark else LIGHT
    axis = {
        "gridcolor": own["line"],
        "zerolinecolor": own["idle"],
        "linecolor": own["line"],
        "tickangle": 0,
        "automargin": True,
        "title": {"font": {"size": 12, "color": own["mute"]}, "standoff": 8},
        "tickfont": {"size": 12, "color": own["mute"]},
    }
    return {
        "template": {"layout": {"xaxis": axis, "yaxis": axis}},
        "margin": {"l": 56, "r": 16, "t": 30, "b": 40},
        "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0, "xanchor": "left"},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"family": FONT, "size": 12.5, "color": own["ink"]},
        "hoverlabel": {
            "align": "left",
            "bgcolor": own["ink"],
            "bordercolor": own["ink"],
            "font": {"family": FONT, "size": 12, "color": own["panel"]},
        },
    }


def heat_scale(*, dark: bool) -> list[list[Any]]:
    """Return a scale from the paper to the accent: more is stronger, in light and in dark."""
    own = DARK if dark else LIGHT
    weak = blended(own["accent"], own["panel"], 0.08)
    strong = blended(own["accent"], own["ink"], 0.75)
    return [[0, weak], [0.6, own["accent"]], [1, strong]]


def _single_ranks(table: pa.Table, chart: Chart) -> pa.Table:
    """Rows of one rank each where bars are of ranks: those of all together are no bar beside."""
    if not isinstance(chart, Bar) or chart.x != "rank" or not table["rank"].null_count:
        return table
    single = table.filter(pc.is_valid(table["rank"]))
    return single if single.num_rows else table


def _over_ranks(table: pa.Table, chart: Chart) -> tuple[pa.Table, bool]:
    """Bars that several ranks would share show their mean."""
    if not isinstance(chart, Bar) or "rank" not in table.column_names:
        return table, False
    by = list(dict.fromkeys([chart.x, *([chart.color] if chart.color else [])]))
    ranks = len(table["rank"].unique())
    if "rank" in by or ranks < 2 or table.group_by(by).aggregate([]).num_rows == table.num_rows:
        return table, False
    ys = [chart.y] if isinstance(chart.y, str) else list(chart.y)
    plain = pa.table({name: pc.cast(table[name], _plain(table[name].type)) for name in [*by, *ys]})
    sums = plain.group_by(by, use_threads=False).aggregate([(y, "sum") for y in ys])
    columns = [sums[name] for name in by]
    columns += [pc.divide(pc.cast(sums[f"{y}_sum"], pa.float64()), float(ranks)) for y in ys]
    return pa.table(columns, names=[*by, *ys]), True


def _plain(kind: pa.DataType) -> pa.DataType:
    return pa.string() if pa.types.is_dictionary(kind) else kind


def _arrange(fig: Any, table: pa.Table, chart: Bar) -> None:
    """Bars in the order of the table, whatever series they belong to."""
    order = list(dict.fromkeys(_category(table, chart.x)))
    if not all(isinstance(name, str) for name in order):
        return
    axis = fig.update_yaxes if chart.horizontal else fig.update_xaxes
    axis(categoryorder="array", categoryarray=order)
    fig.update_layout(bargap=max(0.2, 0.9 - 0.1 * len(order)))  # a bar alone is no wall
    if chart.horizontal:
        axis(tickmode="array", tickvals=order)


def _drawn(table: pa.Table, chart: Chart, palette: dict[str, str]) -> list[Any]:
    match chart:
        case Bar():
            return _bars(table, chart, palette)
        case Line():
            return _lines(table, chart, palette)
        case Scatter():
            return _points(table, chart, palette)
        case Heatmap():
            return _heat(table, chart, palette)
        case TimelineChart():
            return _spans(table, chart, palette)


_MEANINGS = (
    ("idle", "idle"),
    ("overlap", "overlapped"),
    ("shared", "overlapped"),
    ("unrecorded", "unrecorded"),
    ("undetermined", "undetermined"),
    ("comm", "comm"),
    ("wait", "comm"),
    ("transfer", "comm"),
    ("memory", "memory"),
    ("copy", "memory"),
    ("copies", "memory"),
    ("compute", "compute"),
    ("kernel", "compute"),
    ("launch", "launch"),
    ("cpu", "cpu"),
    ("host", "cpu"),
    ("gpu", "compute"),
    ("exposed", "comm"),
)
_SHADE = 0.3  # of the paper, in each further series of one meaning
_LEAST_COLOUR = 0.25


def meaning_of(name: str) -> str | None:
    """Return what a column or value is about, as the palettes name it; None: nothing of its own."""
    return next((meaning for word, meaning in _MEANINGS if word in name), None)


def colour_of(name: str, palette: dict[str, str], number: int = 0) -> str:
    """The colour of what a column or value means, else one of a fixed order."""
    meaning = meaning_of(name)
    return palette[meaning] if meaning else series_colour(number, dark=palette is DARK)


def marker_of(name: str, colour: str, palette: dict[str, str], again: int = 0) -> dict[str, Any]:
    """Return a bar's fill: waiting is striped, the unrecorded a hatched outline, nothing else.

    `again` counts series of the same colour before it: each is paler.
    """
    if "unrecorded" in name:
        pattern = {"shape": "/", "fgcolor": palette["idle"], "size": 7, "solidity": 0.15}
        line = {"width": 1, "color": palette["idle"]}
        return {"color": palette["unrecorded"], "pattern": pattern, "line": line}
    keep = max(1 - _SHADE * again, _LEAST_COLOUR)
    marker: dict[str, Any] = {
        "color": blended(colour, palette["panel"], keep),
        "line": {"width": 0},
    }
    if is_waiting(name):
        marker["pattern"] = {"shape": "/", "fgcolor": palette["wait"], "size": 7, "solidity": 0.45}
    return marker


def is_waiting(name: str) -> bool:
    """Whether it is time in which communication moves nothing."""
    return "wait" in name and "undetermined" not in name and "idle" not in name


def blended(colour: str, paper: str, share: float) -> str:
    """Return so much of a colour on a paper."""
    pairs = [(int(colour[k : k + 2], 16), int(paper[k : k + 2], 16)) for k in (1, 3, 5)]
    return "#" + "".join(f"{round(c * share + p * (1 - share)):02X}" for c, p in pairs)


def _bars(table: pa.Table, chart: Bar, palette: dict[str, str]) -> list[Any]:
    import plotly.graph_objects as go

    traces = []
    used: list[object] = []
    x = _category(table, chart.x)
    for number, (name, rows, y) in enumerate(_series(table, chart.y, chart.color)):
        along = [x[k] for k in rows]
        values = _scaled(table, y, rows)
        by_kind = _by_kind(table, chart, palette)
        colour = colour_of(name, palette, number)
        again = used.count((colour, is_waiting(name)))
        used.append((colour, is_waiting(name)))
        traces.append(
            go.Bar(
                x=values if chart.horizontal else along,
                y=along if chart.horizontal else values,
                orientation="h" if chart.horizontal else "v",
                name=name,
                marker={"color": by_kind} if by_kind else marker_of(name, colour, palette, again),
            )
        )
    return traces


def _by_kind(table: pa.Table, chart: Bar, palette: dict[str, str]) -> list[str] | None:
    """Where each bar is a thing of one kind, the kinds' colours."""
    if chart.color is not None or not isinstance(chart.y, str) or "kind" not in table.column_names:
        return None
    return [palette.get(kind or "", palette["cpu"]) for kind in table["kind"].to_pylist()]


def _lines(table: pa.Table, chart: Line, palette: dict[str, str]) -> list[Any]:
    import plotly.graph_objects as go

    series = _split_by_rank(table, chart)
    by_rank = any(line.rank is not None for line in series)
    if chart.x in _WITH_NUMBER and len({line.rank for line in series}) > _MOST_LINES:
        return _bands(table, chart, series, palette)
    ranks = list(dict.fromkeys(line.rank for line in series))
    names = list(dict.fromkeys(line.name for line in series))
    traces = []
    for number, line in enumerate(series):
        colour = colour_of(line.name, palette, number)
        if by_rank:  # a colour a rank, a dash for each series of it
            colour = series_colour(ranks.index(line.rank), dark=palette is DARK)
        traces.append(
            go.Scatter(
                x=_scaled(table, chart.x, line.rows),
                y=_scaled(table, line.y, line.rows),
                mode="lines+markers" if len(line.rows) < 3 else "lines",
                name=_line_name(line, len(names)),
                line={
                    "color": colour,
                    "width": 1.6,
                    "shape": "hv" if chart.steps else "linear",
                    "dash": _DASHES[names.index(line.name) % len(_DASHES)] if by_rank else "solid",
                },
            )
        )
    return traces


def _bands(
    table: pa.Table, chart: Line, series: Sequence["_Drawn"], palette: dict[str, str]
) -> list[Any]:
    """Of many ranks the median, and the range between the least and the most."""
    import plotly.graph_objects as go

    traces = []
    names = list(dict.fromkeys(line.name for line in series))
    for number, name in enumerate(names):
        values: dict[Any, list[tuple[float, int | None]]] = {}
        lines = [line for line in series if line.name == name]
        for line in lines:
            points = zip(
                _scaled(table, chart.x, line.rows), _scaled(table, line.y, line.rows), strict=True
            )
            for x, y in points:
                if x is not None and y is not None:
                    values.setdefault(x, []).append((y, line.rank))
        x = sorted(values)
        colour = series_colour(number, dark=palette is DARK)
        most = [max(values[k], key=lambda point: point[0]) for k in x]
        shared = {"x": x, "mode": "lines", "hoverinfo": "skip", "showlegend": False}
        edge = {"width": 0.5, "color": blended(colour, palette["panel"], 0.5)}
        fill = blended(colour, palette["panel"], 0.22)
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
                customdata=[[y, rank] for y, rank in most],
                hovertemplate="%{y:.4g}, most %{customdata[0]:.4g} on rank %{customdata[1]}"
                "<extra></extra>",
            ),
        ]
    return traces


def _line_name(line: "_Drawn", series: int) -> str:
    if line.rank is None:
        return line.name
    return f"rank {line.rank}" if series == 1 else f"{line.name}, rank {line.rank}"


class _Drawn(NamedTuple):
    """A line of a figure; of one rank, where several ranks have lines."""

    name: str
    rank: int | None
    rows: list[int]
    y: str


def _split_by_rank(table: pa.Table, chart: Line) -> list[_Drawn]:
    """A line does not run from one rank to the next."""
    series = _series(table, chart.y, chart.color)
    if "rank" not in table.column_names or chart.x == "rank":
        return [_Drawn(name, None, rows, y) for name, rows, y in series]
    if chart.color == "rank":
        series = [(_words(str(chart.y)), list(range(table.num_rows)), str(chart.y))]
    ranks = table["rank"].to_pylist()
    every = list(dict.fromkeys(ranks))
    if len(every) < 2:
        return [_Drawn(name, None, rows, y) for name, rows, y in series]
    return [
        _Drawn(name, rank, of_rank, y)
        for name, rows, y in series
        for rank in every
        if (of_rank := [k for k in rows if ranks[k] == rank])
    ]


def _points(table: pa.Table, chart: Scatter, palette: dict[str, str]) -> list[Any]:
    import plotly.graph_objects as go

    names = _category(table, "name") if "name" in table.column_names else None
    traces = []
    for number, (name, rows, y) in enumerate(_series(table, chart.y, chart.color)):
        traces.append(
            go.Scatter(
                x=_scaled(table, chart.x, rows),
                y=_scaled(table, y, rows),
                mode="markers",
                name=name,
                text=[names[k] for k in rows] if names else None,
                marker={"color": colour_of(name, palette, number), "size": 8, "opacity": 0.8},
            )
        )
    return traces


def _heat(table: pa.Table, chart: Heatmap, palette: dict[str, str]) -> list[Any]:
    import plotly.graph_objects as go

    cells = _scaled(table, chart.value, range(table.num_rows))
    return [
        go.Heatmap(
            x=_category(table, chart.x),
            y=_category(table, chart.y),
            z=cells,
            zmin=0 if min((v for v in cells if v is not None), default=0) >= 0 else None,
            colorscale=heat_scale(dark=palette is DARK),
            colorbar={"title": _title(table, chart.value)},
        )
    ]


def _spans(table: pa.Table, chart: TimelineChart, palette: dict[str, str]) -> list[Any]:
    import plotly.graph_objects as go

    start = _scaled(table, chart.start, range(table.num_rows))
    end = _scaled(table, chart.end, range(table.num_rows))
    origin = min((s for s in start if s is not None), default=0)
    lanes = _category(table, chart.lane)
    traces = []
    for number, (name, every, _) in enumerate(_series(table, chart.start, chart.color)):
        rows = [k for k in every if start[k] is not None and end[k] is not None]
        traces.append(
            go.Bar(
                base=[start[k] - origin for k in rows],
                x=[end[k] - start[k] for k in rows],
                y=[lanes[k] for k in rows],
                orientation="h",
                name=name,
                marker={"color": colour_of(name, palette, number)},
            )
        )
    return traces


def _series(
    table: pa.Table, y: str | Sequence[str], color: str | None
) -> list[tuple[str, list[int], str]]:
    """(name, rows, y column) of each trace of a figure."""
    every = list(range(table.num_rows))
    if not isinstance(y, str):
        return [(_words(name), every, name) for name in y]
    if color is None:
        return [(_words(y), every, y)]
    values = table[color].to_pylist()
    return [
        (_named(color, value), [k for k in every if values[k] == value], y)
        for value in dict.fromkeys(values)
    ]


def _named(column: str, value: Any) -> str:
    """A series as the legend names it."""
    if isinstance(value, bool):
        return _words(column) if value else f"not {_words(column)}"
    if value is None:
        return "–"
    word = "rank" if column.endswith("_rank") else column
    return f"{word} {value}" if word in _WITH_NUMBER else str(value)


def _category(table: pa.Table, name: str) -> list[Any]:
    values: list[Any] = table[name].to_pylist()
    if name in _WITH_NUMBER:
        return [f"{name} {v}" if v is not None else "–" for v in values]
    if _plain(table[name].type) == pa.string():
        return ["–" if v is None else shorten(v, 50) for v in values]
    return values


def _scaled(table: pa.Table, name: str, rows: Sequence[int]) -> list[Any]:
    factor, _ = _scale(table, name)
    values = table[name].to_pylist()
    if name in ABSOLUTE_TIMES:  # since the first of them
        origin = min((v for v in values if v is not None), default=0)
        values = [None if v is None else v - origin for v in values]
    return [
        v if factor is None or not isinstance(v, int | float) else v * factor
        for v in (values[k] for k in rows)
    ]


def _words(name: str) -> str:
    return heading_of(name).removesuffix(" %")


def _scale(table: pa.Table, name: str) -> tuple[float | None, str]:
    """What numbers are multiplied by, and their unit then: one for all of a figure."""
    unit = unit_of(name)
    if unit == "bytes":
        sizes = [table[f.name] for f in table.schema if unit_of(f.name) == "bytes"]
        largest = max((pc.max(column).as_py() or 0 for column in sizes), default=0)
        return next(((1 / size, word) for size, word in _SIZES if largest >= size), _SIZES_LEAST)
    return _SCALE.get(unit, (None, unit))


def _title(table: pa.Table, name: str) -> str:
    unit = _scale(table, name)[1]
    return f"{_words(name)} [{unit}]" if unit else _words(name)


def _axis(table: pa.Table, name: str) -> str:
    """Nothing, where each mark says what it is."""
    if name == "step":
        return name
    return "" if name in (*_WITH_NUMBER, "label") else _title(table, name)


def _label(fig: Any, table: pa.Table, chart: Chart, note: str) -> None:
    if isinstance(chart, Heatmap):
        fig.update_xaxes(title=_title(table, chart.x))
        fig.update_yaxes(title=_title(table, chart.y))
        return
    if isinstance(chart, TimelineChart):
        fig.update_xaxes(title="ms")
        return
    y = chart.y if isinstance(chart.y, str) else chart.y[0]
    words = _title(table, y) if isinstance(chart.y, str) else _scale(table, y)[1]
    titles = (_axis(table, chart.x), words + note)
    if isinstance(chart, Bar) and chart.horizontal:
        fig.update_yaxes(autorange="reversed")
        fig.update_xaxes(title=titles[1])
        return
    fig.update_xaxes(title=titles[0])
    fig.update_yaxes(title=titles[1])
    if isinstance(chart, Line):
        fig.update_yaxes(rangemode="tozero")
    if isinstance(chart, Scatter):
        fig.update_xaxes(type="log" if chart.log_x else "linear")
        fig.update_yaxes(type="log" if chart.log_y else "linear")
