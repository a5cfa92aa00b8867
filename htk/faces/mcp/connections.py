"""Connections of the server over HTTP: those that say nothing make room for those that ask."""

import asyncio
from collections.abc import Callable
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

HEADER_SECONDS = 5  # from the connection to the end of its first header
MOST_STRANGERS = 100  # connections that have not shown the token
_ShowsToken = Callable[[Any], bool]  # told the facts of a request


def make_protocol(shows_token: _ShowsToken) -> type[H11Protocol]:
    """Return the protocol of one server, which counts those that did not show its token."""
    strangers: dict[H11Protocol, None] = {}  # the oldest first

    class Connection(H11Protocol):
        """A connection that is dropped while it is silent, or for later ones that ask."""

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self.loop.call_later(HEADER_SECONDS, self._drop_if_silent)
            strangers[self] = None
            if len(strangers) > MOST_STRANGERS:
                oldest = next(iter(strangers))
                del strangers[oldest]
                oldest.transport.abort()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self.scope is not None and shows_token(self.scope):
                strangers.pop(self, None)

        def connection_lost(self, exc: Exception | None) -> None:
            strangers.pop(self, None)
            super().connection_lost(exc)

        def _drop_if_silent(self) -> None:
            if self.scope is None:
                self.transport.abort()

    return Connection
