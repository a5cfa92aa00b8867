"""Who may look: a token unless the server is local, and headers that keep the page to itself."""

import hmac
from typing import Any
from urllib.parse import quote, urlencode

from dash import Dash
from flask import Response, redirect, request

COOKIE = "htk_token"
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


def protect(app: Dash, token: str | None) -> None:
    """Ask for the token where there is one; allow nothing from outside in any case."""
    server: Any = app.server

    @server.before_request
    def check() -> Any:
        if token is None:
            # A name that somebody else points at this machine is not ours (DNS rebinding).
            known = _host(request.host) in _LOOPBACK
            return None if known else Response("this dashboard is for this machine alone", 403)
        given = request.args.get("token")
        if given is not None and _same(given, token):
            answer = redirect(_without_token())
            answer.set_cookie(COOKIE, token, httponly=True, samesite="Strict")
            return answer
        if _same(request.cookies.get(COOKIE, ""), token):
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


def _host(given: str) -> str:
    """A Host header without its port: 127.0.0.1:8050, [::1]:8050."""
    if given.startswith("["):
        return given[1:].partition("]")[0]
    return given.partition(":")[0].lower()


def _same(given: str, token: str) -> bool:
    return hmac.compare_digest(given.encode(), token.encode())


def _without_token() -> str:
    """The page that was asked for, on this server: a path may not begin another address."""
    rest = [(k, v) for k, v in request.args.items(multi=True) if k != "token"]
    path = "/" + quote(request.path.lstrip("/\\"))
    return path + ("?" + urlencode(rest) if rest else "")
