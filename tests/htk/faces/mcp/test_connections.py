"""The agents' server over HTTP, with real connections that say nothing or too little."""

import threading
import time
import urllib.request
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from tests.open_connections import connect, is_closed

pytest.importorskip("mcp")
uvicorn = pytest.importorskip("uvicorn")

from htk.faces.mcp import connections, http  # noqa: E402

TOKEN = "a-token-of-this-test"
HALF = b"GET /mcp HTTP/1.1\r\nHost: x\r\n"


async def _answer(scope: Any, receive: Any, send: Any) -> None:
    length = [(b"content-length", b"2")]
    await send({"type": "http.response.start", "status": 200, "headers": length})
    await send({"type": "http.response.body", "body": b"ok"})


@pytest.fixture
def port() -> Iterator[int]:
    protocol = connections.make_protocol(partial(http._has_token, token=TOKEN))
    app = http.guard_app(_answer, TOKEN)
    config = uvicorn.Config(
        app, port=0, log_level="error", http=protocol, ws="none", lifespan="off"
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield server.servers[0].sockets[0].getsockname()[1]
    server.should_exit = True
    thread.join()


def test_a_header_that_does_not_come_ends_the_connection(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "HEADER_SECONDS", 1)
    assert is_closed(connect(port, b""), 30)
    assert is_closed(connect(port, HALF), 30)


def test_silent_connections_do_not_keep_out_who_shows_the_token(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "HEADER_SECONDS", 60)
    known = connect(port, HALF + b"Authorization: Bearer " + TOKEN.encode() + b"\r\n\r\n")
    assert known.recv(15) == b"HTTP/1.1 200 OK"
    silent = [connect(port, HALF) for _ in range(2 * connections.MOST_STRANGERS)]
    answer = urllib.request.urlopen(f"http://127.0.0.1:{port}/mcp?token={TOKEN}", timeout=60)
    assert answer.read() == b"ok"
    assert is_closed(silent[0], 30), "the oldest made room"
    assert not is_closed(silent[-1], 0.1)
