"""Conversations with the server of tools, through the SDK's own client."""

import os
import sys
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from htk.faces.mcp.traces import Traces

anyio = pytest.importorskip("anyio")
mcp = pytest.importorskip("mcp")


from mcp.client.client import Client  # noqa: E402
from mcp.client.stdio import StdioServerParameters  # noqa: E402

__all__ = [
    "Client",
    "anyio",
    "conversation",
    "conversation_of_processes",
    "in_own_thread",
    "mcp",
    "text",
]


def in_own_thread(function: Callable[..., Awaitable[None]], *arguments: Any) -> None:
    """Run a coroutine beside the loop that a browser of other tests keeps in this thread."""
    with ThreadPoolExecutor(1) as thread:
        thread.submit(anyio.run, function, *arguments).result()


def conversation(root: Path, talk: Callable[[Client], Awaitable[None]]) -> None:
    """Talk to the server in this process."""
    from htk.faces.mcp.server import build_server

    _talk_to(build_server(Traces([root])), talk)


def conversation_of_processes(root: Path, talk: Callable[[Client], Awaitable[None]]) -> None:
    """Start the server as an agent's host does, and talk to it."""
    environment = dict(os.environ) | {"HTK_CACHE_DIR": str(root.parent / "cache")}
    parameters = StdioServerParameters(
        command=sys.executable, args=["-m", "htk", "mcp", str(root)], env=environment
    )
    _talk_to(parameters, talk)


def _talk_to(server: Any, talk: Callable[[Client], Awaitable[None]]) -> None:
    async def main() -> None:
        async with Client(server) as client:
            await talk(client)

    in_own_thread(main)


def text(answer: Any) -> str:
    assert len(answer.content) == 1
    return str(answer.content[0].text)
