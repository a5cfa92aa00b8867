"""Figures of the composed pages. Colours are fixed by meaning; hatching tells their kinds apart."""

import collections
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from htk.answers.output.figure_colours import (
    build_hatch,
    colour_of,
    heat_scale,
    marker_of,
    place_of,
)
from htk.answers.output.figure_columns import scale_of_lengths, written_out
from htk.answers.output.figure_frame import frame_figure
from htk.answers.output.tokens import palette_of
from htk.base.core.humanize import shorten_apart, shorten_text
from htk.base.mappings import Fields

_BETWEEN = 0.02  # of the width: between recordings
_MOST_LEVELS = 40  # of a call tree that are as high as a line; the rows of a deeper one are lower
_SEVERAL = "several"  # families in one point
_LAYERS = {
    "compute": "compute",
    "comm": "exposed communication",
    "memory": "exposed copies",
    "unrecorded": "not recorded",
}


@dataclass(frozen=True)
class Layer:
    """Part of stacked bars: a value for each bar."""

    name: str
    meaning: str  # as the palettes name it
    values: Sequence[float]
    texts: Sequence[str]


def draw_time_shares(
    ranks: Sequence[int],
    labels: Sequence[str],
    layers: Sequence[Layer],
    dark: bool,
    axis_end: float | None = 100,
) -> Any:
    """Bars in percent of the recorded window, one for each rank; `axis_end` ends the axis."""
    import plotly.graph_objects as go

    own = palette_of(dark)
    bars = []
    seen = collections.Counter[str]()
    for layer in layers:
        marker = marker_of(layer.name, own[layer.meaning], own, seen[layer.meaning])
        seen[layer.meaning] += 1 if layer.meaning == "idle" else 0
        bars.append(
            go.Bar(
                x=list(layer.values),
                y=list(labels),
                orientation="h",
                name=layer.name,
                customdata=list(ranks),
                text=list(layer.texts),
                textposition="none",
                hovertemplate="%{y}: %{x:.1f} %<br>%{text}<extra>" + layer.name + "</extra>",
                marker=marker,
            )
        )
    axis: Fields = {"ticksuffix": " %", "title": {"text": "of the recorded window"}}
    if axis_end is not None:
        axis |= {"range": [0, axis_end], "dtick": axis_end / 5}
    return frame_figure(
        bars,
        dark=dark,
        barmode="stack",
        bargap=0.25,
        xaxis=axis,
        yaxis={"autorange": "reversed"},
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0, "traceorder": "normal"},
    )


def draw_heat_map(
    x: Sequence[Any], y: Sequence[Any], z: Any, *, dark: bool, title: str, **axes: Any
) -> Any:
    """Return a map of cells; the scale reads the same to colour-blind eyes."""
    import plotly.graph_objects as go

    cells = go.Heatmap(
        x=list(x),
        y=list(y),
        z=z,
        colorscale=heat_scale(dark=dark),
        colorbar={"title": title, "thickness": 12},
        hoverongaps=False,
        hovertemplate=axes.pop("hover", "%{y} · %{x}: %{z:.3g}<extra></extra>"),
        text=axes.pop("text", None),
    )
    return frame_figure([cells], dark=dark, **axes)


def draw_call_tree(rows: Sequence[Fields], value: str, dark: bool) -> Any:
    """Return a call tree as a flame chart that hangs from its roots; a click zooms."""
    import plotly.graph_objects as go

    ids = [str(r["id"]) for r in rows]
    own = palette_of(dark)
    fills = [own["line"], *(_tree_colour(r, dark) for r in rows)]
    roots = [r for r in rows if r["parent"] is None]
    total = sum(r[value] or 0 for r in roots)
    chart = go.Icicle(
        ids=["all", *ids],
        parents=["", *("all" if r["parent"] is None else str(r["parent"]) for r in rows)],
        labels=["all operators", *(shorten_text(r["op"], 60) for r in rows)],
        values=[total, *((r[value] or 0) for r in rows)],
        branchvalues="total",
        customdata=[
            ["", ""],
            *([f"{(r[value] or 0) / 1e6:,.3g} ms", f"{r['count']:,}"] for r in rows),
        ],
        hovertemplate="%{label}<br>%{customdata[0]}, %{percentRoot:.1%}<br>"
        "%{customdata[1]} calls<extra></extra>",
        tiling={"orientation": "v"},
        marker={
            "colors": fills,
            "line": {"width": 1, "color": own["panel"]},
        },
        leaf={"opacity": 1},  # paler leaves would take their names' contrast
        textfont={"size": 12, "color": [_choose_ink(fill) for fill in fills]},
        textposition="middle left",
        pathbar={"visible": True},
    )
    margin = {"l": 4, "r": 4, "t": 24, "b": 4}
    words = {"minsize": 11, "mode": "hide"}  # in the hover text alone, where a box is too narrow
    return frame_figure([chart], dark=dark, margin=margin, uniformtext=words)


