"""The dashboard's own server, with real connections that say nothing or too little."""

import threading
import time
import urllib.request
from collections.abc import Iterator

import pytest

from htk.dashboard import connections
from htk.dashboard.connections import make_server
from tests.open_connections import connect, is_closed

TOKEN = "a-token-of-this-test"
HALF = b"GET / HTTP/1.1\r\nHost: x\r\n"


def _answer(environ: object, start: object) -> list[bytes]:
    start("200 OK", [("Content-Length", "2")])  # type: ignore[operator]
    return [b"ok"]


@pytest.fixture
def port() -> Iterator[int]:
    server = make_server(_answer, TOKEN, host="127.0.0.1", port=0, threads=2)
    threading.Thread(target=server.run, daemon=True).start()
    yield server.effective_port
    server.close()


def test_a_header_that_does_not_come_ends_the_connection(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "HEADER_SECONDS", 1)
    assert is_closed(connect(port, b""), 30)
    assert is_closed(connect(port, HALF), 30)


def test_silent_connections_do_not_keep_out_who_shows_the_token(port: int) -> None:
    known = connect(port, HALF + b"Cookie: htk_token_1=" + TOKEN.encode() + b"\r\n\r\n")
    assert known.recv(15) == b"HTTP/1.1 200 OK"
    silent = [connect(port, HALF) for _ in range(2 * connections.MOST_STRANGERS)]
    began = time.monotonic()
    answer = urllib.request.urlopen(f"http://127.0.0.1:{port}/?token={TOKEN}", timeout=60)
    assert answer.read() == b"ok" and time.monotonic() - began < 60
    assert is_closed(silent[0], 30), "the oldest made room"
    known.sendall(HALF + b"\r\n")
    received = b""
    while b"200 OK" not in received:
        received += known.recv(100)
