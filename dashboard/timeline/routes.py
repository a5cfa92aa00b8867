"""The requests of the timeline's canvas."""

import gzip
import json
from typing import Any

from flask import Response, request

from htk.base.errors import HtkError, UsageError
from htk.dashboard.memo import SingleFlightCache
from htk.dashboard.page import Visit
from htk.dashboard.pages import answer_on_page
from htk.dashboard.runs import Runs
from htk.dashboard.url_state import UrlState
from htk.traces.timeline.answers import TraceTimeline

_MOST = 4  # timelines in memory; a million events take 100 MB
_BINARY = "view"
_MAY_FAIL = ("jump", "path")


def add_routes(server: Any, runs: Runs) -> None:
    """/timeline/QUESTION of the run and the ranks that the query names."""

    kept: SingleFlightCache[TraceTimeline] = SingleFlightCache(_MOST)

    def find_timeline(view: UrlState) -> TraceTimeline:
        trace = runs.narrowed(view.run, view.selection.of_files)
        aligned = request.args.get("aligned") != "0"
        query = view.options.get("query", "")

        def make_timeline() -> TraceTimeline:
            visit = Visit(runs, view)
            rows = answer_on_page(visit, "sql", {"query": query}).table if query else None
            return TraceTimeline(trace, aligned=aligned, rows=rows)

        # A timeline holds its trace: as long as it is kept, no other trace has that identity.
        return kept.get((id(trace), aligned, query and view.search()), make_timeline)

    @server.route("/timeline/<question>")
    def answer_question(question: str) -> Response:
        try:
            view = UrlState.from_address("timeline", request.query_string.decode())
            query = request.args.to_dict()
            data = find_timeline(view).answer_text(question, query)
            if question in ("event", "jump"):
                data = _with_links(data, view)
        except UsageError as error:
            if question in _MAY_FAIL:  # to find nothing is no failure of the page
                return _build_json_response({"error": str(error)})
            code = 404 if "no such" in str(error) or "nothing" in str(error) else 400
            return Response(str(error), code, mimetype="text/plain")
        except HtkError as error:
            if question in _MAY_FAIL:
                return _build_json_response({"error": str(error)})
            return Response(str(error), 404, mimetype="text/plain")
        binary = question == _BINARY
        kind = "application/octet-stream" if binary else "application/json"
        headers = {"Content-Encoding": "gzip", "Cache-Control": "no-store"}
        return Response(gzip.compress(data, 1), mimetype=kind, headers=headers)


def _build_json_response(value: object) -> Response:
    return Response(json.dumps(value), mimetype="application/json")


def _with_links(data: bytes, view: UrlState) -> bytes:
    """Pages that tell of an event, as addresses under the filters of this one."""
    event = json.loads(data)
    event["pages"] = [
        [text, view.link(page, **({"name": name} if name else {}))]
        for text, page, name in event["pages"]
    ]
    return json.dumps(event).encode()