def tree_height(rows: Sequence[Fields]) -> int:
    """Return the pixels of a flame chart whose rows are as high as a line of text."""
    depth_of: dict[Any, int] = {}
    for row in rows:  # callers stand before callees
        depth_of[row["id"]] = depth_of.get(row["parent"], 1) + 1
    return 60 + 28 * min(max(depth_of.values(), default=1), _MOST_LEVELS)


def _choose_ink(fill: str) -> str:
    """Return white or near-black: what reads better on a colour."""
    red = int(fill[1:3], 16) / 255
    green = int(fill[3:5], 16) / 255
    blue = int(fill[5:7], 16) / 255
    luminance = 0.2126 * red**2.2 + 0.7152 * green**2.2 + 0.0722 * blue**2.2
    return "#ffffff" if luminance < 0.19 else "#0b1220"  # there their contrasts are equal


def _tree_colour(row: Fields, dark: bool) -> str:
    name = row["op"]
    own = palette_of(dark)
    if any(w in name for w in ("nccl", "c10d", "comms", "all_reduce", "gather", "scatter")):
        return own["comm"]
    if "copy" in name or "memcpy" in name.lower():
        return own["memory"]
    return own["compute"] if row["device_total_ns"] else own["cpu"]


def draw_waterfall(
    names: Sequence[str],
    base: float,
    parts: Sequence[float],
    dark: bool,
    ends: tuple[str, str] = ("base", "new"),
) -> Any:
    """From one total to another, by what changed. In ms, all in one precision."""
    import plotly.graph_objects as go

    own = palette_of(dark)
    new = base + sum(parts)
    digits = max(0, 3 - math.floor(math.log10(max(abs(base), abs(new), 1e-3))))
    bars = go.Waterfall(
        orientation="h",
        x=[base, *parts, new],
        y=[ends[0], *names, ends[1]],
        measure=["absolute", *["relative"] * len(names), "total"],
        text=[f"{base:,.{digits}f}", *(f"{p:+,.{digits}f}" for p in parts), f"{new:,.{digits}f}"],
        textposition="outside",
        increasing={"marker": {"color": own["alert"]}},
        decreasing={"marker": {"color": own["good"]}},
        totals={"marker": {"color": own["gpu"]}},
        cliponaxis=False,
    )
    longest = max(base, new, max(itertools.accumulate(parts, initial=base)))
    length = {"title": {"text": "ms"}, "range": [0, 1.15 * longest]}  # with room for its number
    rows = {"autorange": "reversed", "automargin": True}
    return frame_figure([bars], dark=dark, xaxis=length, yaxis=rows, showlegend=False)


def draw_ranked_bars(rows: Sequence[Fields], name: str, value: str, dark: bool) -> Any:
    """Things by what they cost, in ns, each in the colour of its kind."""
    import plotly.graph_objects as go

    own = palette_of(dark)
    factor, unit = scale_of_lengths(max((row[value] for row in rows), default=0))
    short = shorten_apart((str(r[name]) for r in rows), 56)
    words = [short[str(r[name])] for r in rows]
    places = [f"{k}" for k in range(len(rows))]  # two long names may look the same when cut
    kinds = dict.fromkeys(r["kind"] or "other" for r in rows)
    bars = []
    for kind in kinds:
        of_kind = [k for k, r in enumerate(rows) if (r["kind"] or "other") == kind]
        bars.append(
            go.Bar(
                x=[rows[k][value] * factor for k in of_kind],
                y=[places[k] for k in of_kind],
                orientation="h",
                name="copies" if kind == "memory" else written_out(kind),
                text=[words[k] for k in of_kind],
                textposition="none",
                hovertemplate=f"%{{text}}<br>%{{x:.4g}} {unit}<extra></extra>",
                marker={"color": own.get(kind, own["gpu"])},
            )
        )
    axis = {
        "type": "category",
        "categoryarray": places,
        "autorange": "reversed",
        "tickvals": places,
        "ticktext": words,
        "automargin": True,
    }
    return frame_figure(
        bars, dark=dark, xaxis={"title": {"text": unit}}, yaxis=axis, barmode="overlay"
    )


