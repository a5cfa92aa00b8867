"""The heading of an answer to edits: its sentence, how sure it is, and what it rests on."""

import json
from typing import Any

from dash import html

from htk.base.core.humanize import format_duration
from htk.base.mappings import Fields
from htk.dashboard.edits import PRESETS, edits_of
from htk.dashboard.page import Visit
from htk.dashboard.whatif_answer import drop_unreadable_fields, find_edited_step, predict_row
from htk.whatif.text import format_error, in_words

_WIDE_PCT = 20  # of the predicted step: half an interval from which on it is said
# What assumptions speak of from which a part of the uncertainty comes.
_WORDS_OF = {
    "network": ("leave its node", "network", "links", "latency"),
    "kernel": ("times as fast", "kernel", "compute", "optimizer"),
    "host": ("CPU",),
    "skew": ("rank",),
}


def describe_scenario(visit: Visit) -> tuple[str, str] | None:
    """Return the answer to the edits of the address in a sentence, and what it rests on most."""
    visit = drop_unreadable_fields(visit)
    edits = edits_of(visit.view)
    row = predict_row(visit, edits) if edits else None
    if row is None or row["step_time_ns"] is None:
        return None
    ends = ("step_time_ns", "step_time_ns_lo90", "step_time_ns_hi90", "measured_step_time_ns")
    step, low, high, now = (format_duration(row[name]) for name in ends)
    named = next((words for words, *preset in PRESETS if (tuple(preset),) == edits), "")
    words = named or ", ".join(in_words(f"{name} {value}") for name, value in edits).capitalize()
    change = f"{row['change_pct']:+.1f} %"
    first = f"{words}: a step takes {step} in place of {now} ({change}), 90 % from {low} to {high}"
    return first, _find_deciding(row)


def _interval_mark(visit: Visit) -> Any:
    """Return how wide the interval of the answer is; nothing without one."""
    visit = drop_unreadable_fields(visit)
    edits = edits_of(visit.view)
    row = predict_row(visit, edits) if edits else None
    if row is None or row["step_time_ns"] is None:
        return None
    width = row["step_time_ns_hi90"] - row["step_time_ns_lo90"]
    half_pct = 50 * width / row["step_time_ns"]
    kind = "mark strong" if half_pct <= _WIDE_PCT else "mark strong warning"
    return html.Span(f"90 % within ±{half_pct:.0f} %", className=kind)


def _find_deciding(row: Fields) -> str:
    """Return the assumption that the largest part of the uncertainty comes from, else the first."""
    sigmas = json.loads(row["sigma_by_source"])
    source = max(sigmas, key=sigmas.get) if sigmas else ""
    assumed = [words for words in str(row["assumptions"] or "").split("; ") if words]
    deciding = [words for word in _WORDS_OF.get(source, ()) for words in assumed if word in words]
    return f"Assumed: {(deciding or assumed)[0]}" if assumed else ""


def draw_verdict_badge(visit: Visit) -> Any:
    """Return how wide the answer's interval is, whether the replay can be believed, by which
    tests, and which ranks stand for all."""
    asked = find_edited_step(visit, edits_of(drop_unreadable_fields(visit).view))
    judged = asked.stage.gate
    word, _, why = judged.verdict.partition(":")
    held = judged.held_out_error_pct
    tests = (
        f"step {format_error(judged.step_error_pct)} off",
        f"exposed communication {format_error(judged.exposed_error_points, 'points')} off",
        f"starts {format_error(judged.start_error_pct)} off",
        "no step held out" if held is None else f"another step {format_error(held)} off",
        f"{judged.observed_path_pct:.0f} % of the path recorded",
    )
    marks = [html.Span(text, className="mark") for text in tests]
    kind = "mark strong" if word == "trusted" else "mark strong warning"
    few = asked.shared.stand_for.partition(":")[0]
    worked = [html.Span(f"worked with {few}", className="mark")] if few else []
    reasons = [html.Span(why.strip(), className="doc")] if why else []
    width = _interval_mark(visit)
    replay = html.Span(f"replay {word}" if width else word, className=kind)
    return html.Div([*([width] if width else []), replay, *marks, *worked, *reasons],
                    className="trust")  # fmt: skip
