"""Agents as they are: valid and invalid calls, eight at a time, a tenth of them cancelled."""

import json
import random
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from htk.faces.mcp.tools import list_tools
from htk.faces.mcp.traces import Traces
from tests.htk.faces.mcp.conversations import Client, anyio, conversation_of_processes, text

_ENDLESS = "select count(*) from range(1000000) a, range(1000000) b where a.range + b.range = 7"
_QUESTIONS = ("kernel_top", "time_breakdown", "comm_summary", "step_times", "kernel_kinds")


class _Call(NamedTuple):
    tool: str
    arguments: dict[str, Any]
    refused_with: str | None  # a part of what is said; None: it is answered


def _valid_call(draw: random.Random) -> _Call:
    if draw.random() < 0.3:
        number = draw.randrange(100)
        return _Call("sql", {"path": "sample", "query": f"select {number} as number"}, None)
    ranks = draw.choice([{}, {"ranks": "0"}, {"ranks": "0..1"}])
    return _Call(draw.choice(_QUESTIONS), {"path": "sample", "limit": 3, **ranks}, None)


def _invalid_call(draw: random.Random) -> _Call:
    tool = draw.choice(_QUESTIONS)
    return draw.choice(
        [
            _Call(tool, {"path": "sample", "rank": 1}, "did you mean 'ranks'"),
            _Call(tool, {"path": "sample", "Steps": "11"}, "did you mean 'steps'"),
            _Call(tool, {"path": "sample", "limit": "few"}, "limit: "),
            _Call(tool, {"ranks": "1"}, "path: "),
            _Call(tool, {"path": "sample", "ranks": "9"}, "nothing within ranks 9"),
            _Call(tool, {"path": "/etc"}, "below"),
            _Call("sql", {"path": "sample", "query": "drop table kernels"}, "reading statement"),
            _Call("sql", {"path": "sample", "query": "select x from kernels"}, "no column 'x'"),
        ]
    )


@pytest.mark.parametrize("calls", [20, pytest.param(1000, marks=pytest.mark.nightly)])
def test_each_call_is_answered_or_refused_for_its_reason(tmp_path: Path, calls: int) -> None:
    draw = random.Random(calls)
    ask = {name: tool for name, _, tool in list_tools(Traces([tmp_path]))}
    expected: dict[str, list[dict[str, Any]]] = {}

    def rows_of(call: _Call) -> list[dict[str, Any]]:
        key = f"{call.tool} {call.arguments}"
        if key not in expected:
            answer = ask[call.tool](**{"limit": 3, **call.arguments})
            expected[key] = json.loads(answer)["rows"]
        return expected[key]

    async def talk(client: Client) -> None:
        eight = anyio.CapacityLimiter(8)

        async def cancel_after(seconds: float) -> None:
            with anyio.move_on_after(seconds):
                await client.call_tool("sql", {"path": "sample", "query": _ENDLESS})
                raise AssertionError("an endless query was answered")

        async def check(call: _Call) -> None:
            outcome = await client.call_tool(call.tool, call.arguments)
            said = text(outcome)
            assert outcome.is_error == (call.refused_with is not None), said
            if call.refused_with is None:
                assert json.loads(said)["rows"] == rows_of(call)
            else:
                assert call.refused_with in said
                assert "pydantic" not in said

        async def ask_once(turn: int, call: _Call) -> None:
            async with eight:
                if turn % 10 == 9:
                    await cancel_after(turn % 70 / 60)
                else:
                    await check(call)

        with anyio.fail_after(60 + calls):
            async with anyio.create_task_group() as group:
                for turn in range(calls):
                    is_valid = draw.random() < 0.6
                    call = _valid_call(draw) if is_valid else _invalid_call(draw)
                    group.start_soon(ask_once, turn, call)

    (tmp_path / "root").mkdir()
    conversation_of_processes(tmp_path / "root", talk)


def test_a_cancelled_query_makes_way_for_the_next(tmp_path: Path) -> None:
    async def talk(client: Client) -> None:
        with anyio.move_on_after(1):
            await client.call_tool("sql", {"path": "sample", "query": _ENDLESS})
        # The endless one would be stopped after 30 s; what waits in line behind it takes none.
        with anyio.fail_after(20):
            after = await client.call_tool("sql", {"path": "sample", "query": "select 1 as n"})
        assert json.loads(text(after))["rows"] == [{"n": 1}]

    (tmp_path / "root").mkdir()
    conversation_of_processes(tmp_path / "root", talk)
