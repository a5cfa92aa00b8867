"""Plans as pictures: layouts by step time and what is traded for it, one step's parts, memory."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from htk.answers.output.figure_colours import colour_of
from htk.answers.output.figure_frame import frame_figure
from htk.answers.output.tokens import palette_of
from htk.base.core.humanize import format_duration
from htk.planning.plan.step import Plan

_GIB = 2**30
_MEMORY = {
    "parameters": "parameters",
    "gradients": "gradients",
    "optimizer": "optimizer state",
    "activations": "activations",
    "logits": "logits",
}
# What a step's parts mean, as the palettes name it.
_PARTS = {
    "products": "compute",
    "attention": "compute",
    "memory": "compute",
    "casts": "compute",
    "gaps": "idle",
    "bubble": "idle",
    "optimizer": "compute",
    "offload": "memory",
}
_WORDS = {
    "products": "matrix products",
    "memory": "memory-bound kernels",
    "gaps": "gaps between kernels",
    "bubble": "pipeline bubble",
    "offload": "offload to the host",
    "exposed_data": "exposed, data parallel",
    "exposed_tensor": "exposed, tensor parallel",
    "exposed_context": "exposed, context parallel",
    "exposed_expert": "exposed, expert parallel",
    "exposed_pipeline": "exposed, pipeline",
}


@dataclass(frozen=True)
class Layouts:
    """Points of the picture: layouts from the fastest on."""

    plans: Sequence[Plan]
    keys: Sequence[str]
    values: Sequence[float]  # what stands against the step
    front: frozenset[int]
    chosen: int
    title: str
    limit: float | None = None  # of the values


def draw_pareto(layouts: Layouts, dark: bool) -> Any:
    """Draw layouts by step time, those that none beats in both with their 50 and 90 % intervals."""
    import plotly.graph_objects as go

    own = palette_of(dark)
    front = sorted(layouts.front)
    others = [k for k in range(len(layouts.plans)) if k not in layouts.front]
    seconds = [p.step_ns / 1e9 for p in layouts.plans]

    def draw_points(places: Sequence[int], **style: Any) -> Any:
        return go.Scatter(
            x=[seconds[k] for k in places],
            y=[layouts.values[k] for k in places],
            customdata=[layouts.keys[k] for k in places],
            text=[_write_hover(layouts, k) for k in places],
            hovertemplate="%{text}<extra></extra>",
            **style,
        )

    data = [
        draw_points(others, mode="markers", name="other layouts",
               marker={"size": 6, "color": own["mute"], "opacity": 0.4}),
        *(_draw_interval_bars(layouts, front, percent, own["accent"]) for percent in (90, 50)),
        draw_points(front, mode="lines+markers", name="none is both faster and better",
               line={"color": own["accent"], "width": 1.5, "dash": "dot"},
               marker={"size": 9, "color": own["accent"]}),
        draw_points([layouts.chosen], mode="markers", name="shown below",
               marker={"size": 17, "symbol": "circle-open", "color": own["ink"],
                       "line": {"width": 2}}),
    ]  # fmt: skip
    fig = frame_figure(
        data, dark=dark, xaxis={"title": {"text": "step, s"}, "rangemode": "tozero"},
        yaxis={"title": {"text": layouts.title}, "rangemode": "tozero"}, hovermode="closest",
    )  # fmt: skip
    if layouts.limit is not None:
        fig.add_hline(
            y=layouts.limit, line={"color": own["alert"], "width": 1.5, "dash": "dash"},
            annotation={"text": "limit", "font": {"color": own["alert"]}},
            annotation_position="bottom right",
        )  # fmt: skip
    return fig


def _draw_interval_bars(layouts: Layouts, front: Sequence[int], percent: int, colour: str) -> Any:
    """Bars of the step's interval; that of 50 % lies, thicker, within that of 90 %."""
    import plotly.graph_objects as go

    steps = [layouts.plans[k].step_ns / 1e9 for k in front]
    ends = [layouts.plans[k].interval(percent) for k in front]
    opacity = 0.28 if percent == 50 else 0.4
    return go.Scatter(
        x=steps,
        y=[layouts.values[k] for k in front],
        mode="markers",
        name=f"{percent} % interval",
        showlegend=False,
        marker={"size": 1, "color": colour},
        error_x={
            "type": "data",
            "symmetric": False,
            "array": [high / 1e9 - step for (_, high), step in zip(ends, steps, strict=True)],
            "arrayminus": [step - low / 1e9 for (low, _), step in zip(ends, steps, strict=True)],
            "color": colour,
            "thickness": 5 if percent == 50 else 1.2,
            "width": 0,
        },
        opacity=opacity,
        hoverinfo="skip",
    )


