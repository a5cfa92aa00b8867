"""A Firefox as its maker ships it, driven over WebDriver BiDi: no driver of another project."""

import asyncio
import json
import queue
import shutil
import subprocess
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.conftest import PATIENCE_MS

FIREFOX = shutil.which("firefox-esr") or shutil.which("firefox")
_LISTENING = "WebDriver BiDi listening on "
_SETTINGS = {
    "app.update.enabled": False,
    "browser.shell.checkDefaultBrowser": False,
    "datareporting.policy.dataSubmissionEnabled": False,
    "toolkit.telemetry.reportingpolicy.firstRun": False,
}


class Firefox:
    """One tab of it."""

    def __init__(self, address: str) -> None:
        from tornado.websocket import websocket_connect

        # A loop of its own: another browser's driver may run one in the thread of the tests.
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()

        async def connected() -> Any:
            return await websocket_connect(f"{address}/session", max_message_size=1 << 28)

        self._socket: Any = self._waited(connected())
        self._last = 0
        self.errors: list[str] = []
        self.ask("session.new", capabilities={})
        self.ask("session.subscribe", events=["log.entryAdded"])
        self._tab = self.ask("browsingContext.getTree")["contexts"][0]["context"]

    def ask(self, method: str, **params: Any) -> Any:
        """Send a command and return its result; errors of the page met meanwhile are noted."""
        self._last += 1
        question = json.dumps({"id": self._last, "method": method, "params": params})

        async def asked() -> None:
            await self._socket.write_message(question)

        async def heard() -> Any:
            return await self._socket.read_message()

        self._waited(asked())
        while True:
            text = self._waited(heard())
            assert text is not None, "Firefox closed the connection"
            answer = json.loads(text)
            if answer.get("id") == self._last:
                assert answer["type"] == "success", answer
                return answer["result"]
            if answer.get("method") == "log.entryAdded" and answer["params"]["level"] == "error":
                self.errors.append(answer["params"]["text"])

    def goto(self, address: str) -> None:
        self.ask("browsingContext.navigate", context=self._tab, url=address, wait="complete")

    def evaluate(self, expression: str) -> Any:
        """Return what an expression gives in the page, by way of JSON."""
        answer = self.ask(
            "script.evaluate",
            expression=f"JSON.stringify({expression})",
            target={"context": self._tab},
            awaitPromise=True,
        )
        assert answer["type"] == "success", answer["exceptionDetails"]["text"]
        text = answer["result"].get("value")
        return None if text is None else json.loads(text)

    def until(self, expression: str) -> None:
        """Wait until an expression is true in the page."""
        wait = threading.Event()
        for _ in range(PATIENCE_MS // 100):
            if self.evaluate(f"!!({expression})"):
                return
            wait.wait(0.1)
        raise AssertionError(f"never came true: {expression}")

    def press(self, key: str) -> None:
        keys = [{"type": "keyDown", "value": key}, {"type": "keyUp", "value": key}]
        source = {"type": "key", "id": "keyboard", "actions": keys}
        self.ask("input.performActions", context=self._tab, actions=[source])

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._socket.close)
        self._loop.call_soon_threadsafe(self._loop.stop)

    def _waited(self, work: Coroutine[Any, Any, Any]) -> Any:
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        return future.result(PATIENCE_MS / 1000)


@contextmanager
def opened(profile: Path) -> Iterator[Firefox]:
    """Start a Firefox with a profile of its own, and end it."""
    assert FIREFOX is not None
    lines = [f"user_pref({json.dumps(k)}, {json.dumps(v)});" for k, v in _SETTINGS.items()]
    (profile / "user.js").write_text("\n".join(lines))
    command = [FIREFOX, "--headless", "--no-remote", "--profile", str(profile)]
    process = subprocess.Popen(
        [*command, "--remote-debugging-port", "0"],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )
    try:
        page = Firefox(_address(process))
        yield page
        page.close()
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _address(process: "subprocess.Popen[str]") -> str:
    """Return where it listens, as it says itself; what else it says is read and dropped."""
    addresses: queue.Queue[str] = queue.Queue()

    def read() -> None:
        assert process.stderr is not None
        for line in process.stderr:
            if _LISTENING in line:
                addresses.put(line.partition(_LISTENING)[2].strip())

    threading.Thread(target=read, daemon=True).start()
    return addresses.get(timeout=PATIENCE_MS / 1000)
