"""A chart and a table become a plotly figure: the only file that knows plotly."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from htk.core.chart import Bar, Chart, Heatmap, Line, Scatter, TimelineChart
from htk.core.extras import require
from htk.core.humanize import shorten
from htk.schema import ABSOLUTE_TIMES
from htk.schema.columns import unit_of

# Fixed by meaning, the same in tables, charts and timeline; told apart by colour-blind eyes too.
LIGHT = {
    "compute": "#0898FF",
    "comm": "#C7830E",
    "memory": "#06371F",
    "launch": "#67067A",
    "cpu": "#737373",
    "idle": "#E5E7EB",
    "undetermined": "#B3A58A",  # of communication: wait or transfer
}
DARK = {
    "compute": "#0884FF",
    "comm": "#C47C00",
    "memory": "#3BFF9D",
    "launch": "#F3C5FC",
    "cpu": "#6A6A6A",
    "idle": "#374151",
    "undetermined": "#8C8069",
}
# For what has no meaning of its own: none of the colours that have one, but the first.
_OTHERS = ("#0898FF", "#B5179E", "#3A86A8", "#8A5A00", "#5B4FD1", "#7A9E1F", "#D1495B", "#737373")
_MOST_POINTS = 2000
_MOST_BARS = 16  # that lie: each has its name
_MOST_MARKS = 20  # of an axis
_WITH_NUMBER = ("rank", "step", "device", "stage")  # axes whose marks say what they are
_SCALE = {"ns": (1e-6, "ms")}
_SIZES = ((2**30, "GiB"), (2**20, "MiB"))  # the first that the largest reaches
_SIZES_LEAST = (1 / 2**10, "KiB")
_PATTERNS = ("", ".", "x", "-")  # tell series of one colour apart


def figure(table: pa.Table, chart: Chart, *, dark: bool = False) -> Any:
    """The picture of an answer."""
    require("plot", "a picture")
    import plotly.graph_objects as go

    shown, mean = _over_ranks(table.slice(0, _MOST_POINTS), chart)
    if isinstance(chart, Bar) and chart.horizontal:
        shown = shown.slice(0, _MOST_BARS)
    drawn = _drawn(shown, chart, DARK if dark else LIGHT)
    fig = go.Figure(drawn)
    fig.update_layout(
        template="plotly_dark" if dark else "plotly_white",
        barmode="stack" if isinstance(chart, Bar) and chart.stacked else "group",
        margin={"l": 60, "r": 20, "t": 30, "b": 50},
        legend={"orientation": "h", "y": 1.12},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        font={"family": "system-ui, sans-serif", "size": 13},
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
            return _heat(table, chart)
        case TimelineChart():
            return _spans(table, chart, palette)


def colour_of(name: str, palette: dict[str, str], number: int = 0) -> str:
    """The colour of what a column or value means, else one of a fixed order."""
    for word, meaning in (
        ("idle", "idle"),
        ("undetermined", "undetermined"),
        ("comm", "comm"),
        ("wait", "comm"),
        ("transfer", "comm"),
        ("memory", "memory"),
        ("copy", "memory"),
        ("copies", "memory"),
        ("compute", "compute"),
        ("launch", "launch"),
        ("cpu", "cpu"),
        ("gpu", "compute"),
        ("exposed", "comm"),
    ):
        if word in name:
            return palette[meaning]
    return _OTHERS[number % len(_OTHERS)]


def _bars(table: pa.Table, chart: Bar, palette: dict[str, str]) -> list[Any]:
    import plotly.graph_objects as go

    traces = []
    used: list[object] = []
    x = _category(table, chart.x)
    for number, (name, rows, y) in enumerate(_series(table, chart.y, chart.color)):
        along = [x[k] for k in rows]
        values = _scaled(table, y, rows)
        colour = _by_kind(table, chart, palette) or colour_of(name, palette, number)
        hatched = _is_hatched(name)
        again = used.count((colour, hatched))
        used.append((colour, hatched))
        traces.append(
            go.Bar(
                x=values if chart.horizontal else along,
                y=along if chart.horizontal else values,
                orientation="h" if chart.horizontal else "v",
                name=name,
                marker={
                    "color": colour,
                    "pattern": {"shape": "/" if hatched else _PATTERNS[again % len(_PATTERNS)]},
                },
            )
        )
    return traces


def _by_kind(table: pa.Table, chart: Bar, palette: dict[str, str]) -> list[str] | None:
    """Where each bar is a thing of one kind, the kinds' colours."""
    if chart.color is not None or not isinstance(chart.y, str) or "kind" not in table.column_names:
        return None
    return [palette.get(kind or "", palette["cpu"]) for kind in table["kind"].to_pylist()]


def _is_hatched(name: str) -> bool:
    """Time in which communication moves nothing, or hides behind nothing."""
    return "wait" in name or (name.startswith("exposed comm") and "undetermined" not in name)


def _lines(table: pa.Table, chart: Line, palette: dict[str, str]) -> list[Any]:
    import plotly.graph_objects as go

    return [
        go.Scatter(
            x=_scaled(table, chart.x, rows),
            y=_scaled(table, y, rows),
            mode="lines+markers" if len(rows) < 3 else "lines",
            name=name,
            line={"color": colour_of(name, palette, number)},
        )
        for number, (name, rows, y) in enumerate(_split_by_rank(table, chart))
    ]


def _split_by_rank(table: pa.Table, chart: Line) -> list[tuple[str, list[int], str]]:
    """A line does not run from one rank to the next."""
    series = _series(table, chart.y, chart.color)
    if "rank" not in table.column_names or "rank" in (chart.x, chart.color):
        return series
    ranks = table["rank"].to_pylist()
    every = list(dict.fromkeys(ranks))
    if len(every) < 2:
        return series
    return [
        (f"{name}, rank {rank}", of_rank, y)
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


def _heat(table: pa.Table, chart: Heatmap) -> list[Any]:
    import plotly.graph_objects as go

    cells = _scaled(table, chart.value, range(table.num_rows))
    return [
        go.Heatmap(
            x=_category(table, chart.x),
            y=_category(table, chart.y),
            z=cells,
            zmin=0 if min((v for v in cells if v is not None), default=0) >= 0 else None,
            colorscale="Cividis",
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
    for suffix in ("_ns", "_bytes", "_pct"):
        name = name.removesuffix(suffix)
    return name.replace("_", " ")


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
    if isinstance(chart, Scatter):
        fig.update_xaxes(type="log" if chart.log_x else "linear")
        fig.update_yaxes(type="log" if chart.log_y else "linear")
