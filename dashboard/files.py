"""Files that come and go: answers exported, traces uploaded."""

import re
from typing import Any

from flask import Response, request

from htk.analyses import ANALYSES, find_analysis
from htk.answers.output.render import to_bytes
from htk.answers.output.result import Result
from htk.base.errors import HtkError, UnknownAnalysis, UsageError
from htk.base.mappings import Facts
from htk.dashboard.page import Visit
from htk.dashboard.pages import answer_on_page
from htk.dashboard.run_name import run_name
from htk.dashboard.runs import Runs
from htk.dashboard.table_view import TableView
from htk.dashboard.url_state import UrlState

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
_PLAIN = "text/plain"  # of a text that may hold what somebody else wrote into an address
_KINDS = {"csv": "text/csv", "md": "text/markdown", "parquet": "application/octet-stream"}


def add_routes(server: Any, runs: Runs) -> None:
    """/export/NAME.FORM gives an answer as a file, /upload takes a trace."""

    @server.route("/export/<name>.<form>")
    def export_answer(name: str, form: str) -> Response:
        if form not in _KINDS:
            return Response("no such export", 404, mimetype=_PLAIN)
        view = UrlState.from_address(name, request.query_string.decode())
        options: Facts = view.options
        try:
            if name in ANALYSES:
                options = view.values(find_analysis(name).options)
            result = answer_on_page(Visit(runs, view), name, options)
        except UnknownAnalysis:
            return Response("no such export", 404, mimetype=_PLAIN)
        except HtkError as error:
            return Response(str(error), 400, mimetype=_PLAIN)
        looked_at = TableView.from_url(view, view.options.get("table", name))
        origin = int(result.coverage.get("origin_ns") or 0)
        seen = Result(result.analysis, looked_at.applied(result.table, origin), result.coverage)
        file = f"{_file_name(runs, view, name)}.{form}"
        disposition = {"Content-Disposition": f"attachment; filename={file}"}
        return Response(to_bytes(seen, form), mimetype=_KINDS[form], headers=disposition)

    @server.route("/upload", methods=["POST"])
    def receive_upload() -> Response:
        # A header that a form of another site cannot send without being asked first.
        if "X-Htk-Upload" not in request.headers:
            return Response("uploads come from the start page", 403, mimetype=_PLAIN)
        if (request.content_length or 0) > runs.upload_bytes:
            text = f"larger than {runs.upload_bytes >> 20} MiB, the most that may be uploaded"
            return Response(text, 413, mimetype=_PLAIN)
        try:
            name = request.args.get("name", "")
            others = request.args.get("key", "")
            key = runs.upload(name, request.stream, others)
        except UsageError as error:
            return Response(str(error), 413, mimetype=_PLAIN)
        return Response(key, mimetype=_PLAIN)


def _file_name(runs: Runs, view: UrlState, name: str) -> str:
    """Return what a file holds, as its name: of which run, what of it, under which filters."""
    trace = runs.trace(view.run)
    parts = [run_name(trace, view.run) if trace is not None else "", name]
    parts += [f"{key}-{value}" for key, value in view.filters.items()]
    plain = (_UNSAFE.sub("-", part).strip("-.")[:60] for part in parts)
    return "_".join(part for part in plain if part)
