"""The filters that hold on all pages: pills that say what is chosen, and open a picker."""

from collections.abc import Mapping, Sequence
from typing import Any

import dash_mantine_components as dmc
import numpy as np
from dash import html

from htk.base.columns.arrow import codes_of
from htk.base.core.humanize import (
    format_duration,
    format_int_ranges,
    parse_int_ranges,
    shorten_text,
)
from htk.base.errors import HtkError
from htk.dashboard.components import MADE_ON_OPENING, spell_attributes
from htk.dashboard.page import Visit
from htk.dashboard.url_state import UrlState
from htk.traces.trace.trace import Trace

IDS = ("ranks", "cycles", "steps", "time", "name", "annotation")  # of the controls: filter-ranks, …
_OF_TIME = ("from", "to")
_STEP = 0.001  # of the recording, in the picker of times
_MOST_NAMES = 400  # suggested
_IN_PLACE: Any = {**MADE_ON_OPENING, "withinPortal": False}


def draw_filter_pills(visit: Visit) -> list[Any]:
    """Return a pill for each filter."""
    trace = visit.runs.trace(visit.view.run)
    if trace is None:
        return []
    ranks, cycles, steps, length_ns = _list_choices(visit, trace)
    chosen = visit.view.filters
    span = _read_time_span(visit.view, length_ns)
    shown = [
        _draw_pill(
            "ranks",
            "Ranks",
            chosen.get("ranks", ""),
            _describe_all(ranks),
            _draw_number_picker("ranks", ranks, visit),
        ),
        _draw_pill(
            "cycles",
            "Cycles",
            chosen.get("cycles", ""),
            _describe_all(cycles),
            _draw_number_picker("cycles", cycles, visit),
        ),
        _draw_pill(
            "steps",
            "Steps",
            chosen.get("steps", ""),
            _describe_all(steps),
            _draw_number_picker("steps", steps, visit),
        ),
        _draw_pill(
            "time", "Time", _time_words(chosen), "whole", _draw_time_picker(span, length_ns)
        ),
        _draw_pill(
            "name", "Name", chosen.get("name", ""), "any", _list_names("name", visit, trace)
        ),
        _draw_pill(
            "annotation",
            "Range",
            chosen.get("annotation", ""),
            "any",
            _list_names("annotation", visit, trace),
        ),
    ]
    return [pill for pill in shown if pill is not None]


def _draw_pill(name: str, label: str, value: str, everything: str, picker: Any) -> Any:
    if picker is None and not value:
        return None
    class_name = "pill on" if value else "pill"
    target = html.Summary(
        [label, html.B(value or everything)],
        className=class_name,
        title=f"{label}: {value or everything}",
    )
    body = html.Div("Nothing to choose from." if picker is None else picker, className="dropdown")
    menu = html.Details([target, body], className="pick")
    clear = html.Button(
        "×",
        id={"type": "chip", "name": name},
        className="clear",
        title=f"remove the filter {label.lower()}",
        **spell_attributes(aria_label=f"remove the filter {label.lower()}"),
    )
    return html.Span([menu, clear] if value else [menu], className="pill-group")


def _list_choices(visit: Visit, trace: Trace) -> tuple[list[int], list[int], list[int], int]:
    """Return the ranks, cycles, steps and length of the whole recording."""

    def read_filter_choices() -> tuple[list[int], list[int], list[int], int]:
        windows = trace.tables["step_windows"]
        ranks = trace.tables["ranks"]
        steps = sorted({s for s in windows["step"].unique().to_pylist() if s is not None})
        ends = [end for end in ranks["end_ns"].to_pylist() if end is not None]
        length_ns = max([end - trace.origin_ns for end in ends], default=0)
        return list(trace.ranks), list(trace.cycles), steps, length_ns

    choices: tuple[list[int], list[int], list[int], int] = visit.runs.kept(
        visit.view.run, trace.selection, "filters", read_filter_choices
    )
    return choices


def _describe_all(numbers: Sequence[int]) -> str:
    if len(numbers) < 2:
        return format_int_ranges(numbers) or "none"
    return f"all {len(numbers)}" if len(numbers) > 4 else format_int_ranges(numbers)


