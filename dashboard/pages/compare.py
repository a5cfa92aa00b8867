"""Two recordings, or two sets of ranks of one, side by side: what became slower?"""

import functools
from typing import Any

import dash_mantine_components as dmc
import pyarrow as pa
from dash import html

from htk.answers.output.result import Result
from htk.base.core.analysis import coverage_of
from htk.base.core.humanize import (
    format_change,
    format_duration,
    format_int_ranges,
    format_signed_duration,
    parse_int_ranges,
)
from htk.base.errors import HtkError, UsageError
from htk.base.mappings import Fields
from htk.dashboard import headlines, plots, start
from htk.dashboard.components import (
    draw_empty_panel,
    draw_plot,
    draw_problem,
    draw_section,
    draw_select,
    spell_attributes,
)
from htk.dashboard.grids import draw_grid
from htk.dashboard.page import Page, Visit, draw_panel
from htk.dashboard.run_name import run_name
from htk.dashboard.url_state import UrlState
from htk.traces.compare.baseline import build_cost_baseline
from htk.traces.compare.items import KINDS, kinds_called
from htk.traces.compare.runs import DIFF, compare_runs
from htk.traces.compare.several import SEVERAL, side_by_side
from htk.traces.trace.trace import Trace

_SAME = "this run"
_ROWS = 200
_SIDES = ("with", "base", "new")  # options that say what is compared
_QUESTION = "What changed?"
_DEFAULTS = {"with": _SAME, "base": "", "new": "", "by": "kernel", "more": ""}
_MOST_MORE = 2  # further runs: with the two, as many as are open at once
_FEW = ("name", "base_ns", "new_ns", "diff_ns", "diff_pct", "change")
_SHARES = ("name", "base_ns", "new_ns", "diff_pct", "diff_ns")  # what has room beside a picture
_MANY = (*_FEW, "noise_ns", "base_count", "new_count")
_SPANS = ("kernel", "op")  # what these name, the timeline draws
_HEADS = {
    "kernel": "Kernels",
    "op": "Operators, on the host",
    "module": "Modules",
    "phase": "Phases",
    "comm": "Collectives",
    "time": "Where the time goes",
}


def layout(visit: Visit) -> Any:
    values = {name: visit.option(name, value) for name, value in _DEFAULTS.items()}
    other = visit.view.run if values["with"] == _SAME else values["with"]
    controls = html.Div(
        [
            draw_select(
                "with", _list_other_runs(visit), values["with"], label="compared with", w=320
            ),
            _draw_rank_choice(visit, "base", visit.view.run, "ranks of the base, this run"),
            _draw_rank_choice(visit, "new", other, "ranks of the new one"),
            draw_select("by", list(KINDS[1:]), values["by"], label="table of"),
            *_draw_run_picker(visit),
        ],
        className="controls",
    )
    head = [headlines.draw_heading("compare", _QUESTION), controls]
    key = _find_run_key(values["with"])
    if values["with"] == _SAME and not (values["base"] or values["new"]):
        text = (
            "Choose another run, or two sets of ranks of this one: rank 0 as the base and rank 4 "
            "as the new one, say, to see why rank 4 is slower."
        )
        return html.Div([*head, draw_empty_panel(text)])
    further = _list_more_runs(visit)
    for wanted in (key, *further):
        if wanted is not None and visit.runs.trace(wanted) is None:
            return html.Div([*head, start.draw_opening(visit.runs, wanted)])
    lacking = _describe_missing_ranks(visit, key, values)
    if lacking:
        return html.Div(
            [*head, draw_problem(lacking, "Not recorded"), _draw_timelines(visit, key, values)]
        )
    return html.Div(
        [
            *head,
            html.Div(
                [draw_panel("compare", "waterfall", 420), draw_panel("compare", "time", 420)],
                className="halves",
            ),
            *([draw_panel("compare", "several", 300)] if further else []),
            _draw_timelines(visit, key, values),
            draw_panel("compare", "table", 500),
        ]
    )


def _draw_run_picker(visit: Visit) -> list[Any]:
    """Return the choice of further runs, where there are any."""
    own = visit.option("with", _SAME)
    chosen = _list_more_runs(visit)
    others = [run for run in _list_other_runs(visit) if run not in (_SAME, own, *chosen)]
    if own == _SAME or not (others or chosen):
        return []
    control = dmc.MultiSelect(
        id={"type": "option", "name": "more"},
        label="and with",
        data=[*chosen, *others],
        value=chosen,
        maxValues=_MOST_MORE,
        searchable=True,
        clearable=True,
        w=320,
    )
    return [control]


