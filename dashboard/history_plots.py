"""The picture of a metric over runs: a point a run, the mean between changes, each change said."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from htk.answers.output.figure_frame import frame_figure
from htk.answers.output.tokens import palette_of
from htk.base.mappings import Fields
from htk.verdicts.history.archive import KeptRun
from htk.verdicts.history.changes import METRICS, Change, RunSeries
from htk.verdicts.history.wording import describe_confidence, describe_share, metric_value

HEADINGS = {
    "step_time": "Step time",
    "mfu": "MFU",
    "exposed_comm": "Exposed communication of a step",
    "slowdown": "Slowdown by stragglers",
}
_COLOURS = {"step_time": "accent", "mfu": "compute", "exposed_comm": "comm", "slowdown": "alert"}
_UNITS = ((1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1.0, "ns"))
_TIMES = ("step_time", "exposed_comm")


@dataclass(frozen=True)
class _Scale:
    """What values are divided by, and what the axis is called."""

    divisor: float
    title: str


def over_runs(
    series: RunSeries,
    changes: Sequence[Change],
    positions: Sequence[str],
    chosen: Sequence[str],
    *,
    dark: bool,
) -> Any:
    """Return the figure; `positions` are the runs' places on the axis: a time or a tag."""
    import plotly.graph_objects as go

    colours = palette_of(dark)
    scale = _choose_scale(series)
    colour = colours[_COLOURS[series.metric]]
    values = (series.values / scale.divisor).tolist()
    marks = [run.remarks.mark for run in series.runs]
    points = go.Scatter(
        x=list(positions),
        y=values,
        mode="markers+lines",
        line={"color": colours["idle"], "width": 1},
        marker={
            "size": [13 if run.run in chosen else 8 for run in series.runs],
            "symbol": ["x-thin" if m == "bad" else "circle" for m in marks],
            "color": [colour if m == "good" else colours["panel"] for m in marks],
            "line": {
                "color": [colours["alert"] if m == "bad" else colour for m in marks],
                "width": [3 if run.run in chosen else 1.8 for run in series.runs],
            },
        },
        customdata=[[run.run, _write_hover(series.metric, run)] for run in series.runs],
        hovertemplate="%{customdata[1]}<extra></extra>",
        showlegend=False,
    )
    levels = [
        _build_level(series, changes, k, positions, scale, colour) for k in range(len(changes) + 1)
    ]
    fig = frame_figure(
        [points, *(go.Scatter(**level) for level in levels if changes)],
        dark=dark,
        margin={"l": 64, "r": 16, "t": 46, "b": 40},
        yaxis={"title": {"text": scale.title}, "nticks": 5},
        xaxis={"nticks": 8},
        hovermode="closest",
    )
    for change in changes:
        _draw_change(fig, change, positions, colours)
    return fig


def _choose_scale(series: RunSeries) -> _Scale:
    if series.metric in _TIMES:
        largest = float(series.values.max())
        divisor, unit = next((u for u in _UNITS if largest >= u[0]), _UNITS[-1])
        return _Scale(divisor, unit)
    title = "%" if series.metric == "mfu" else "times"
    return _Scale(1.0, title)


def _write_hover(metric: str, run: KeptRun) -> str:
    """Return what a run says of itself."""
    value = metric_value(metric, float(run.row[METRICS[metric]]))
    when = run.when[:16].replace("T", " ")
    lines = [f"<b>{value}</b>", f"{run.row['name']} · {run.run[:8]}", when]
    lines += [f"{name} = {value}" for name, value in list(run.tags.items())[:6]]
    return "<br>".join([*lines, *([f"marked {run.remarks.mark}"] if run.remarks.mark else [])])


def _build_level(
    series: RunSeries,
    changes: Sequence[Change],
    k: int,
    positions: Sequence[str],
    scale: _Scale,
    colour: str,
) -> Fields:
    """Return the mean between two changes, as a line."""
    low = changes[k - 1].first if k else 0
    high = changes[k].first if k < len(changes) else len(series.values)
    mean = float(series.values[low:high].mean()) / scale.divisor
    return {
        "x": [positions[low], positions[high - 1]],
        "y": [mean, mean],
        "mode": "lines",
        "line": {"color": colour, "width": 2.5},
        "hoverinfo": "skip",
        "showlegend": False,
    }


def _draw_change(
    fig: Any, change: Change, positions: Sequence[str], colours: dict[str, str]
) -> None:
    """Mark since which run, between which ones for sure, and say by how much."""
    x = positions[change.first]
    if change.earliest < change.latest:
        ends = positions[change.earliest], positions[change.latest]
        fig.add_vrect(x0=ends[0], x1=ends[1], fillcolor=colours["idle"], opacity=0.18, line_width=0)
    fig.add_shape(
        type="line", x0=x, x1=x, y0=0, y1=1, yref="paper",
        line={"color": colours["ink"], "width": 1.2, "dash": "dash"},
    )  # fmt: skip
    xanchor = "right" if change.first > len(positions) / 2 else "left"
    fig.add_annotation(
        x=x, y=1, yref="paper", yanchor="bottom", showarrow=False,
        xanchor=xanchor,
        text=f"<b>{describe_share(change)}</b> · {describe_confidence(change)} sure",
        font={"size": 12, "color": colours["ink"]},
    )  # fmt: skip
