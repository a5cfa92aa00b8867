"""The requests of the timeline's canvas."""

import gzip
import json
from functools import lru_cache
from typing import Any

from flask import Response, request

from htk.dashboard.runs import Runs
from htk.dashboard.timeline.detail import Detail
from htk.dashboard.timeline.lanes import KINDS, event, lanes_of
from htk.dashboard.view import View
from htk.errors import HtkError, UsageError
from htk.trace import Trace


def add_routes(server: Any, runs: Runs) -> None:
    """/timeline/{lanes,view,event}: what there is, what a viewport shows, what one span is."""

    @lru_cache(maxsize=4)
    def detail(trace: Trace, ranks: tuple[int, ...] | None) -> Detail:
        return Detail(lanes_of(trace.sel(ranks=ranks) if ranks is not None else trace))

    def whole(view: View) -> Trace:
        found = runs.trace(view.run)
        if found is None:
            raise UsageError(f"the run {view.run!r} is not open")
        return found

    def wanted() -> Detail:
        view = View.of("timeline", request.query_string.decode())
        chosen = view.selection.ranks
        return detail(whole(view), None if chosen is None else tuple(sorted(chosen)))

    @server.route("/timeline/lanes")
    def lanes() -> Response:
        found = wanted()
        spans = found.lanes
        return _json(
            {
                "length": found.length,
                "labels": spans.labels,
                "names": spans.names,
                "kinds": KINDS,
                "events": len(spans.start),
            }
        )

    @server.route("/timeline/view")
    def view() -> Response:
        try:
            start, end = float(request.args["start"]), float(request.args["end"])
            width = int(request.args["width"])
        except (KeyError, ValueError):
            return Response("start, end and width are numbers", 400)
        data = gzip.compress(wanted().view(start, end, width), 1)
        headers = {"Content-Encoding": "gzip", "Cache-Control": "no-store"}
        return Response(data, mimetype="application/octet-stream", headers=headers)

    @server.route("/timeline/event")
    def one() -> Response:
        try:
            view = View.of("timeline", request.query_string.decode())
            trace = whole(view)
            ranks = trace.sel(ranks=sorted(view.selection.ranks or trace.ranks))
            found = event(ranks, int(request.args["table"]), int(request.args["row"]))
        except (KeyError, ValueError, IndexError, HtkError):
            return Response("no such event", 404)
        return _json(found)


def _json(value: object) -> Response:
    data = gzip.compress(json.dumps(value).encode(), 1)
    return Response(data, mimetype="application/json", headers={"Content-Encoding": "gzip"})