def draw_roofline(
    points: Sequence[Fields], lines: Sequence[tuple[str, float, float]], dark: bool
) -> Any:
    """Achieved rate over arithmetic intensity, under what the GPU could do.

    `lines`: a name, a peak in TFLOP/s and the memory's bandwidth in TB/s.
    """
    import plotly.graph_objects as go

    own = palette_of(dark)
    data: list[Any] = []
    intensities = [p["flops_per_byte"] for p in points] or [1.0]
    low = min(min(intensities) / 3, 1.0)
    high = max(max(intensities) * 3, 1000.0)
    for name, peak, bandwidth in lines:
        knee = peak / bandwidth
        x = sorted({low, max(low, min(knee, high)), high})
        y = [min(peak, v * bandwidth) for v in x]
        line = {"color": own["mute"], "dash": "solid" if name == lines[0][0] else "dot"}
        data.append(go.Scatter(x=x, y=y, mode="lines", name=name, line=line, hoverinfo="name"))
    most = max((p["device_ns"] for p in points), default=1)
    for family in dict.fromkeys(p["family"] or _SEVERAL for p in points):
        of_family = [p for p in points if (p["family"] or _SEVERAL) == family]
        data.append(
            go.Scatter(
                x=[p["flops_per_byte"] for p in of_family],
                y=[p["achieved_tflops"] for p in of_family],
                mode="markers",
                name=family,
                text=[
                    f"<b>{shorten_text(p['name'], 50)}</b><br>"
                    f"{shorten_text(p['shapes'] or '', 60)}<br>"
                    f"{p['device_time_pct']:.1f} % of GPU time, "
                    f"{p['roofline_pct']:.0f} % of the roofline ({p['bound']} bound)"
                    for p in of_family
                ],
                hovertemplate="%{text}<extra></extra>",
                marker={
                    "color": colour_of(family, own),
                    "symbol": place_of(family) or 0,
                    "size": [8 + 30 * (p["device_ns"] / most) ** 0.5 for p in of_family],
                    "opacity": 0.8,
                    "line": {"width": 1, "color": own["panel"]},
                },
            )
        )
    ticks = {"type": "log", "dtick": 1, "exponentformat": "power"}
    x_axis = {**ticks, "title": {"text": "operations for each byte moved"}}
    y_axis = {**ticks, "title": {"text": "TFLOP/s achieved"}}
    return frame_figure(data, dark=dark, xaxis=x_axis, yaxis=y_axis)


class SampledLine(NamedTuple):
    """Values that hold from each time, in ms, to the next."""

    name: str
    time: Sequence[float]
    value: Sequence[float]


class Strip(NamedTuple):
    """Lines of one quantity."""

    title: str
    lines: Sequence[SampledLine]


