"""Conversations with the server of tools, through the SDK's own client and a real process."""

import os
import sys
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

anyio = pytest.importorskip("anyio")
mcp = pytest.importorskip("mcp")


from mcp.client.client import Client  # noqa: E402
from mcp.client.stdio import StdioServerParameters  # noqa: E402

__all__ = ["Client", "anyio", "conversation", "in_own_thread", "mcp", "text"]


def in_own_thread(function: Callable[..., Awaitable[None]], *arguments: Any) -> None:
    """Run a coroutine beside the loop that a browser of other tests keeps in this thread."""
    with ThreadPoolExecutor(1) as thread:
        thread.submit(anyio.run, function, *arguments).result()


def conversation(root: Path, talk: Callable[[Client], Awaitable[None]]) -> None:
    """Start the server as an agent's host does, and talk to it."""
    environment = dict(os.environ) | {"HTK_CACHE_DIR": str(root.parent / "cache")}
    parameters = StdioServerParameters(
        command=sys.executable, args=["-m", "htk", "mcp", str(root)], env=environment
    )

    async def main() -> None:
        async with Client(parameters) as client:
            await talk(client)

    in_own_thread(main)


def text(answer: Any) -> str:
    assert len(answer.content) == 1
    return str(answer.content[0].text)
