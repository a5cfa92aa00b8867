"""The server that agents talk to, over stdio or local HTTP."""

from typing import TYPE_CHECKING

from htk.base.core.extras import require_extra
from htk.base.core.version import VERSION
from htk.faces.mcp.guides import PROMPTS, list_guides
from htk.faces.mcp.tools import list_tools
from htk.faces.mcp.traces import Traces

if TYPE_CHECKING:
    from mcp.server.mcpserver import MCPServer

_INSTRUCTIONS = """Profiling and trace analysis of jobs on GPUs. Begin with `summary` of a
recording, then ask the question it points to. Times are ns. Each answer says in `coverage` what it
rests on; `rows_left_out` counts rows that did not fit: narrow by ranks, steps and cycles, or go on
from `next_offset`. Moments count from the recording's start."""


def build_server(traces: Traces) -> "MCPServer[None]":
    """Return a server whose tools read recordings and change nothing."""
    require_extra("mcp", "htk mcp")
    from mcp.server.mcpserver import MCPServer
    from mcp_types import ToolAnnotations

    from htk.faces.mcp.checked_tool import CheckedTool

    reading = ToolAnnotations(read_only_hint=True, open_world_hint=False)
    offered = [CheckedTool.of(*tool, annotations=reading) for tool in list_tools(traces)]
    talking = MCPServer[None](
        "htk", instructions=_INSTRUCTIONS, version=VERSION, log_level="ERROR", tools=offered
    )
    for guide in list_guides():
        named = talking.resource(guide.address, name=guide.name, description=guide.meaning)
        named(guide.write)
    for prompt in PROMPTS:
        talking.prompt()(prompt)
    return talking
