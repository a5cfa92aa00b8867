"""The frame of every page: the menu, the coverage, the bar of filters."""

from dataclasses import replace
from typing import Any

import dash_mantine_components as dmc
from dash import dcc, html

from htk.base.errors import HtkError
from htk.base.mappings import Fields
from htk.dashboard import derived
from htk.dashboard.components import spell_attributes
from htk.dashboard.page import WAITING, Page, Visit
from htk.dashboard.pages import load_pages
from htk.dashboard.questions import menu_of
from htk.dashboard.run_name import run_name
from htk.dashboard.runs import Runs
from htk.dashboard.url_state import UrlState
from htk.traces.trace.trace import Trace
from htk.verdicts.overview.doctor import LATE_LAUNCHES

FOLLOW_MS = 2000  # between two looks at the files of a run that is followed
GROUPS = ("", "Dig into", "Ask")


def draw_frame() -> Any:
    """Return the page around the page."""
    return dmc.MantineProvider(
        id="theme",
        theme={"fontFamily": "var(--font)", "headings": {"fontFamily": "var(--font)"}},
        children=[
            dcc.Location(id="address", refresh="callback-nav"),
            dcc.Store(id="dark", storage_type="local"),
            dcc.Store(id="again"),
            dcc.Store(id="changed"),
            dcc.Store(id="visited"),
            dcc.Store(id="followed"),
            dcc.Interval(id="follow-tick", interval=FOLLOW_MS, disabled=True),
            html.A("Skip to the page", href="#page", className="skip"),
            html.Div([_draw_sidebar(), _draw_content()], className="shell"),
        ],
    )


def _draw_sidebar() -> Any:
    return html.Aside(
        [
            html.Div(
                [
                    dcc.Link("htk", href="/runs", className="logo", title="choose a run"),
                    html.Span(id="run", className="run"),
                    html.Button(
                        "Menu",
                        id="menu-toggle",
                        className="pill",
                        **spell_attributes(aria_controls="menu", aria_expanded="false"),
                    ),
                ],
                className="brand",
            ),
            html.Nav(id="menu", **spell_attributes(aria_label="pages")),
            html.Div(id="trust"),
        ],
        className="side",
        **spell_attributes(aria_label="the run and its pages"),
    )


def _draw_content() -> Any:
    page = html.Div(id="page", tabIndex=-1)
    return html.Div(
        [
            html.Header(
                [
                    html.Div(id="filters", className="pills"),
                    html.Div(
                        [
                            html.Span(id="follow-state", className="coverage", role="status"),
                            dmc.Switch(
                                id="follow",
                                label="follow files",
                                size="sm",
                                persistence=True,
                                persistence_type="session",
                            ),
                            html.Button("Copy link", id="copy", className="ghost"),
                            dmc.Switch(id="dark-switch", label="dark", size="sm"),
                        ],
                        className="right",
                    ),
                ]
            ),
            html.Main(
                dcc.Loading(
                    page,
                    delay_show=300,
                    **{**WAITING, "target_components": {"page": "children"}},
                )
            ),
        ],
        className="content",
    )


def draw_menu(visit: Visit) -> list[Any]:
    """Return the links to the pages that the recording can fill, and to every question that it can
    answer."""
    view = visit.view
    trace = visit.runs.trace(visit.view.run)
    entries: list[Any] = []
    for group in GROUPS:
        pages = [
            p
            for p in load_pages().values()
            if p.group == group and _has_page_content(p, trace, visit.runs)
        ]
        if group and pages:
            entries.append(html.Div(group, className="heading"))
        entries += [_draw_page_link(view, page.path, page.title) for page in pages]
    asked = {}
    if trace is not None:
        asked = visit.runs.kept(view.run, trace.selection, "questions", lambda: menu_of(trace))
    subjects = [
        html.Details(
            [
                html.Summary(wanted, className="subject"),
                *(
                    _draw_page_link(view, name, words, question)
                    for name, words, question in questions
                ),
            ],
            open=view.page in [name for name, _, _ in questions],
        )
        for wanted, questions in asked.items()
    ]
    every = html.Details(
        [html.Summary("Every question"), *subjects],
        open=view.page in derived.list_page_names(),
        className="every",
    )
    return [*entries, every]


def plain_menu(view: UrlState, runs: Runs) -> list[Any]:
    """Return the links to what there is with no recording open."""
    pages = [
        p for p in load_pages().values() if not p.needs_run and _has_page_content(p, None, runs)
    ]
    here = "" if view.page in {page.path for page in pages} else "here"
    start = dcc.Link("Runs", href="/runs", className=here)
    bare = UrlState(view.page, run=view.run)
    return [start, *(_draw_page_link(bare, page.path, page.title) for page in pages)]


def _has_page_content(page: Page, trace: Trace | None, runs: Runs) -> bool:
    """Return whether there is anything that the page shows."""
    if page.needs_history and not runs.history_address:
        return False
    return trace is None or page.fits(trace)


def _draw_page_link(view: UrlState, page: str, title: str, question: str = "") -> Any:
    here = "here" if view.page == page else ""
    href = "/" + page + replace(view, options={}).search()
    return dcc.Link(title, href=href, className=here, title=question)


def draw_trust(visit: Visit) -> list[Any]:
    """Return what the numbers rest on, in the corner of every page; amber where it is not whole."""
    try:
        rows = visit.footing
    except HtkError:
        return []
    apart = [row for row in rows if row["item"].startswith(LATE_LAUNCHES)]
    wanted = [row for row in rows if row["item"] in _ITEMS]
    return [
        *(_draw_finding(row, "warning", _shorten_question(row["finding"])) for row in apart[:1]),
        *(
            _draw_finding(row, row["state"], _ITEMS[row["item"]](row["finding"]))
            for row in wanted[:5]
        ),
    ]


def _draw_finding(row: Fields, state: str, words: str) -> Any:
    title = row["finding"] + (f". {row['advice']}" if row["advice"] else "")
    return html.Div([html.Span(className=f"dot {state}"), words], title=title)


def _shorten_question(text: str) -> str:
    return text.partition(":")[0].partition(",")[0]


_ITEMS: Fields = {
    "ranks": lambda text: "1 rank" if text == "the only one" else _shorten_question(text),
    "GPU time linked to launches": lambda text: f"{_shorten_question(text)} of GPU time linked",
    "alignment": lambda text: "clocks: " + _shorten_question(text),
    "parse issues": lambda text: "damage: " + _shorten_question(text),
}


def describe_run(visit: Visit) -> str:
    """Return which run the page speaks of."""
    trace = visit.runs.trace(visit.view.run)
    if trace is None:
        return visit.runs.title_of(visit.view.run)
    name = run_name(trace, visit.view.run)
    files = len({p.file for p in trace.files})
    named = visit.view.run and not visit.view.run.startswith("upload/")
    return name if named or files == 1 else f"{name} · {files} files"
