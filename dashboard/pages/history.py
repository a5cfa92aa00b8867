"""Many runs over time: step time, MFU, exposed communication, their changes, two compared."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from dash import ALL, Dash, Input, Output, State, ctx, html, no_update

from htk.answers.output.result import Result
from htk.base.core.analysis import coverage_of
from htk.base.core.humanize import format_duration, pluralize_count
from htk.base.errors import UsageError
from htk.base.mappings import Fields
from htk.dashboard.components import (
    draw_empty_panel,
    draw_plot,
    draw_section,
    draw_select,
    draw_tile,
)
from htk.dashboard.grids import draw_grid
from htk.dashboard.history_plots import HEADINGS, over_runs
from htk.dashboard.page import Page, Visit
from htk.dashboard.runs import Runs
from htk.dashboard.url_state import UrlState
from htk.traces.compare.items import EACH, By
from htk.traces.compare.runs import DIFF, list_cost_changes
from htk.verdicts.history.archive import KeptRun
from htk.verdicts.history.changes import (
    LEAST_RUNS,
    METRICS,
    Change,
    RunSeries,
    find_changes,
    series_of,
)
from htk.verdicts.history.listing import LABEL, build_listing_result, to_the_minute
from htk.verdicts.history.wording import describe_confidence, describe_share, metric_value

_OPTIONS = {"series": "", "by": "time", "base": "", "new": "", "kind": "kernel"}
_POINT = {"type": "history-point", "name": ALL}
_FEW = ("recorded_at", "name", "run", "tags", "mark", "step_time_ns", "exposed_comm_ns", "mfu_pct",
        "slowdown")  # fmt: skip
_CHANGED = ("change", "name", "base_ns", "new_ns", "diff_ns", "diff_pct")
_TILES = {
    "step_time": "step time",
    "mfu": "MFU",
    "exposed_comm": "exposed communication",
    "slowdown": "slowdown by stragglers",
}
_NO_HISTORY = "No history is kept here: start the dashboard on a folder of one."
_HOW = "Filled points: runs marked good; crosses: bad. Click two to compare them."
_WORDS = {
    "step_time": ("Steps take {} longer", "Steps take {} less time"),
    "mfu": ("MFU is {} higher", "MFU is {} lower"),
    "exposed_comm": ("{} more communication is exposed", "{} less communication is exposed"),
    "slowdown": ("Stragglers cost {} more", "Stragglers cost {} less"),
}


@dataclass(frozen=True)
class _Shown:
    """The runs of one kind that the page shows, and what of them changed."""

    visit: Visit
    runs: Sequence[KeptRun]  # of the whole history

    @cached_property
    def kinds(self) -> list[str]:
        """Names of the series, the longest first."""
        return list(dict.fromkeys(s.name for m in METRICS for s in self._build_series(m)))

    @cached_property
    def kind(self) -> str:
        asked = self.visit.option("series", "")
        return asked if asked in self.kinds else next(iter(self.kinds), "")

    @cached_property
    def metrics(self) -> dict[str, RunSeries]:
        """The series of each metric that has values."""
        of_kind = (s for m in METRICS for s in self._build_series(m) if s.name == self.kind)
        return {series.metric: series for series in of_kind}

    @cached_property
    def changed(self) -> list[Change]:
        return find_changes(list(self.metrics.values()))

    @cached_property
    def own(self) -> list[KeptRun]:
        """The runs of the series, by time."""
        held = {run.run for series in self.metrics.values() for run in series.runs}
        return [run for run in self.runs if run.run in held]

    @cached_property
    def tags(self) -> list[str]:
        """Tags that the runs may be laid out by."""
        return sorted({name for run in self.own for name in run.tags})

    @cached_property
    def by(self) -> str:
        asked = self.visit.option("by", "time")
        return asked if asked in self.tags else "time"

    def positions(self, runs: Sequence[KeptRun]) -> list[str]:
        """Return where runs stand on the axis."""
        if self.by == "time":
            return [run.when[:23].rstrip("Z") for run in runs]
        return [run.tags.get(self.by, "none") for run in runs]

    def chosen(self, name: str) -> KeptRun | None:
        """Return the run of the address's `base` or `new`."""
        asked = self.visit.option(name, "")
        return next((run for run in self.own if asked in (run.run, _label_run(run))), None)

    def _build_series(self, metric: str) -> list[RunSeries]:
        return series_of(self.runs, ("model",), metric)


