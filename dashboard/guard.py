"""Who may look: a token unless the server is local, and headers that keep the page to itself."""

import hmac
from typing import Any

from dash import Dash
from flask import Response, redirect, request

COOKIE = "htk_token"


def protect(app: Dash, token: str | None) -> None:
    """Ask for the token where there is one; allow nothing from outside in any case."""
    server: Any = app.server

    @server.before_request
    def check() -> Any:
        if token is None:
            return None
        given = request.args.get("token")
        if given is not None and hmac.compare_digest(given, token):
            answer = redirect(request.path)
            answer.set_cookie(COOKIE, token, httponly=True, samesite="Strict")
            return answer
        if hmac.compare_digest(request.cookies.get(COOKIE, ""), token):
            return None
        return Response("htk asks for the token that it printed: add ?token=… once", 401)

    @server.before_request
    def own_pages_only() -> Any:
        """A page of another site may not call us."""
        origin = request.headers.get("Origin")
        if request.method == "POST" and origin and origin.partition("://")[2] != request.host:
            return Response("another site's request", 403)
        return None

    @server.after_request
    def headers(response: Response) -> Response:
        hashes = " ".join(app.csp_hashes())
        response.headers["Content-Security-Policy"] = (
            f"default-src 'self'; script-src 'self' {hashes}; style-src 'self' 'unsafe-inline'; "
            "img-src 'self' data: blob:; font-src 'self' data:; connect-src 'self'; "
            "worker-src 'self' blob:; frame-ancestors 'none'; base-uri 'none'; form-action 'self'"
        )
        response.headers["X-Content-Type-Options"] = "nosniff"
        response.headers["X-Frame-Options"] = "DENY"
        response.headers["Referrer-Policy"] = "no-referrer"
        return response
