"""The start page: runs under the allowed folders, a path to open, a file to upload."""

from datetime import UTC, datetime
from typing import Any

import dash_mantine_components as dmc
from dash import Dash, Input, Output, State, dcc, html, no_update

from htk.base.core.humanize import format_bytes
from htk.base.errors import HtkError
from htk.dashboard.components import (
    draw_empty_panel,
    draw_problem,
    draw_section,
    spell_attributes,
    without_commands,
)
from htk.dashboard.runs import OpenJob, Runs
from htk.dashboard.url_state import UrlState


def draw_start_page(runs: Runs) -> Any:
    """Return what can be looked at."""
    return html.Div(
        [
            html.H1("Which run?"),
            draw_section("Runs", _draw_list(runs), note="The newest first; a click opens one."),
            html.Div([*_draw_path_field(runs), _draw_upload(runs)], className="halves"),
        ],
        className="start",
    )


def draw_opening(runs: Runs, key: str) -> Any:
    """Starts to read a run, or tells how its reading goes; one that failed may be tried again."""
    job = runs.job(key)
    if job is not None and job.ended.is_set() and (job.error or job.cancelled):
        runs.forget(key)
        return _draw_failed(key, job)
    runs.begin(key)
    return _draw_reading(key, runs.title_of(key))


def _draw_reading(key: str, title: str) -> Any:
    """Return a run that is being read: how far, and a way out."""
    return html.Div(
        [
            html.H1("Reading the trace"),
            html.P(title, className="doc"),
            dmc.Progress(
                id="reading-bar", value=0, size="lg", **spell_attributes(aria_label="read so far")
            ),
            html.P("", id="reading-text", role="status"),
            dmc.Button("Cancel", id="reading-cancel", variant="default"),
            html.Div(id="reading-cancelled"),
            dcc.Interval(id="reading-tick", interval=300),
            dcc.Store(id="reading-key", data=key),
        ],
        className="start",
    )


def _draw_failed(key: str, job: OpenJob) -> Any:
    """Return a run that could not be read, and what next."""
    if job.cancelled:
        text = "You cancelled it; nothing was kept."
        title = "Not read"
    else:
        text = without_commands(job.error or "")
        title = "This run cannot be read"
    again = html.A("Try again", href=f"/?run={key}", className="export")
    other = dcc.Link("Choose another run", href="/runs", className="export")
    return html.Div(
        [draw_problem(text, title), dmc.Group([other, again], mt="sm")], className="start"
    )


def add_callbacks(app: Dash, runs: Runs) -> None:
    @app.callback(
        Output("reading-bar", "value"),
        Output("reading-text", "children"),
        Output("again", "data"),
        Output("reading-tick", "max_intervals"),
        Input("reading-tick", "n_intervals"),
        State("reading-key", "data"),
        # One after the other: a newer question would make the browser deaf to a slow answer.
        running=[(Output("reading-tick", "disabled"), True, False)],
    )
    def show_reading_progress(ticks: int | None, key: str) -> Any:
        if not ticks:  # asked by the page's coming, which an answer cannot bring about again
            return no_update
        job = runs.job(key)
        if job is None or job.ended.is_set():
            return 100, "read", ticks, 0
        share = 100 * job.read / job.total if job.total else 0
        read = format_bytes(job.read)
        total = format_bytes(job.total)
        text = f"{read} of {total}, {job.ready} of {job.files} files"
        if job.total and job.read >= job.total:
            text = f"all {format_bytes(job.total)} read; making tables"
        return share, text, no_update, no_update

    @app.callback(
        Output("reading-cancelled", "children"),
        Input("reading-cancel", "n_clicks"),
        State("reading-key", "data"),
        prevent_initial_call=True,
    )
    def cancel_reading(clicks: int | None, key: str) -> Any:
        if not clicks:
            return no_update
        runs.cancel(key)
        return "cancelling …"

    @app.callback(
        Output("open-problem", "children"),
        Output("address", "href", allow_duplicate=True),
        Input("open-path", "n_submit"),
        Input("open-button", "n_clicks"),
        State("open-path", "value"),
        prevent_initial_call=True,
    )
    def type_path(_submits: int | None, _clicks: int | None, text: str | None) -> Any:
        if not text:
            return no_update, no_update
        try:
            return "", "/" + UrlState(run=runs.key_of(text)).search()
        except HtkError as error:
            return draw_problem(str(error), "Not opened"), no_update


def _draw_path_field(runs: Runs) -> list[Any]:
    if not runs.roots:
        return []
    where = ", ".join(map(str, runs.roots.values()))
    typed = dmc.TextInput(
        id="open-path",
        label="Open a path",
        description=f"a file or folder within {where}",
        style={"flex": "1 1 240px"},
    )
    button = html.Button("Open", id="open-button", className="chip main")
    return [
        html.Section(
            [dmc.Group([typed, button], style={"alignItems": "end"}), html.Div(id="open-problem")]
        ),
    ]


def _draw_upload(runs: Runs) -> Any:
    most = format_bytes(runs.upload_bytes)
    return html.Section(
        [
            html.Label(
                "Upload a trace: one file, or those of all ranks together",
                htmlFor="upload-file",
                className="control-label",
            ),
            html.Div(id="upload-place", **spell_attributes(data_most=str(runs.upload_bytes))),
            html.P(
                f"up to {most}; kept until the server ends; who has its address sees it",
                className="coverage",
            ),
        ],
        className="upload",
    )


def _draw_list(runs: Runs) -> Any:
    rows = [
        html.Tr(
            [
                html.Td(dcc.Link(run.key, href="/" + UrlState(run=run.key).search())),
                html.Td(f"{run.files:,}"),
                html.Td(format_bytes(run.stored_bytes)),
                html.Td(f"{datetime.fromtimestamp(run.changed, UTC):%Y-%m-%d %H:%M} UTC"),
            ]
        )
        for run in runs.listed()
    ]
    sample = html.Tr(
        [
            html.Td(dcc.Link("sample", href="/?run=sample")),
            html.Td("2"),
            html.Td("comes with htk"),
            html.Td(""),
        ]
    )
    heads = html.Tr([html.Th(t) for t in ("run", "files", "size", "changed")])
    none = (
        []
        if rows
        else [draw_empty_panel("No files like traces under the folders of the command line.")]
    )
    table = html.Table([html.Thead(heads), html.Tbody([*rows, sample])], className="runs")
    return html.Div([*none, table])