def draw_strips(quantities: Sequence[Strip], dark: bool) -> Any:
    """Return quantities over time below each other, each with an axis of its own, and one time."""
    import plotly.graph_objects as go

    own = palette_of(dark)
    share = 1 / len(quantities)
    names = [*dict.fromkeys(line.name for strip in quantities for line in strip.lines)]
    colours = (own["compute"], own["comm"], own["memory"], own["mute"])
    axes: Fields = {}
    data = []
    for number, strip in enumerate(quantities, 1):
        top = 1 - (number - 1) * share
        axes[f"yaxis{'' if number == 1 else number}"] = {
            "domain": [top - share * 0.85, top],
            "title": {"text": strip.title.replace(", ", "<br>")},
            "rangemode": "tozero",
            "nticks": 4,
        }
        data += [
            go.Scatter(
                x=list(line.time),
                y=list(line.value),
                name=line.name,
                legendgroup=line.name,
                showlegend=line.name
                not in {other.name for s in quantities[: number - 1] for other in s.lines},
                yaxis=axis_of("y", number),
                mode="lines",
                line={
                    "shape": "hv",
                    "width": 1.5,
                    "color": colours[names.index(line.name) % len(colours)],
                },
                hovertemplate="%{y:.4~g}",
            )
            for line in strip.lines
        ]
    axes["xaxis"] = {
        "title": {"text": "ms since the recording began"},
        "anchor": axis_of("y", len(quantities)),
    }
    return frame_figure(data, dark=dark, hovermode="x unified", **axes)


def axis_of(letter: str, number: int) -> str:
    """Return what Plotly calls the number-th axis: x, x2, x3, …"""
    return letter if number == 1 else f"{letter}{number}"


def marks_in_seconds(first_ms: float, last_ms: float, most: float) -> Fields:
    """Return about so many marks of an axis whose values are in ms, round numbers of seconds."""
    apart_s = (last_ms - first_ms) / 1e3 / max(most, 1.0)
    power = 10.0 ** math.floor(math.log10(apart_s))
    step_s = power * next(times for times in (1, 2, 5, 10) if times * power >= apart_s)
    numbers = range(math.ceil(first_ms / 1e3 / step_s), math.floor(last_ms / 1e3 / step_s) + 1)
    return {
        "tickvals": [1e3 * step_s * number for number in numbers],
        "ticktext": [f"{step_s * number:.12g}" for number in numbers],
    }


def draw_busy_time(recordings: Sequence[tuple[Sequence[float], Fields]], dark: bool) -> Any:
    """Return how busy the GPUs are over time: parts that add up to the busy time, to be brushed.
    Each recording has an axis of its own beside the one before, as wide as it is long."""
    import plotly.graph_objects as go

    own = palette_of(dark)
    lengths = [edges[-1] - edges[0] for edges, _ in recordings]
    _, unit = scale_of_lengths(1e6 * max(edges[-1] for edges, _ in recordings))
    in_seconds = unit == "s"
    beginning = f"{'s' if in_seconds else 'ms'} since the recording began"
    axes: Fields = {}
    data = []
    left, room = 0.0, 1 - _BETWEEN * (len(recordings) - 1)
    # No recording is too narrow to be seen and brushed.
    shares = [max(length / sum(lengths), 0.5 / len(lengths)) for length in lengths]
    for number, ((edges, layers), share) in enumerate(zip(recordings, shares, strict=True), 1):
        axis = axis_of("x", number)
        right = left + room * share / sum(shares)
        middle = [(a + b) / 2 for a, b in itertools.pairwise(edges)]
        data += [
            go.Scatter(
                x=middle,
                y=list(values),
                name=_LAYERS[kind],
                legendgroup=kind,
                showlegend=not any(kind in before for _, before in recordings[: number - 1]),
                xaxis=axis,
                mode="lines",
                stackgroup=f"recording {number}",
                line={"width": 0.5, "color": own["idle" if kind == "unrecorded" else kind]},
                fillcolor=own[kind],
                fillpattern=build_hatch(own) if kind == "unrecorded" else None,
                hovertemplate="%{y:.0f} %",
            )
            for kind, values in layers.items()
        ]
        axes[f"xaxis{'' if number == 1 else number}"] = {
            "title": {"text": beginning if number == 1 else ""},
            "range": [edges[0], edges[-1]],
            "domain": [left, min(right, 1)],
            "anchor": "y",
            "nticks": max(2, round(12 * share)),
            **(marks_in_seconds(edges[0], edges[-1], 12 * share) if in_seconds else {}),
        }
        left = right + _BETWEEN
    return frame_figure(
        data,
        dark=dark,
        dragmode="select",
        selectdirection="h",
        hovermode="x unified",
        **axes,
        yaxis={"ticksuffix": " %", "title": {"text": "of the GPUs"}, "range": [0, 100]},
    )