def _select_shown_runs(visit: Visit) -> _Shown:
    if not visit.runs.history_address:
        raise UsageError(_NO_HISTORY)
    return _Shown(visit, visit.runs.history().runs)


def _label_run(run: KeptRun) -> str:
    return f"{run.row['name']} · {run.run[:8]}"


def layout(visit: Visit) -> Any:
    if not visit.runs.history_address:
        return html.Div([html.H1("Runs over time"), draw_empty_panel(_NO_HISTORY)])
    shown = _select_shown_runs(visit)
    unread = visit.runs.history().unread
    if not shown.own:
        return html.Div([html.H1("Runs over time"), draw_empty_panel(_describe_nothing(visit))])
    lost = f" {pluralize_count(len(unread), 'file')} could not be read." if unread else ""
    return html.Div(
        [
            html.H1(_write_sentence(shown)),
            html.P(
                f"{shown.kind}: {pluralize_count(len(shown.own), 'run')}.{lost}", className="lead"
            ),
            _draw_tiles(shown),
            _draw_controls(shown),
            *_draw_pictures(shown),
            _draw_compared(shown),
            draw_section(
                "Runs", _draw_table(shown), note="A click on a run chooses it to compare."
            ),
        ]
    )


def _describe_nothing(visit: Visit) -> str:
    where = visit.runs.history_address
    return f"No run is kept in {where} yet: htk history add RUN --tags commit=…,model=…"


def _write_sentence(shown: _Shown) -> str:
    """Return the newest change of the metric that matters most, or that there is none."""
    if shown.changed:
        metric = next(m for m in METRICS if any(c.series.metric == m for c in shown.changed))
        last = [c for c in shown.changed if c.series.metric == metric][-1]
        run = last.series.runs[last.first]
        size = abs(last.change_pct or 0.0)
        words = _WORDS[metric][last.after < last.before].format(f"{size:.1f} %")
        commit = f", commit {run.tags['commit']}" if "commit" in run.tags else ""
        return f"{words} since {run.when[:10]} ({run.row['name']}{commit})."
    if len(shown.own) < LEAST_RUNS:
        return f"{pluralize_count(len(shown.own), 'run')}: a change needs {LEAST_RUNS} of one kind."
    return f"Nothing changed by more than chance over {len(shown.own)} runs."


def _draw_tiles(shown: _Shown) -> Any:
    """Return the newest value of each metric, and the change before it."""
    tiles = []
    for metric, series in shown.metrics.items():
        own = [c for c in shown.changed if c.series.metric == metric]
        more = f"{series.runs[-1].row['name']}, the newest run"
        if own and own[-1].change_pct is not None:
            since = own[-1].series.runs[own[-1].first]
            sure = describe_confidence(own[-1])
            more = f"{describe_share(own[-1])} since {since.when[:10]}, {sure} sure"
        value = metric_value(metric, float(series.values[-1]))
        tiles.append(draw_tile(_TILES[metric], value, more))
    return html.Div(tiles, className="tiles")


def _draw_controls(shown: _Shown) -> Any:
    runs = [_label_run(run) for run in reversed(shown.own)]
    chosen = [shown.chosen(name) for name in ("base", "new")]
    base, new = ("" if run is None else _label_run(run) for run in chosen)
    wide: Fields = {"searchable": True, "clearable": True, "allowDeselect": True, "w": 230}
    return html.Div(
        [
            draw_select("series", shown.kinds, shown.kind, label="runs of one kind", w=380),
            draw_select("by", ["time", *shown.tags], shown.by, label="laid out by", w=130),
            draw_select(
                "base", runs, base, **wide, label="compare", placeholder="or click a point"
            ),
            draw_select("new", runs, new, **wide, label="with", placeholder="and another"),
        ],
        className="controls",
    )


def _draw_pictures(shown: _Shown) -> list[Any]:
    chosen = [run.run for name in ("base", "new") if (run := shown.chosen(name)) is not None]
    drawn: list[Any] = []
    for metric, series in shown.metrics.items():
        own = [c for c in shown.changed if c.series.metric == metric]
        positions = shown.positions(series.runs)
        fig = over_runs(series, own, positions, chosen, dark=shown.visit.dark)
        point_id = {"type": _POINT["type"], "name": metric}
        note = "" if drawn else _HOW
        picture = draw_plot(fig, HEADINGS[metric], point_id, 290)
        drawn.append(draw_section(HEADINGS[metric], picture, note=note))
    return [drawn[0], html.Div(drawn[1:], className="halves")]