def _list_more_runs(visit: Visit) -> list[str]:
    """Return the further runs that are compared with this one."""
    own = (visit.view.run, visit.option("with", _SAME))
    wanted = dict.fromkeys(key for key in visit.option("more", "").split("\n") if key)
    return [key for key in wanted if key not in own][:_MOST_MORE]


def _describe_missing_ranks(visit: Visit, key: str | None, values: dict[str, str]) -> str:
    """Return which of the chosen ranks a side does not have; nothing where both have theirs."""
    other = visit.view.run if key is None else key
    for side, run, ranks in (("base", visit.view.run, "base"), ("other", other, "new")):
        trace = visit.runs.trace(run)
        chosen = parse_int_ranges(values[ranks]) if values[ranks] else []
        lost = sorted(set(chosen) - set(trace.ranks)) if trace is not None else []
        if lost and trace is not None:
            word = "rank" if len(lost) == 1 else "ranks"
            there = format_int_ranges(trace.ranks)
            return f"The {side} has no {word} {format_int_ranges(lost)}; it has {there}."
    return ""


def _draw_rank_choice(visit: Visit, name: str, run: str, label: str) -> Any:
    """Return the choice of a side's ranks, of those that its run has."""
    trace = visit.runs.trace(run)
    chosen = _parse_ranks(visit.option(name, ""))
    there = sorted({*(trace.ranks if trace is not None else ()), *chosen})
    placeholder = "" if chosen else "all"
    return dmc.MultiSelect(
        id={"type": "option", "name": name},
        label=label,
        data=[str(rank) for rank in there],
        value=[str(rank) for rank in chosen],
        placeholder=placeholder,
        searchable=True,
        clearable=True,
        debounce=700,
        w=220,
    )


def _parse_ranks(text: str) -> list[int]:
    try:
        return parse_int_ranges(text) if text else []
    except HtkError:
        return []


def _list_other_runs(visit: Visit) -> list[str]:
    own = visit.view.run
    listed = [r.key for r in visit.runs.listed() if r.key != own]
    other = visit.option("with", _SAME)
    more = [other] if other not in (_SAME, *listed) else []
    sample = ["sample"] if own != "sample" and other != "sample" else []
    return [_SAME, *listed, *sample, *more]


def _find_run_key(other: str) -> str | None:
    return None if other == _SAME else other


def _draw_timelines(visit: Visit, key: str | None, values: dict[str, str]) -> Any:
    """Return the two timelines one above the other."""
    base = UrlState(filters=_select_ranks(values["base"]), run=visit.view.run).search()
    run = visit.view.run if key is None else key
    new = UrlState(filters=_select_ranks(values["new"]), run=run).search()
    rows = [
        html.Div(
            [html.B(title), html.Div(className="twin", **spell_attributes(data_query=query or "?"))]
        )
        for title, query in (("base", base), ("new", new))
    ]
    note = "Both move together, aligned at their first step."
    # Other queries are other timelines: nothing of the old ones is kept.
    return draw_section("Side by side", html.Div(rows, key=base + new), note=note)


def _select_ranks(ranks: str) -> dict[str, str]:
    return {"ranks": ranks} if ranks else {}


def _open_sides(visit: Visit) -> tuple[Trace, Trace]:
    key = _find_run_key(visit.option("with", _SAME))
    base = visit.option("base", "")
    new = visit.option("new", "")
    other = visit.trace if key is None else visit.runs.narrowed(key, visit.view.selection)
    chosen = []
    for trace, ranks in ((visit.trace, base), (other, new)):
        wanted = parse_int_ranges(ranks) if ranks else None
        if wanted and not set(wanted) & set(trace.ranks):
            present = ", ".join(map(str, trace.ranks[:20]))
            raise UsageError(f"no rank {ranks} there; the run has {present}")
        chosen.append(trace.sel(ranks=wanted))
    return chosen[0], chosen[1]


def _list_changes(visit: Visit, by: str) -> Result:
    """Return the rows of one kind, those that match the name filter."""
    kinds = kinds_called(by)
    base, new = _open_sides(visit)
    key = ("compare", by, *(visit.option(name, "") for name in ("with", "base", "new")))
    table = visit.kept(key, lambda: compare_runs(base.tables, new.tables, kinds, _ROWS))
    wanted = visit.view.filters.get("name", "").lower()
    rows = [wanted in (name or "").lower() for name in table["name"].to_pylist()]
    kept = table.filter(pa.array(rows, pa.bool_()))
    return Result(DIFF, kept, dict(coverage_of(table)))


