"""A page of the dashboard, and a visit to it: what its visitor looks at."""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from dash import Dash, Input, Output, html
from dash.development.base_component import Component

from htk.analyses import find_analysis
from htk.answers.output.result import Result
from htk.base.mappings import Fields
from htk.dashboard.markup import PagePart
from htk.dashboard.runs import Runs
from htk.dashboard.url_state import UrlState
from htk.traces.trace.trace import Trace
from htk.verdicts.overview.doctor import find_footing

# Columns that a name filter looks at: what people call the rows by.
NAMED = ("name", "op", "function", "module", "path", "launched_by", "kernel_sequence")
# While something is fetched: three dots over the old picture, which stays.
WAITING: Fields = {
    "type": "dot",
    "color": "#737373",
    "overlay_style": {"visibility": "visible", "opacity": 0.5},
}
_ALL_ROWS = 1_000_000


@dataclass(frozen=True)
class Visit:
    """One look at one page: the run, the filters, the colours. Nothing of it outlives a request."""

    runs: Runs
    view: UrlState
    dark: bool = False

    @cached_property
    def trace(self) -> Trace:
        """The run as the filters narrow it."""
        return self.runs.narrowed(self.view.run, self.view.selection)

    def ask(self, name: str, **options: Any) -> Result:
        """Return an analysis of it; rows that do not match the name filter are left out."""
        wanted = self.view.filters.get("name")
        has = find_analysis(name).options
        if not wanted or not set(NAMED) & set(find_analysis(name).returns.names):
            return self.runs.ask(self.view.run, self.view.selection, name, **options)
        most = options.get("n", has["n"].default) if "n" in has else None
        if "n" in has:
            options["n"] = _ALL_ROWS
        unfiltered = self.runs.ask(self.view.run, self.view.selection, name, **options)
        kept = unfiltered.table.filter(_match_rows(unfiltered.table, wanted)).slice(
            0, most or _ALL_ROWS
        )
        facts = {**unfiltered.coverage, "name_filter": wanted, "rows_left": kept.num_rows}
        return Result(unfiltered.analysis, kept, facts)

    @property
    def footing(self) -> list[Fields]:
        """What all numbers of the run rest on, whatever the filters are."""
        trace = self.runs.trace(self.view.run)
        if trace is None:
            return []
        rows: list[Fields] = self.runs.kept(
            self.view.run, trace.selection, "footing", lambda: find_footing(trace)
        )
        return rows

    def kept(self, what: object, make: Callable[[], Any]) -> Any:
        """Return anything made of the run under these filters; it is made once."""
        return self.runs.kept(self.view.run, self.view.selection, what, make)

    def computed(self, what: object, make: Callable[[], Any]) -> Any:
        """Return what takes long in another process, made once: the run's other answers do not
        wait for it."""
        return self.runs.computed(self.view.run, self.view.selection, what, make)

    def drawn(self, what: object, make: Callable[[], Any]) -> Any:
        """Return a finished piece of this very page, in these colours."""
        return self.runs.drawn(self.view.run, self._of_page(what), make)

    def drawn_before(self, what: object) -> Any:
        """Return a piece of this page that was drawn already, or nothing."""
        return self.runs.drawn_before(self.view.run, self._of_page(what))

    def _of_page(self, what: object) -> Hashable:
        view = self.view
        return (what, view.page, self.dark, *view.filters.items(), *view.options.items())

    def option(self, name: str, default: str) -> str:
        """Return an option of the page, as the address gives it."""
        return self.view.options.get(name, default)


@dataclass(frozen=True)
class Page:
    """A page composed by hand. `parts` are filled one by one after the first paint."""

    path: str
    title: str
    order: int
    layout: Callable[[Visit], Any]
    parts: Mapping[str, Callable[[Visit], Any]] = field(default_factory=dict)
    options: Mapping[str, str] = field(default_factory=dict)  # and their defaults
    answers: Mapping[str, Callable[[Visit], Result]] = field(default_factory=dict)  # to export
    register: Callable[[Dash, Runs], None] | None = None  # callbacks of its own
    group: str = ""  # of the menu
    needs: tuple[str, ...] = ()  # tables; a recording with rows in none of them leaves it empty
    needs_run: bool = True  # else there is something to look at with no recording open
    needs_history: bool = False  # of many runs, which not every dashboard has

    def fits(self, trace: Trace) -> bool:
        """Return whether the recording holds anything that the page shows."""
        return not self.needs or any(trace.tables[name].num_rows for name in self.needs)


def draw_panel(path: str, name: str, height: int = 120) -> Any:
    """Return the place of a part; a callback of the app fills it."""
    return PagePart(path, name, height=height)


def fill_drawn(tree: Any, visit: Visit) -> Any:
    """Return a page that holds those of its parts that were drawn before. The others come one by
    one, and for each of their answers the browser looks at the state of the whole page."""
    if isinstance(tree, list | tuple):
        return [fill_drawn(each, visit) for each in tree]
    if not isinstance(tree, Component):
        return tree
    if isinstance(tree, PagePart):
        drawn = visit.drawn_before(tree.name)
        return tree if drawn is None else html.Div(drawn, className=tree.kind)
    if (children := getattr(tree, "children", None)) is not None:
        tree.children = fill_drawn(children, visit)
    return tree


def keep_address(app: Dash, store: str) -> None:
    """Make the address follow what a store holds (`?`: nothing), without making the page anew."""
    app.clientside_callback(
        "function(search){return window.htkAddress(search);}",
        Output(store, "title"),
        Input(store, "data"),
        prevent_initial_call=True,
    )


def _match_rows(table: pa.Table, wanted: str) -> pa.Array:
    keep = None
    for column in NAMED:
        if column in table.column_names:
            text = table[column].cast(pa.string())
            matches = pc.fill_null(pc.match_substring(text, wanted, ignore_case=True), False)
            keep = matches if keep is None else pc.or_(keep, matches)
    return keep
