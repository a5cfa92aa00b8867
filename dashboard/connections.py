"""Connections of the dashboard's server: those that say nothing make room for those that ask."""

import hmac
import time
from typing import Any

from waitress.channel import HTTPChannel
from waitress.server import MultiSocketServer, TcpWSGIServer, create_server

HEADER_SECONDS = 5  # from the connection to the end of its first header
MOST_STRANGERS = 100  # connections that have not shown the token
MOST_CONNECTIONS = 1000


class Connection(HTTPChannel):  # type: ignore[misc] # waitress has no types
    """A connection that is dropped while it is silent, or for later ones that ask."""

    token = ""  # shown by those that are let in

    def __init__(self, server: Any, *arguments: Any, **options: Any) -> None:
        self.has_asked = False
        self.is_stranger = True
        super().__init__(server, *arguments, **options)
        strangers = [c for c in server.active_channels.values() if c.is_stranger]
        if len(strangers) > MOST_STRANGERS:
            min(strangers, key=lambda c: c.creation_time).will_close = True

    def received(self, data: bytes) -> bool:
        is_read: bool = super().received(data)
        for request in self.requests:
            self.has_asked = True
            self.is_stranger = self.is_stranger and not self._shows_token(request)
        return is_read

    def writable(self) -> bool:
        """Asked by the loop every second at least."""
        is_slow = time.time() - self.creation_time > HEADER_SECONDS
        if is_slow and not self.has_asked and not self._has_header():
            self.will_close = True
        return bool(super().writable())

    def _has_header(self) -> bool:
        return self.request is not None and self.request.headers_finished

    def _shows_token(self, request: Any) -> bool:
        cookies = request.headers.get("COOKIE", "")
        offered = [part.partition("=")[2] for part in f"{cookies};{request.query}".split(";")]
        return any(hmac.compare_digest(word.encode(), self.token.encode()) for word in offered)


def make_server(application: Any, token: str | None, **settings: Any) -> Any:
    """Return waitress' server of an application; connections that show the token come first."""
    server = create_server(
        application,
        connection_limit=MOST_CONNECTIONS,
        asyncore_use_poll=True,  # select ends at 1,024 files
        **settings,
    )
    kind = type("TokenConnection", (Connection,), {"token": token or ""})
    several = isinstance(server, MultiSocketServer)
    listeners = dict(server.map or {}).values() if several else [server]
    for listener in listeners:
        if isinstance(listener, TcpWSGIServer):
            listener.channel_class = kind
    return server