def _draw_compared(shown: _Shown) -> Any:
    base = shown.chosen("base")
    new = shown.chosen("new")
    if base is None or new is None:
        text = "Click two runs, in a picture or in the table, to see what differs between them."
        return draw_section("Two runs", draw_empty_panel(text))
    answer = _list_differences(shown, base, new)
    change = (new.row["step_time_ns"] or 0) - (base.row["step_time_ns"] or 0)
    word = "longer" if change > 0 else "shorter"
    amount = format_duration(abs(change))
    heading = f"{_label_run(new)} against {_label_run(base)}: a step {amount} {word}"
    kind = shown.visit.option("kind", "kernel")
    asked = {"base": base.run, "new": new.run, "kind": kind}
    table = draw_grid(
        answer, shown.visit, asked, rows=10, key="history diff", only=_CHANGED, spans=False
    )
    picker = draw_select("kind", list(EACH), kind, label="table of", w=160)
    return draw_section(heading, picker, table)


def _list_differences(shown: _Shown, base: KeptRun, new: KeptRun) -> Result:
    history = shown.visit.runs.history()
    sides = [history.costs(run.run) for run in (base, new)]
    kind = shown.visit.option("kind", "kernel")
    kinds: tuple[By, ...] = tuple(each for each in EACH if each == kind)
    if not all(side.steps for side in sides) or not kinds:
        raise UsageError("only runs with profiled steps can be compared step by step")
    table = list_cost_changes(sides[0], sides[1], kinds, 200)
    return Result(replace(DIFF, name="history_diff"), table, dict(coverage_of(table)))


def _exported_differences(visit: Visit) -> Result:
    shown = _select_shown_runs(visit)
    by_name = {run.run: run for run in shown.runs}
    try:
        base = by_name[visit.option("base", "")]
        new = by_name[visit.option("new", "")]
    except KeyError:
        raise UsageError("choose two runs of the history") from None
    return _list_differences(shown, base, new)


def _draw_table(shown: _Shown) -> Any:
    answer = to_the_minute(build_listing_result(shown.visit.runs.history(), shown.own[::-1]))
    held = [n for n in _FEW if answer.table[n].null_count < len(answer)]
    return draw_grid(answer, shown.visit, {"series": shown.kind}, rows=8, only=tuple(held))


def _build_export(visit: Visit) -> Result:
    shown = _select_shown_runs(visit)
    return build_listing_result(visit.runs.history(), shown.own[::-1])


def _register_callbacks(app: Dash, runs: Runs) -> None:
    @app.callback(
        Output("changed", "data", allow_duplicate=True),
        Input(_POINT, "clickData"),
        Input({"type": "grid", "name": LABEL.name}, "cellClicked", allow_optional=True),
        State("address", "pathname"),
        State("address", "search"),
        prevent_initial_call=True,
    )
    def choose_run(_points: Any, cell: Any, pathname: str, search: str) -> Any:
        """The first run that you click is the base; the second is compared with it."""
        view = UrlState.from_address(pathname, search)
        shown = _select_shown_runs(Visit(runs, view))
        value = ctx.triggered[0]["value"] if ctx.triggered else None
        run = _find_clicked_run(shown, ctx.triggered_id, value)
        if run is None:
            return no_update
        base = shown.chosen("base")
        new = shown.chosen("new")
        pair = (
            [run, None]
            if base is None or new is not None
            else sorted([base, run], key=shown.own.index)
        )
        for name, each in zip(("base", "new"), pair, strict=True):
            view = view.with_option(name, "" if each is None else _label_run(each), "")
        return {"of": f"{pathname or '/'}{search or ''}", "search": view.search()}


def _find_clicked_run(shown: _Shown, trigger: Any, value: Any) -> KeptRun | None:
    """Return the run of a clicked point or row."""
    if not isinstance(trigger, dict) or not value:
        return None
    if trigger["type"] == _POINT["type"]:
        data = value["points"][0].get("customdata") or [""]
        return next((run for run in shown.own if run.run == data[0]), None)
    row = str(value.get("rowId", ""))
    rows = shown.own[::-1]
    return rows[int(row)] if row.isdigit() and int(row) < len(rows) else None


PAGE = Page(
    "history",
    "Runs over time",
    5,
    layout,
    {},
    _OPTIONS,
    {LABEL.name: _build_export, "history_diff": _exported_differences},
    _register_callbacks,
    needs_run=False,
    needs_history=True,
)
