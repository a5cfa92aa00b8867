"""The requests of the timeline's canvas."""

import gzip
import json
from typing import Any

from flask import Response, request

from htk.dashboard.runs import Runs
from htk.dashboard.view import View
from htk.errors import HtkError, UsageError
from htk.timeline.answers import Timeline
from htk.trace import Selection, Trace

_BINARY = "view"
_MAY_FAIL = ("jump", "path")


def add_routes(server: Any, runs: Runs) -> None:
    """/timeline/QUESTION of the run and the ranks that the query names."""

    def timeline(view: View) -> Timeline:
        ranks = Selection(ranks=view.selection.ranks)
        aligned = request.args.get("aligned") == "1"
        found = runs.kept(
            view.run,
            ranks,
            ("timeline", aligned),
            lambda: Timeline(_narrowed(runs, view.run, ranks), aligned=aligned),
        )
        assert isinstance(found, Timeline)
        return found

    @server.route("/timeline/<question>")
    def ask(question: str) -> Response:
        try:
            view = View.of("timeline", request.query_string.decode())
            given = request.args.to_dict()
            data = timeline(view).answer(question, given)
            if question in ("event", "jump"):
                data = _with_links(data, view)
        except UsageError as error:
            if question in _MAY_FAIL:  # to find nothing is no failure of the page
                return _json({"error": str(error)})
            code = 404 if "no such" in str(error) or "nothing" in str(error) else 400
            return Response(str(error), code, mimetype="text/plain")
        except HtkError as error:
            if question in _MAY_FAIL:
                return _json({"error": str(error)})
            return Response(str(error), 404, mimetype="text/plain")
        binary = question == _BINARY
        kind = "application/octet-stream" if binary else "application/json"
        headers = {"Content-Encoding": "gzip", "Cache-Control": "no-store"}
        return Response(data, mimetype=kind, headers=headers)


def _json(value: object) -> Response:
    return Response(json.dumps(value), mimetype="application/json")


def _narrowed(runs: Runs, key: str, selection: Selection) -> Trace:
    return runs.narrowed(key, selection)


def _with_links(data: bytes, view: View) -> bytes:
    """Pages that tell of an event, as addresses under the filters of this one."""
    found = json.loads(gzip.decompress(data))
    found["pages"] = [
        [text, view.link(page, **({"name": name} if name else {}))]
        for text, page, name in found["pages"]
    ]
    return gzip.compress(json.dumps(found).encode(), 1)
