"""The tools as an agent uses them, through the SDK's own client."""

import json
import os
import re
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from htk.analyses import ANALYSES
from htk.faces.cli.main import run_command_line
from htk.faces.mcp.answers import MOST_CHARACTERS
from htk.faces.mcp.tools import list_tools
from htk.faces.mcp.traces import Traces
from htk.traces.trace.opening import open_trace
from tests.htk.faces.mcp.conversations import (
    Client,
    anyio,
    conversation,
    in_own_thread,
    text,
)
from tests.kineto_file import kernel, of_rank, step, write
from tests.server_recording import write_server

Ask = Callable[..., Awaitable[dict[str, Any]]]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "run"
    folder.mkdir()
    for rank in (0, 1):
        write(folder / f"rank{rank}.json", kernel("gemm", 1, 3 + rank), **of_rank(rank))
    return folder


def test_every_question_is_a_tool_with_typed_options(root: Path) -> None:
    async def talk(client: Client) -> None:
        listed = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert set(ANALYSES) <= set(listed)
        assert {"list_files", "doctor", "summary", "sql", "diff", "whatif", "plan"} <= set(listed)
        top = listed["kernel_top"]
        assert top.annotations is not None and top.annotations.read_only_hint
        properties = top.input_schema["properties"]
        assert properties["n"]["type"] == "integer" and properties["n"]["description"]
        assert top.input_schema["required"] == ["path"]

    conversation(root, talk)


def test_a_tool_narrows_to_cycles(tmp_path: Path) -> None:
    """Two recordings of a rank: one kernel in the first, two in the second."""
    for cycle in (0, 1):
        events = [kernel("gemm", 1e6 * cycle + 10 * k, 5) for k in range(cycle + 1)]
        marks = step(7 * cycle, 1e6 * cycle, 100)
        write(tmp_path / f"c{cycle}.json", marks, *events, **of_rank(0))
    named = {name: tool for name, _, tool in list_tools(Traces([tmp_path]))}
    for cycles, count in ((None, 3), ("0", 1), ("1", 2)):
        answer = json.loads(named["kernel_top"](path=".", cycles=cycles, limit=5))
        assert [row["count"] for row in answer["rows"]] == [count]


def test_answers_are_those_of_the_registry(root: Path) -> None:
    async def talk(client: Client) -> None:
        answer = json.loads(text(await client.call_tool("kernel_top", {"path": str(root), "n": 5})))
        assert [(r["name"], r["count"], r["total_ns"]) for r in answer["rows"]] == [
            ("gemm", 2, 7000)
        ]
        assert answer["coverage"] and {"name", "doc"} <= set(answer["columns"][0])
        one = json.loads(text(await client.call_tool("kernel_top", {"path": ".", "ranks": "1"})))
        assert one["rows"][0]["total_ns"] == 4000
        asked = {"path": ".", "query": "select count(*) as n from kernels"}
        assert json.loads(text(await client.call_tool("sql", asked)))["rows"] == [{"n": 2}]
        files = text(await client.call_tool("list_files", {})).splitlines()
        assert files == [str(root / f"rank{rank}.json") for rank in (0, 1)]
        planned = await client.call_tool("plan", {"model": "llama2-7b", "gpu": "h100"})
        assert json.loads(text(planned))["rows"]

    conversation(root, talk)