def _describe_change(visit: Visit) -> tuple[str, str] | None:
    """Return how much longer the new one takes, and by what most."""
    if not any(visit.option(name, _DEFAULTS[name]) != _DEFAULTS[name] for name in _SIDES):
        return None
    result = _list_changes(visit, "time")
    rows = {row["name"]: row for row in result.to_pylist()}
    total = rows.pop("total", None)
    if total is None:
        return None
    per = _describe_basis(result)
    change = total["diff_ns"]
    if not change:
        return f"Both take the same time, {per}", ""
    length = format_duration(abs(round(change)))
    word = "longer" if change > 0 else "shorter"
    share = "" if total["diff_pct"] is None else f" ({format_change(total['diff_pct'])})"
    first = f"The new one is {length} {word}{share}, {per}"
    if total["significant"] is False:
        first = f"{first}: within the noise"
    parts = sorted(
        (row for row in rows.values() if row["diff_ns"]), key=_measure_change, reverse=True
    )
    words = (f"{row['name']} {format_signed_duration(row['diff_ns'])}" for row in parts[:3])
    return first, ", ".join(words).capitalize()


def _measure_change(row: Fields) -> float:
    return abs(float(row["diff_ns"]))


def _draw_waterfall(visit: Visit) -> Any:
    result = _list_changes(visit, "time")
    rows = {row["name"]: row for row in result.to_pylist()}
    heading = f"From base to new, {_describe_basis(result)}"
    if "total" not in rows:
        return draw_section(
            heading, draw_empty_panel("Neither side has GPU work to compare; see the tables below.")
        )
    parts = [row for name, row in rows.items() if name != "total" and row["diff_ns"]]
    base = (rows["total"]["base_ns"] or 0) / 1e6
    names = [row["name"] for row in parts]
    fig = plots.draw_waterfall(names, base, [row["diff_ns"] / 1e6 for row in parts], visit.dark)
    change = rows["total"]["diff_ns"]
    word = "longer" if change > 0 else "shorter"
    wordings = {
        True: "more than noise",
        False: "within the noise of the steps",
        None: "noise unknown",
    }
    noise = wordings[rows["total"]["significant"]]
    text = f"The new one is {format_duration(abs(round(change)))} {word}: {noise}."
    if not change:
        text = "Both take the same time."
        if _describe_basis(result) != "a step":
            text = "Without steps in both, a second of one is compared with a second of the other."
    return draw_section(heading, draw_plot(fig, heading), note=text)


def _describe_basis(result: Result) -> str:
    return "a step" if result.coverage.get("compared") == "a step" else "a second recorded"


def _draw_time(visit: Visit) -> Any:
    return draw_section(_HEADS["time"], _draw_changes_grid(visit, "time"))


def _draw_table(visit: Visit) -> Any:
    by = visit.option("by", _DEFAULTS["by"])
    return draw_section(
        f"{_HEADS.get(by, by)}: largest changes first", _draw_changes_grid(visit, by)
    )


def _draw_changes_grid(visit: Visit, by: str) -> Any:
    asked = {name: visit.option(name, value) for name, value in _DEFAULTS.items()} | {"by": by}
    only = _SHARES if by == "time" else _MANY
    return draw_grid(
        _list_changes(visit, by), visit, asked, key=f"diff {by}", only=only, spans=by in _SPANS
    )


def _side_by_side(visit: Visit) -> Result:
    """Return a row for each chosen run, whole under the filters: all ranks of each."""
    keys = [visit.view.run, *([key] if (key := _find_run_key(visit.option("with", _SAME))) else [])]
    selection = visit.view.selection
    sides = []
    for key in (*keys, *_list_more_runs(visit)):
        trace = visit.runs.narrowed(key, selection)
        cost = functools.partial(build_cost_baseline, trace.tables, ("time", "kernel"))
        name = run_name(trace, key)
        sides.append((name, visit.runs.kept(key, selection, "costs of steps", cost)))
    table = side_by_side(sides)
    return Result(SEVERAL, table, {"compared": "a step"})


def _draw_several(visit: Visit) -> Any:
    asked = {name: visit.option(name, _DEFAULTS[name]) for name in ("with", "more")}
    note = (
        "Each against the first, all its ranks: a complete step, mean over ranks and steps. "
        "Where chance explains the difference, it is called the same."
    )
    table = draw_grid(_side_by_side(visit), visit, asked, spans=False)
    return draw_section("Runs side by side", table, note=note)


def _build_export(visit: Visit) -> Result:
    return _list_changes(visit, visit.option("by", _DEFAULTS["by"]))


PAGE = Page(
    "compare",
    "Compare",
    3,
    layout,
    {
        headlines.PART: headlines.fill_heading(_QUESTION, _describe_change),
        "waterfall": _draw_waterfall,
        "several": _draw_several,
        "time": _draw_time,
        "table": _draw_table,
    },
    _DEFAULTS,
    {"diff": _build_export, SEVERAL.name: _side_by_side},
    needs=(
        "kernels",
        "cpu_ops",
        "annotations",
    ),
)
