"""What-ifs to try by hand, in a notebook: widgets that predict the step as they are changed."""

import json
from html import escape
from typing import Any

from htk.answers.output.tokens import LIGHT
from htk.base.core.extras import require_extra
from htk.base.core.humanize import format_bytes, format_duration
from htk.base.errors import HtkError
from htk.base.mappings import Fields
from htk.traces.trace.trace import Trace
from htk.whatif.api import WhatIf
from htk.whatif.label import SHARDINGS
from htk.whatif.server_edits import SERVED_CHOICES, SERVED_FACTORS, TRAINING_EDITS, join_settings
from htk.whatif.text import in_words, read_savings

_AS_IS = "as recorded"
# Label, edit, and the values to choose from.
_CHOICES: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("micro-batch", "batch", ("0.5x", "2x", "4x", "8x")),
    ("sharding", "sharding", SHARDINGS),
    ("network", "network", ("bandwidth=0.5x", "bandwidth=2x", "bandwidth=4x", "latency=0.5x")),
    ("host", "host", ("0.5x", "2x", "4x")),
)
_SWITCHES = (
    ("ranks arrive together", "no_skew", "on"),
    ("communication hidden", "overlap", "perfect"),
    ("no blocking calls", "remove_syncs", "on"),
    ("no waiting for data", "no_data_wait", "on"),
    ("no launch overhead", "graphs", "on"),
)


_FACTORS = ("0.5x", "2x", "4x", "8x")
_OF_SERVERS = (
    *((label, edit, _FACTORS) for edit, label in SERVED_FACTORS.items()),
    *((label, edit, values) for edit, (label, values) in SERVED_CHOICES.items()),
)


def build_panel(trace: Trace) -> Any:
    """Return the panel: choices on the left, what they predict on the right."""
    require_extra("notebook", "the panel")
    import ipywidgets as widgets

    start = WhatIf(trace)
    answer = widgets.HTML()
    controls: list[tuple[str, Any, str]] = []
    of_server = bool(trace.tables["server_marks"].num_rows)
    senseless = TRAINING_EDITS if of_server else ()
    for label, edit, values in (*(_OF_SERVERS if of_server else ()), *_CHOICES):
        if edit not in senseless:
            chosen = widgets.Dropdown(options=(_AS_IS, *values), description=label)
            controls.append((edit, chosen, ""))
    for label, edit, value in _SWITCHES:
        if edit in senseless:
            continue
        controls.append((edit, widgets.Checkbox(description=label, indent=False), value))

    def predict_step(_: Any = None) -> None:
        edits = {edit: on or widget.value for edit, widget, on in controls if _is_set(widget.value)}
        answer.value = render_prediction(start, [*join_settings(edits).items()])

    for _, control, _ in controls:
        control.observe(predict_step, names="value")
    predict_step()
    left = widgets.VBox([control for _, control, _ in controls])
    return widgets.HBox([left, answer])


def _is_set(value: object) -> bool:
    return value is True or (isinstance(value, str) and value != _AS_IS)


def render_prediction(start: WhatIf, edits: list[tuple[str, str]]) -> str:
    """Return what these edits predict, as HTML; what goes wrong is said in its place."""
    try:
        asked = start
        for name, value in edits:
            asked = asked.change(name, value)
        judged = start.stage.gate
        if not edits:
            head = f"<b>{format_duration(start.stage.step_ns)}</b>"
            best = _best_cases(start.run().to_pylist())
            return _draw_box(head, f"recorded; {judged.verdict}", best)
        row = asked.run().to_pylist()[0]
    except HtkError as error:
        return _draw_box("<b>–</b>", str(error))
    if row["step_time_ns"] is None:
        return _draw_box("<b>–</b>", str(row["verdict"]))
    held = row["intervals_held"]
    notes = [row["verdict"], *([f"90 % intervals so far: {held}"] if held else [])]
    return _draw_box(_describe_step(row), "; ".join(notes), _draw_waterfall(row))


