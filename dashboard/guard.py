"""Access control: the token, and headers that isolate the page."""

import hmac
import ipaddress
import logging
import traceback
from typing import Any
from urllib.parse import quote, urlencode

from dash import Dash
from flask import Response, redirect, request
from werkzeug.exceptions import HTTPException

_PLAIN = "text/plain"
_LONGEST_PATH = 2000


def install_guard(app: Dash, token: str | None) -> None:
    """Ask for the token where there is one; allow nothing from outside in any case."""
    server: Any = app.server

    @server.before_request
    def check() -> Any:
        if token is None:
            # A name that somebody else points at this machine is not ours (DNS rebinding).
            if is_loopback(_strip_port(request.host)):
                return None
            return Response("this dashboard is for this machine alone", 403, mimetype=_PLAIN)
        cookie = _name_cookie(request.host)
        offered = request.args.get("token")
        if offered is not None and _is_same_token(offered, token):
            answer = redirect(_without_token())
            answer.set_cookie(cookie, token, httponly=True, samesite="Lax")  # links in a chat work
            return answer
        if _is_same_token(request.cookies.get(cookie, ""), token):
            return None
        text = "htk asks for the token that it printed: add ?token=… once"
        return Response(text, 401, mimetype=_PLAIN)

    @server.before_request
    def own_pages_only() -> Any:
        """A page of another site may not call us."""
        origin = request.headers.get("Origin")
        if request.method == "POST" and origin and origin.partition("://")[2] != request.host:
            return Response("another site's request", 403, mimetype=_PLAIN)
        if "\0" in request.path or len(request.path) > _LONGEST_PATH:
            return Response("no page has such an address", 400, mimetype=_PLAIN)
        return None

    @server.errorhandler(Exception)
    def refuse(error: Exception) -> Any:
        """What fails before it reaches a page is no request of our pages."""
        if isinstance(error, HTTPException):
            return error
        if not _reached_page(error):
            return Response("no page asks for this", 400, mimetype=_PLAIN)
        logging.getLogger("htk").error("internal error at %s", request.path, exc_info=error)
        return Response("internal error; the log of the dashboard has more", 500, mimetype=_PLAIN)

    @server.after_request
    def add_security_headers(response: Response) -> Response:
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


def _reached_page(error: Exception) -> bool:
    """Return whether an exception is of our code, not of the server's or Dash's reading."""
    modules = [frame.f_globals["__name__"] for frame, _ in traceback.walk_tb(error.__traceback__)]
    return any(name.startswith("htk.") and name != __name__ for name in modules)


def is_loopback(host: str) -> bool:
    """Return whether an address or name is this machine's own, as 127.0.0.2 is."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _name_cookie(host: str) -> str:
    """Return the cookie's name: browsers keep no cookies apart by port, and two servers may run."""
    port = host.rpartition(":")[2]
    return f"htk_token_{port if port.isdigit() else 'default'}"


def _strip_port(header: str) -> str:
    """Return a Host header without its port: 127.0.0.1:8050, [::1]:8050."""
    if header.startswith("["):
        return header[1:].partition("]")[0]
    return header.partition(":")[0].lower()


def _is_same_token(offered: str, token: str) -> bool:
    return hmac.compare_digest(offered.encode(), token.encode())


def _without_token() -> str:
    """Return the page that was asked for, on this server: a path may not begin another address."""
    rest = [(k, v) for k, v in request.args.items(multi=True) if k != "token"]
    path = "/" + quote(request.path.lstrip("/\\"))
    return path + ("?" + urlencode(rest) if rest else "")
