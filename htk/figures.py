"""A chart and a table become a plotly figure: the only file that knows plotly."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from htk.chart import Bar, Chart, Heatmap, Line, Scatter, Timeline
from htk.schema.columns import unit_of
from htk.units import shortened

# Fixed by meaning, the same in tables, charts and timeline; told apart by colour-blind eyes too.
LIGHT = {
    "compute": "#0898FF",
    "comm": "#C7830E",
    "memory": "#06371F",
    "launch": "#67067A",
    "cpu": "#737373",
    "idle": "#E5E7EB",
}
DARK = {
    "compute": "#0884FF",
    "comm": "#C47C00",
    "memory": "#3BFF9D",
    "launch": "#F3C5FC",
    "cpu": "#6A6A6A",
    "idle": "#374151",
}
_OTHERS = ("#0898FF", "#C7830E", "#67067A", "#06371F", "#737373", "#B5179E", "#3A86A8", "#8A5A00")
_MOST_POINTS = 2000
_SCALE = {"ns": (1e-6, "ms"), "bytes": (1 / 2**20, "MiB")}


def figure(table: pa.Table, chart: Chart, *, dark: bool = False) -> Any:
    """The picture of an answer."""
    import plotly.graph_objects as go

    shown = table.slice(0, _MOST_POINTS)
    fig = go.Figure(_drawn(shown, chart, DARK if dark else LIGHT))
    fig.update_layout(
        template="plotly_dark" if dark else "plotly_white",
        barmode="stack" if isinstance(chart, Bar) and chart.stacked else "group",
        margin={"l": 60, "r": 20, "t": 30, "b": 50},
        legend={"orientation": "h", "y": 1.12},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        font={"family": "system-ui, sans-serif", "size": 13},
    )
    _label(fig, chart)
    return fig


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
        case Timeline():
            return _spans(table, chart, palette)


def colour_of(name: str, palette: dict[str, str], place: int = 0) -> str:
    """The colour of what a column or value means, else one of a fixed order."""
    for word, meaning in (
        ("idle", "idle"),
        ("comm", "comm"),
        ("wait", "comm"),
        ("transfer", "comm"),
        ("memory", "memory"),
        ("copy", "memory"),
        ("compute", "compute"),
        ("launch", "launch"),
        ("cpu", "cpu"),
    ):
        if word in name:
            return palette[meaning]
    return _OTHERS[place % len(_OTHERS)]


def _bars(table: pa.Table, chart: Bar, palette: dict[str, str]) -> list[Any]:
    import plotly.graph_objects as go

    traces = []
    x = _category(table, chart.x)
    for place, (name, rows, y) in enumerate(_series(table, chart.y, chart.color)):
        along = [x[k] for k in rows]
        values = _scaled(table, y, rows)
        traces.append(
            go.Bar(
                x=values if chart.horizontal else along,
                y=along if chart.horizontal else values,
                orientation="h" if chart.horizontal else "v",
                name=name,
                marker={
                    "color": colour_of(name, palette, place),
                    "pattern": {"shape": "/" if name.startswith("exposed comm") else ""},
                },
            )
        )
    return traces


def _lines(table: pa.Table, chart: Line, palette: dict[str, str]) -> list[Any]:
    import plotly.graph_objects as go

    return [
        go.Scatter(
            x=_scaled(table, chart.x, rows),
            y=_scaled(table, y, rows),
            mode="lines",
            name=name,
            line={"color": colour_of(name, palette, place)},
        )
        for place, (name, rows, y) in enumerate(_series(table, chart.y, chart.color))
    ]


def _points(table: pa.Table, chart: Scatter, palette: dict[str, str]) -> list[Any]:
    import plotly.graph_objects as go

    names = _category(table, "name") if "name" in table.column_names else None
    traces = []
    for place, (name, rows, y) in enumerate(_series(table, chart.y, chart.color)):
        traces.append(
            go.Scatter(
                x=_scaled(table, chart.x, rows),
                y=_scaled(table, y, rows),
                mode="markers",
                name=name,
                text=[names[k] for k in rows] if names else None,
                marker={"color": colour_of(name, palette, place), "size": 8, "opacity": 0.8},
            )
        )
    return traces


def _heat(table: pa.Table, chart: Heatmap) -> list[Any]:
    import plotly.graph_objects as go

    return [
        go.Heatmap(
            x=_category(table, chart.x),
            y=_category(table, chart.y),
            z=_scaled(table, chart.value, range(table.num_rows)),
            colorscale="Cividis",
            colorbar={"title": _title(chart.value)},
        )
    ]


def _spans(table: pa.Table, chart: Timeline, palette: dict[str, str]) -> list[Any]:
    import plotly.graph_objects as go

    start = _scaled(table, chart.start, range(table.num_rows))
    end = _scaled(table, chart.end, range(table.num_rows))
    origin = min((s for s in start if s is not None), default=0)
    lanes = _category(table, chart.lane)
    traces = []
    for place, (name, every, _) in enumerate(_series(table, chart.start, chart.color)):
        rows = [k for k in every if start[k] is not None and end[k] is not None]
        traces.append(
            go.Bar(
                base=[start[k] - origin for k in rows],
                x=[end[k] - start[k] for k in rows],
                y=[lanes[k] for k in rows],
                orientation="h",
                name=name,
                marker={"color": colour_of(name, palette, place)},
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
        (str(value), [k for k in every if values[k] == value], y) for value in dict.fromkeys(values)
    ]


def _category(table: pa.Table, name: str) -> list[Any]:
    values = table[name].to_pylist()
    if name in ("rank", "step", "device", "stage"):
        return [f"{name} {v}" if v is not None else "–" for v in values]
    return [shortened(v, 50) if isinstance(v, str) else v for v in values]


def _scaled(table: pa.Table, name: str, rows: Sequence[int]) -> list[Any]:
    factor, _ = _SCALE.get(unit_of(name), (None, ""))
    values = table[name].to_pylist()
    return [
        v if factor is None or not isinstance(v, int | float) else v * factor
        for v in (values[k] for k in rows)
    ]


def _words(name: str) -> str:
    for suffix in ("_ns", "_bytes", "_pct"):
        name = name.removesuffix(suffix)
    return name.replace("_", " ")


def _title(name: str) -> str:
    unit = _SCALE.get(unit_of(name), (None, unit_of(name)))[1]
    return f"{_words(name)} [{unit}]" if unit else _words(name)


def _label(fig: Any, chart: Chart) -> None:
    if isinstance(chart, Heatmap):
        fig.update_xaxes(title=_title(chart.x))
        fig.update_yaxes(title=_title(chart.y))
        return
    if isinstance(chart, Timeline):
        fig.update_xaxes(title="ms")
        return
    y = chart.y if isinstance(chart.y, str) else chart.y[0]
    titles = (_title(chart.x), _title(y) if isinstance(chart.y, str) else _title(y).split(" ")[-1])
    if isinstance(chart, Bar) and chart.horizontal:
        fig.update_yaxes(autorange="reversed")
        fig.update_xaxes(title=titles[1])
        return
    fig.update_xaxes(title=titles[0])
    fig.update_yaxes(title=titles[1])
    if isinstance(chart, Scatter):
        fig.update_xaxes(type="log" if chart.log_x else "linear")
        fig.update_yaxes(type="log" if chart.log_y else "linear")