def test_a_server_is_planned_as_the_command_plans_it(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = {"tensor_parallel": 4, "weights": "fp8", "kv_cache": "fp8"}
    asked = {"model": "llama3-70b", "gpu": "h100", "requests": [1, 64], "server": told}
    words = "--tensor-parallel 4 --weights fp8 --kv-cache fp8 --requests 1,64 --format json"
    assert (
        run_command_line(["plan-serving", "--model", "llama3-70b", "--gpu", "h100", *words.split()])
        == 0
    )
    printed = json.loads(capsys.readouterr().out)

    async def talk(client: Client) -> None:
        answer = json.loads(text(await client.call_tool("plan_serving", asked)))
        assert answer["rows"] == printed["rows"] and len(answer["rows"]) == 2
        assert answer["coverage"]["memory"] == printed["coverage"]["memory"]
        for wrong in ({"weights": "int1"}, {"speculation": 3}, {"tensor_parallel": 1}):
            refused = await client.call_tool("plan_serving", {**asked, "server": wrong})
            assert refused.is_error and "internal" not in text(refused)
        refused = await client.call_tool("plan_serving", {**asked, "requests": [0]})
        assert refused.is_error and "from 1" in text(refused)

    conversation(root, talk)


def test_what_is_outside_the_roots_is_refused(root: Path, tmp_path: Path) -> None:
    secret = write(tmp_path / "secret.json", kernel("hidden", 1, 3), **of_rank(0))
    (root / "link.json").symlink_to(secret)
    for name in ("alone", "beside"):
        (root / name).mkdir()
        (root / name / "rank0.json").symlink_to(secret)
    (root / "beside" / "rank1.json").symlink_to(root / "rank1.json")
    os.mkfifo(root / "pipe")

    async def talk(client: Client) -> None:
        for path in (str(secret), "../secret.json", "link.json", "/etc/passwd", "https://a/b"):
            refused = await client.call_tool("kernel_top", {"path": path})
            assert refused.is_error and "below" in text(refused) and "hidden" not in text(refused)
        for path in ("alone", "pipe"):
            refused = await client.call_tool("kernel_top", {"path": path})
            assert refused.is_error and "hidden" not in text(refused)
        beside = text(await client.call_tool("kernel_top", {"path": "beside"}))
        assert "hidden" not in beside
        coverage = json.loads(beside)["coverage"]
        assert (coverage["ranks"], coverage["files_failed"]) == ([1], 1)
        wrong = await client.call_tool("kernel_top", {"path": ".", "sort_by": "nothing"})
        assert wrong.is_error
        reading = {"path": ".", "query": f"select * from read_text('{secret}')"}
        assert (await client.call_tool("sql", reading)).is_error
        assert not (await client.call_tool("kernel_top", {"path": "rank0.json"})).is_error

    conversation(root, talk)


def test_over_http_only_with_the_token(root: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "htk", "mcp", str(root), "--http", str(port)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        address = process.stderr.readline().strip()
        assert address.startswith(f"http://127.0.0.1:{port}/mcp?token=")
        try:
            in_own_thread(_asked_over_http, address)
        finally:
            process.terminate()


async def _asked_over_http(address: str) -> None:
    for _ in range(600):  # until the server listens
        try:
            await (await anyio.connect_tcp("127.0.0.1", urlsplit(address).port)).aclose()
            break
        except OSError:
            await anyio.sleep(0.1)
    for stranger in (address.partition("?")[0], address[:-1] + "!"):
        with pytest.raises(urllib.error.HTTPError, match="401"):
            await anyio.to_thread.run_sync(urllib.request.urlopen, stranger)
    async with Client(address) as client:
        answer = json.loads(text(await client.call_tool("kernel_top", {"path": "."})))
        assert answer["rows"][0]["name"] == "gemm"


def test_answers_fit_a_conversation(root: Path) -> None:
    events = [kernel(f"kernel_{k}_{'x' * 900}", 10 * k, 3) for k in range(800)]
    write(root / "rank0.json", *events, **of_rank(0))

    async def talk(client: Client) -> None:
        asked = {"path": "rank0.json", "n": 0, "limit": 100_000}
        answer = text(await client.call_tool("kernel_top", asked))
        assert len(answer) <= MOST_CHARACTERS
        document = json.loads(answer)
        total = open_trace(root / "rank0.json").tables["kernels"].num_rows
        assert len(document["rows"]) + document["rows_left_out"] == total
        assert document["rows"][0]["name"].endswith("more characters)")

    conversation(root, talk)


def test_pages_join_into_the_whole_answer(root: Path) -> None:
    events = [kernel(f"kernel_{k}", 10 * k, 3) for k in range(90)]
    write(root / "rank0.json", *events, **of_rank(0))

    async def talk(client: Client) -> None:
        names: list[str] = []
        offset: int | None = 0
        while offset is not None:
            asked = {"path": "rank0.json", "n": 0, "limit": 40, "offset": offset}
            outcome = await client.call_tool("kernel_top", asked)
            page = json.loads(text(outcome))
            assert outcome.structured_content == page, "hosts take the object, or the text"
            names += [row["name"] for row in page["rows"]]
            offset = page.get("next_offset")
        assert sorted(names) == sorted(f"kernel_{k}" for k in range(90))
        for edge, count in ((-5, 90), (10**30, 0)):
            asked = {"path": "rank0.json", "n": 0, "limit": 10**30, "offset": edge}
            page = json.loads(text(await client.call_tool("kernel_top", asked)))
            assert len(page["rows"]) == count and "next_offset" not in page

    conversation(root, talk)


def test_no_moment_is_larger_than_what_javascript_holds(root: Path) -> None:
    """Of a clock's nanoseconds a host would lose the last two digits, and the order of kernels."""
    began = 1783239616000494690
    marked = step(1, began / 1000 - 50, 100)
    write(root / "rank0.json", marked, kernel("gemm", began / 1000, 7), **of_rank(0))

    async def talk(client: Client) -> None:
        answer = json.loads(text(await client.call_tool("step_times", {"path": "rank0.json"})))
        assert answer["rows"] and answer["rows"][0]["start_ns"] < 2**53
        origin = answer["coverage"]["origin_ns"]
        assert isinstance(origin, str) and abs(int(origin) - began) < 10**6

    conversation(root, talk)


def test_a_host_is_shown_tables_edits_and_ways_to_ask(root: Path) -> None:
    async def talk(client: Client) -> None:
        listed = {str(each.uri) for each in (await client.list_resources()).resources}
        assert listed == {"htk://tables", "htk://edits"}
        tables = (await client.read_resource("htk://tables")).contents[0].text
        assert "\n  duration_ns: " in tables and tables.startswith("events\n")
        edits = (await client.read_resource("htk://edits")).contents[0].text
        assert edits.startswith("replace: ")
        tools_there = {tool.name for tool in (await client.list_tools()).tools}
        for prompt in (await client.list_prompts()).prompts:
            values = {argument.name: "runs/latest" for argument in prompt.arguments or ()}
            told = await client.get_prompt(prompt.name, values)
            said = told.messages[0].content.text
            assert "runs/latest" in said
            named = set(re.findall(r"`(\w+)`", said)) - {"unclear", "same"}
            assert named <= tools_there, "a way names tools that exist"

    conversation(root, talk)


def test_a_server_is_told_by_its_iterations(tmp_path: Path) -> None:
    write_server(tmp_path / "run/rank0.json")

    async def talk(client: Client) -> None:
        summary = json.loads(text(await client.call_tool("summary", {"path": "run"})))
        assert summary["coverage"]["verdict"].startswith("1 decode iteration of 32 requests")
        wanted = [row["analysis"] for row in summary["rows"] if row["part"] == "next"]
        listed = {tool.name for tool in (await client.list_tools()).tools}
        assert set(wanted) <= listed, "an agent can ask each of them"
        tried = json.loads(text(await client.call_tool("whatif", {"path": "run"})))
        assert "serving requests=2x" in [row["whatif"] for row in tried["rows"]]
        training = {"path": "run", "edits": {"batch": "2x"}}
        assert "requests=2x" in text(await client.call_tool("whatif", training))

    conversation(tmp_path, talk)
