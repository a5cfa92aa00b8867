"""The server over HTTP on this machine alone, for those who hold its token."""

import secrets
from collections.abc import Awaitable, Callable, MutableMapping
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

from htk.base.core.extras import require_extra

if TYPE_CHECKING:
    from mcp.server.mcpserver import MCPServer

_HOST = "127.0.0.1"
_Scope = MutableMapping[str, Any]
_App = Callable[[_Scope, Any, Any], Awaitable[None]]


def serve(served: "MCPServer[None]", port: int, announce: Callable[[str], None]) -> None:
    """Serve until stopped; `announce` is told the address, which holds the token."""
    require_extra("mcp", "htk mcp --http")
    import uvicorn

    from htk.faces.mcp.connections import make_protocol

    token = secrets.token_urlsafe(24)
    announce(f"http://{_HOST}:{port}/mcp?token={token}")
    app = guard_app(served.streamable_http_app(host=_HOST), token)
    protocol = make_protocol(partial(_has_token, token=token))
    uvicorn.run(app, host=_HOST, port=port, log_level="error", http=protocol, ws="none")


def guard_app(app: _App, token: str) -> _App:
    """Return the application, which answers 401 to a request without the token: other users of this
    machine reach the port too."""

    async def check_request(scope: _Scope, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or _has_token(scope, token):
            await app(scope, receive, send)
            return
        text = [(b"content-type", b"text/plain")]
        await send({"type": "http.response.start", "status": 401, "headers": text})
        body = b"htk: the address that `htk mcp` printed holds a token, which is missing here\n"
        await send({"type": "http.response.body", "body": body})

    return check_request


def _has_token(scope: _Scope, token: str) -> bool:
    """Return whether the query or the header of a request holds the token."""
    query = parse_qs(scope.get("query_string", b"").decode("latin-1")).get("token", [""])[0]
    header = dict(scope["headers"]).get(b"authorization", b"").decode("latin-1")
    shown = query or header.removeprefix("Bearer ")
    return secrets.compare_digest(shown.encode(), token.encode())