def _write_hover(layouts: Layouts, order: int) -> str:
    planned = layouts.plans[order]
    low, high = planned.interval(90)
    return (
        f"<b>{layouts.keys[order]}</b><br>{planned.step_ns / 1e9:,.3g} s, 90 % of such"
        f" {low / 1e9:,.3g} to {high / 1e9:,.3g} s<br>{planned.memory.total / _GIB:,.1f} GiB, out"
        f" of memory {100 * planned.p_oom:.0f} %<br>a click shows it below"
    )


def draw_step_parts(planned: Plan, dark: bool) -> Any:
    """Draw what a step consists of, the longest first; parts that take nothing are left out."""
    import plotly.graph_objects as go

    own = palette_of(dark)
    taken = {name: ns for name, ns in vars(planned.parts).items() if ns > 0}
    names = sorted(taken, key=lambda name: -taken[name])
    words = [_WORDS.get(name, name.replace("_", " ")) for name in names]
    colours = [own[_PARTS.get(name, "comm")] for name in names]
    bars = go.Bar(
        x=[taken[name] / 1e9 for name in names],
        y=words,
        orientation="h",
        marker={"color": colours},
        text=[
            f"{format_duration(taken[n])}, {100 * taken[n] / planned.step_ns:.1f} %" for n in names
        ],
        textposition="auto",  # within a long bar, so that no words stand beyond the edge
        textangle=0,
        cliponaxis=False,
        hovertemplate="%{y}: %{text}<extra></extra>",
    )
    return frame_figure(
        [bars], dark=dark,
        xaxis={"title": {"text": "s of the step"}, "range": [0, 1.35 * taken[names[0]] / 1e9]},
        yaxis={"autorange": "reversed"}, margin={"l": 8, "r": 16, "t": 8, "b": 40}, bargap=0.3,
    )  # fmt: skip


def draw_stage_memory(planned: Plan, dark: bool) -> Any:
    """Draw what a GPU of each stage holds at its peak, under what there is."""
    import plotly.graph_objects as go

    own = palette_of(dark)
    held = [planned.memory_of_stage(k) for k in range(planned.job.pipeline_parallel)]
    layers = {words: [getattr(m, name) for m in held] for name, words in _MEMORY.items()}
    layers["libraries and fragmentation"] = [m.total - m.held for m in held]
    words = [f"stage {k}" if len(held) > 1 else "each GPU" for k in range(len(held))]
    bars = [
        go.Bar(
            y=words,
            x=[value / _GIB for value in values],
            name=name,
            orientation="h",
            marker={
                "color": own["undetermined"] if name.startswith("lib") else colour_of(name, own)
            },
            hovertemplate="%{y}: %{x:,.2f} GiB<extra>" + name + "</extra>",
        )
        for name, values in layers.items()
        if any(values)
    ]
    most = planned.job.gpu.memory_bytes / _GIB
    fig = frame_figure(
        bars, dark=dark, barmode="stack", xaxis={"title": {"text": "GiB at the peak"}},
        yaxis={"autorange": "reversed"}, margin={"l": 8, "r": 16, "t": 60, "b": 40}, bargap=0.3,
    )  # fmt: skip
    fig.add_vline(x=most, line={"color": own["alert"], "width": 1.5, "dash": "dash"})
    return fig