def _describe_step(row: Fields) -> str:
    change = row["change_pct"]
    lines = [f"<b>{format_duration(row['step_time_ns'])}</b>, {change:+.1f} %"]
    low = row["step_time_ns_lo90"]
    high = row["step_time_ns_hi90"]
    lines.append(f"nine of ten: {format_duration(low)} to {format_duration(high)}")
    if row["time_per_sample_change_pct"] is not None:
        lines.append(f"{row['time_per_sample_change_pct']:+.1f} % for a sample")
    if row["tokens_per_s"] is not None:
        lines.append(f"{row['tokens_per_s']:,.0f} tokens/s")
    if row["peak_memory_bytes"] is not None:
        risk = f", out of memory {100 * row['p_oom']:.0f} %" if row["p_oom"] is not None else ""
        lines.append(f"peak memory {format_bytes(row['peak_memory_bytes'])}{risk}")
    return "<br>".join(lines)


def _draw_waterfall(row: Fields) -> str:
    """Return the change by cause: bars to the left win, to the right lose."""
    causes = {k: v for k, v in json.loads(row["waterfall"]).items() if isinstance(v, int | float)}
    most = max((abs(v) for v in causes.values()), default=0)
    if not most:
        return ""
    lines = []
    for name, ns in sorted(causes.items(), key=lambda item: -abs(item[1])):
        colour = LIGHT["good"] if ns < 0 else LIGHT["alert"]
        sign = "−" if ns < 0 else "+"
        lines.append(
            f"<tr><td>{escape(name)}</td>"
            f"<td style='text-align:right'>{sign}{format_duration(abs(ns))}</td>"
            f"<td style='width:160px'><div style='height:10px;border-radius:3px;"
            f"background:{colour};width:{100 * abs(ns) / most:.1f}%'></div></td></tr>"
        )
    return f"<table>{''.join(lines)}</table>"


def _best_cases(rows: list[Fields]) -> str:
    """Return what each remedy saves of a step at best, as bars with their 90 % intervals."""
    predicted = {str(row["whatif"]): read_savings(row) for row in rows if row["step_time_ns"]}
    saved = sorted(predicted.items(), key=lambda item: -item[1][0])
    low = min((x for ends in predicted.values() for x in ends), default=0)
    high = max((x for ends in predicted.values() for x in ends), default=0)
    low, span = min(low, 0), max(high, 0) - min(low, 0)
    if not span:
        return ""

    def compute_percent(ns: float) -> float:
        return 100 * (ns - low) / span

    lines = []
    for edit, (best, least, most) in saved:
        zero = compute_percent(min(best, 0))
        length = abs(compute_percent(best) - compute_percent(0))
        bar = f"left:{zero:.1f}%;width:{length:.1f}%;top:3px;height:10px;border-radius:3px"
        first = compute_percent(least)
        whisker = f"left:{first:.1f}%;width:{compute_percent(most) - first:.1f}%;top:7px"
        lines.append(
            f"<tr><td>{escape(in_words(edit))}</td>"
            "<td style='text-align:right;padding:0 10px;white-space:nowrap'>"
            f"{format_duration(best)}</td>"
            "<td style='width:220px'><div style='position:relative;height:16px'>"
            f"<div style='position:absolute;{bar};background:{LIGHT['good']}'></div>"
            f"<div style='position:absolute;{whisker};height:2px;background:currentColor'></div>"
            "</div></td></tr>"
        )
    heading = (
        "What each alone saves of the measured time at best, for the same samples or tokens, with "
        "its 90 % interval; they overlap:"
    )
    hint = f"<div style='opacity:.7;font-size:12.5px'>{heading}</div>"
    return f"{hint}<table>{''.join(lines)}</table>"


def _draw_box(head: str, verdict: str, more: str = "") -> str:
    return (
        "<div style='padding:4px 18px;font:14px/1.5 system-ui,sans-serif;max-width:560px'>"
        f"<div style='font-size:16px'>{head}</div>{more}"
        f"<div style='opacity:.7;font-size:12.5px'>{escape(verdict)}</div></div>"
    )
