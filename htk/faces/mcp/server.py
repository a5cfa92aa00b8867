"""The server that agents talk to, over stdio or local HTTP."""

import functools
import inspect
import typing
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

from htk.base.core.extras import require
from htk.base.core.version import VERSION
from htk.base.errors import HtkError
from htk.faces.mcp.tools import tools
from htk.faces.mcp.traces import Traces

if TYPE_CHECKING:
    from mcp.server.mcpserver import MCPServer

_INSTRUCTIONS = """Profiling and trace analysis of jobs on GPUs. Begin with `summary` of a
recording, then ask the question it points to. Times are ns. Each answer says in `coverage` what it
rests on; `rows_left_out` counts rows that did not fit: narrow by ranks, steps and cycles."""


def server(traces: Traces) -> "MCPServer[None]":
    """Return a server whose tools read recordings and change nothing."""
    require("mcp", "htk mcp")
    from mcp.server.mcpserver import MCPServer
    from mcp_types import ToolAnnotations

    reading = ToolAnnotations(read_only_hint=True, open_world_hint=False)
    served: MCPServer[None] = MCPServer(
        "htk", instructions=_INSTRUCTIONS, version=VERSION, log_level="ERROR"
    )
    for name, description, tool in tools(traces):
        served.add_tool(
            _in_words(tool),
            name,
            description=description,
            annotations=reading,
            structured_output=False,
        )
    return served


def _in_words(tool: Callable[..., str]) -> Callable[..., str]:
    """Return the tool, whose failures are one line each for whoever called it."""
    from mcp.server.mcpserver.exceptions import ToolError

    @functools.wraps(tool)
    def answer(**arguments: object) -> str:
        try:
            return tool(**arguments)
        except HtkError as error:
            raise ToolError(str(error)) from None
        except Exception as error:  # no one question ends the conversation
            raise ToolError(f"internal error: {type(error).__name__}") from error

    signature = inspect.signature(tool)
    described = [p.replace(annotation=_described(p)) for p in signature.parameters.values()]
    answer.__signature__ = signature.replace(parameters=described)  # type: ignore[attr-defined]
    answer.__annotations__ = {p.name: p.annotation for p in described} | {"return": str}
    return answer


def _described(parameter: inspect.Parameter) -> Any:
    """Return the type of a parameter, with its help as the protocol's schema wants it."""
    from pydantic import Field

    if typing.get_origin(parameter.annotation) is not Annotated:
        return parameter.annotation
    kind, doc = typing.get_args(parameter.annotation)[:2]
    return Annotated[kind, Field(description=doc)]