def _draw_number_picker(name: str, choices: Sequence[int], visit: Visit) -> Any:
    """Return the numbers to choose from."""
    if len(choices) < 2:
        return None
    try:
        picked = [str(n) for n in parse_int_ranges(visit.view.filters.get(name, ""))]
    except HtkError:
        picked = []
    return dmc.MultiSelect(
        id=f"filter-{name}",
        data=[str(n) for n in choices],
        value=picked,
        label=f"{name} to look at",
        placeholder="all",
        searchable=True,
        clearable=True,
        debounce=700,
        maxDropdownHeight=220,
        comboboxProps=_IN_PLACE,
    )


def _draw_time_picker(span: tuple[float, float], length_ns: int) -> Any:
    if not length_ns:
        return None
    high = length_ns / 1e6
    return html.Div(
        [
            html.Div(f"time since the recording began, of {format_duration(length_ns)}"),
            dmc.RangeSlider(
                id="filter-time",
                value=list(span),
                min=0,
                max=round(high, 3),
                step=max(round(high * _STEP, 4), 0.0001),
                minRange=0,
                precision=3,
                updatemode="mouseup",
                mt=36,
                mb=8,
                labelAlwaysOn=True,
                thumbFromLabel="from, ms",
                thumbToLabel="to, ms",
            ),
        ],
        className="picker",
    )


def _list_names(name: str, visit: Visit, trace: Trace) -> Any:
    """Return the names that the recording holds, as suggestions."""
    tables = ("kernels", "cpu_ops") if name == "name" else ("annotations",)

    def read_filter_choices() -> list[str]:
        names: list[str] = []
        for table in tables:
            codes, texts = codes_of(trace.tables[table]["name"])
            count = np.bincount(codes[codes >= 0], minlength=len(texts))
            order = np.argsort(-count)[: _MOST_NAMES // len(tables)].tolist()
            names += [str(texts[k]) for k in order if count[k]]
        return list(dict.fromkeys(names))

    names = visit.runs.kept(visit.view.run, trace.selection, ("names", name), read_filter_choices)
    if not names and name == "annotation":
        return None
    what = "part of a name" if name == "name" else "name of a range, or a regular expression"
    return dmc.Autocomplete(
        id=f"filter-{name}",
        data=list(
            dict.fromkeys(shorten_text(text, 120) for text in names)
        ),  # the browser wants no two
        value=visit.view.filters.get(name, ""),
        label=what,
        limit=12,
        debounce=900,
        comboboxProps=_IN_PLACE,
        maxDropdownHeight=260,
    )


def _read_time_span(view: UrlState, length_ns: int) -> tuple[float, float]:
    try:
        chosen = view.selection
    except HtkError:
        return 0.0, length_ns / 1e6
    low = (chosen.from_ns or 0) / 1e6
    return low, (length_ns if chosen.to_ns is None else chosen.to_ns) / 1e6


def _time_words(chosen: Mapping[str, str]) -> str:
    if not any(chosen.get(name) for name in _OF_TIME):
        return ""
    return f"{chosen.get('from', 'start')} – {chosen.get('to', 'end')}"


def change_filter(
    view: UrlState, name: str, value: Any, longest_ms: float | None = None
) -> UrlState:
    """The view after a picker was used; `longest_ms` is the end of the picker of times."""
    if name in ("ranks", "cycles", "steps"):
        return view.with_filters(
            **{name: format_int_ranges([int(v) for v in value or []]).replace(" ", "")}
        )
    if name == "time":
        low, high = value
        span = _read_time_span(view, round((longest_ms or 0) * 1e6))
        step = (longest_ms or 0) * _STEP
        if max(abs(low - span[0]), abs(high - span[1])) <= 2 * step:
            return view  # the browser rounds what it is given, which is no choice of anybody
        from_ = time_text(low) if low > 0 else ""
        return view.with_filters(from_=from_, to=time_text(high))
    return view.with_filters(**{name: (value or "").strip()})


def clear_filter(view: UrlState, name: str) -> UrlState:
    """Return the view without a filter."""
    return view.with_filters(from_="", to="") if name == "time" else view.without(name)


def time_text(ms: float) -> str:
    """Milliseconds of a plot's axis as a filter writes them."""
    return f"{max(ms, 0):.6f}".rstrip("0").rstrip(".") + "ms"
