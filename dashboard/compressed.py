"""Answers and scripts travel compressed; those that do not change are compressed once, and sent
again only to a browser that does not have them."""

import gzip
import hashlib
from typing import Any

from dash import Dash
from flask import Response, request

from htk.dashboard.memo import SingleFlightCache

_LEAST = 1400  # bytes: less fits one packet
_TEXT = ("text/", "application/json", "application/javascript", "image/svg")
_LASTING = ("/_dash-component-suites/", "/assets/")
_MOST_KEPT = 200  # scripts and styles of the app


def serve(app: Dash) -> None:
    """Compress what the browser says it can read."""
    server: Any = app.server
    kept: SingleFlightCache[bytes] = SingleFlightCache(_MOST_KEPT)

    @server.after_request
    def compress_response(response: Response) -> Response:
        if not _can_be(response):
            return response
        response.direct_passthrough = False
        body = response.get_data()
        response.headers.add("Vary", "Accept-Encoding")
        if len(body) < _LEAST:
            return response
        lasting = request.path.startswith(_LASTING)
        if lasting:
            asked = (request.full_path, len(body))
            packed = kept.get(asked, lambda: gzip.compress(body, 6, mtime=0))
        else:
            packed = gzip.compress(body, 1, mtime=0)
        response.set_data(packed)
        response.headers["Content-Encoding"] = "gzip"
        response.headers.pop("ETag", None)  # it named the bytes as they were
        return _if_changed(response, packed) if lasting else response


def _if_changed(response: Response, packed: bytes) -> Response:
    """Return the answer, or that the browser's copy still holds: a script may lack a version."""
    response.set_etag(hashlib.blake2b(packed, digest_size=16).hexdigest())
    if not response.headers.get("Cache-Control"):
        response.headers["Cache-Control"] = "no-cache"
    response.make_conditional(request)
    return response


def _can_be(response: Response) -> bool:
    return (
        request.method != "HEAD"
        and response.status_code == 200
        and "Content-Encoding" not in response.headers
        and "gzip" in request.headers.get("Accept-Encoding", "")
        and (response.mimetype or "").startswith(_TEXT)
        and not request.path.startswith("/export/")
    )
