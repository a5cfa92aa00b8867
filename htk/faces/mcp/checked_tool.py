"""A tool that refuses what it does not have, in words, and ends when its call is cancelled."""

import functools
import inspect
import json
import threading
import typing
from collections.abc import Awaitable, Callable, Collection
from typing import Annotated, Any

import anyio.to_thread
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.tools import Tool
from mcp_types import CallToolResult, TextContent
from pydantic import Field, ValidationError

from htk.answers.option_values import nearest_word
from htk.base.errors import HtkError
from htk.base.mappings import Fields
from htk.verdicts.query.worker import cancelled


class CheckedTool(Tool):
    """A tool whose arguments are those of its schema and no others."""

    @classmethod
    def of(cls, name: str, description: str, function: Callable[..., str], **more: Any) -> Tool:
        """Return the tool of a function."""
        answer = _answer_in_words(function)
        tool = cls.from_function(
            answer, name, description=description, structured_output=False, **more
        )
        tool.parameters = {**_shorten_schema(tool.parameters), "additionalProperties": False}
        return tool

    async def run(self, arguments: Fields, *more: Any, **options: Any) -> Any:
        """Return the answer; ToolError names the argument that is wrong."""
        _refuse_unknown(self.name, arguments, self.parameters["properties"])
        try:
            return await super().run(arguments, *more, **options)
        except ToolError as error:
            if isinstance(error.__cause__, ValidationError):
                raise ToolError(_told_in_words(error.__cause__)) from None
            raise


def _shorten_schema(schema: Fields) -> Fields:
    """Return a schema without what a host's model learns nothing from: titles, and that an argument
    may be null instead of left out. Of the list of all tools that is a fifth."""
    arguments = {}
    for name, described in schema["properties"].items():
        kinds = described.get("anyOf", ())
        kept = {k: v for k, v in described.items() if k not in ("title", "anyOf")}
        named = [kind for kind in kinds if kind != {"type": "null"}]
        kept |= named[0] if len(named) == 1 else {"anyOf": named} if named else {}
        if kept.get("default", 0) is None:
            del kept["default"]
        arguments[name] = kept
    return {"type": "object", "properties": arguments, "required": schema.get("required", [])}


def _refuse_unknown(tool: str, arguments: Collection[str], allowed: Collection[str]) -> None:
    for unknown in sorted(set(arguments) - set(allowed)):
        near = nearest_word(unknown.lower(), allowed)
        rest = f"did you mean {near!r}?" if near else f"it has {', '.join(allowed) or 'none'}"
        raise ToolError(f"{tool} has no argument {unknown!r}; {rest}")


def _told_in_words(error: ValidationError) -> str:
    wrong = {".".join(map(str, each["loc"])): each["msg"] for each in error.errors()}
    return "; ".join(f"{name}: {message}" for name, message in wrong.items())


def _build_tool_result(answer: str) -> CallToolResult:
    """Return an answer as text, and beside it as an object for hosts that take one."""
    document = json.loads(answer) if answer.startswith("{") else None
    text = TextContent(type="text", text=answer)
    return CallToolResult(content=[text], structured_content=document)


def _answer_in_words(
    function: Callable[..., str],
) -> Callable[..., Awaitable[CallToolResult]]:
    """Return a coroutine of a function: its failures are a line each, and whoever cancels the call
    waits for nothing."""

    @functools.wraps(function)
    async def answer_call(**arguments: object) -> CallToolResult:
        ended = threading.Event()
        cancelled.set(ended)
        try:
            asked = functools.partial(function, **arguments)
            return _build_tool_result(await anyio.to_thread.run_sync(asked, abandon_on_cancel=True))
        except HtkError as error:
            raise ToolError(str(error)) from None
        except Exception as error:  # no one question ends the conversation
            raise ToolError(f"internal error: {type(error).__name__}") from error
        finally:
            ended.set()

    signature = inspect.signature(function)
    described = [p.replace(annotation=_described_type(p)) for p in signature.parameters.values()]
    answer_call.__signature__ = signature.replace(parameters=described)  # type: ignore[attr-defined]
    answer_call.__annotations__ = {p.name: p.annotation for p in described}
    return answer_call


def _described_type(parameter: inspect.Parameter) -> Any:
    """Return the type of a parameter, with its help as the protocol's schema wants it."""
    if typing.get_origin(parameter.annotation) is not Annotated:
        return parameter.annotation
    kind, doc = typing.get_args(parameter.annotation)[:2]
    return Annotated[kind, Field(description=doc)]
