"""No name from a file or an argument steers a terminal, whichever command prints it."""

import io
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from htk.analyses import ANALYSES
from htk.faces.cli.commands import COMMANDS
from htk.faces.cli.main import run_command_line
from tests.kineto_file import kernel, launch, of_rank, op, span, step, write
from tests.thinned import thinned

EVIL = "a\x1b[2Jb\x1b]0;owned\x07c\u202ed\x9b31me\nf\rg\u2028h\u2066i"
SEEN = r"a\x1b[2Jb"
STEERING = re.compile(
    "[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
COLOUR = re.compile(r"\x1b\[[\d;]*m")  # what a table on a terminal is set in
# What runs until it is stopped, or asks for something that is no recording.
SERVERS = {"dashboard", "mcp", "open"}


def trace(folder: Path) -> Path:
    """Two ranks and a dump whose every name is hostile."""
    folder.mkdir()
    for rank in (0, 1):
        events = [step(number, 100 * number, 90) for number in (1, 2, 3)] + [
            event
            for number in (1, 2, 3)
            for event in (
                span(f"{EVIL} range", 100 * number + 1, 60),
                op(f"aten::{EVIL}", 100 * number + 2, 20, **{"External id": number}),
                launch(number, 100 * number + 5),
                kernel(EVIL, 100 * number + 10, 30, correlation=number),
                {
                    "ph": "X",
                    "cat": "python_function",
                    "name": f"{EVIL}.py(3): {EVIL}",
                    "pid": 100,
                    "tid": 1,
                    "ts": 100 * number + 1,
                    "dur": 50,
                    "args": {"Python id": number, "Python parent id": None},
                },
                kernel(f"ncclDevKernel_{EVIL}", 100 * number + 45, 10, 50 + number, 9)
                | {
                    "args": {
                        "device": 0,
                        "stream": 9,
                        "correlation": 50 + number,
                        "Collective name": EVIL,
                        "Process Group Name": EVIL,
                        "Process Group Description": EVIL,
                        "dtype": EVIL,
                        "In msg nelems": 4,
                        "Out msg nelems": 4,
                        "Group size": 2,
                        "Process Group Ranks": "[0, 1]",
                        "Process Group Ranks ": EVIL,
                        "Seq": number,
                    }
                },
            )
        ]
        header: dict[str, Any] = {
            "deviceProperties": [{"id": 0, "name": f"NVIDIA {EVIL}"}],
            "hostname": EVIL,
            "nccl_version": EVIL,
            "traceName": EVIL,
            EVIL: EVIL,
        }
        header |= of_rank(rank, 2)
        header["distributedInfo"] |= {"backend": EVIL, "nccl_version": EVIL}
        write(folder / f"rank{rank}_\x1b[31m\u202e.json", *events, **header)
    (folder / "broken_\x1b[31m_rank_2.json").write_bytes(b'{"traceEvents": [{"ph": "X", "\x1b[2J')
    (folder / "none_\x1b[31m.json").write_text("\x1b[2J nothing")
    return folder


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


def steering(text: str) -> list[str]:
    """Return the lines of a text that would steer a terminal."""
    lines = COLOUR.sub("", text).split("\n")
    return [ascii(line)[:300] for line in lines if STEERING.search(line)]


def asked(name: str, folder: Path, output: Path) -> list[list[str]]:
    """Return the ways to ask a fixed command about a folder."""
    path = str(folder)
    ways = {
        "analyses": [[]],
        "formats": [[]],
        "version": [[]],
        "cache": [["ls"], ["need", path], ["verify"], ["clear"]],
        "diff": [[path, path]],
        "diff-tree": [[path, path]],
        "history": [
            ["add", path, "--store", str(output / "h"), "--tags", f"model={EVIL}".replace(",", "")],
            ["list", "--store", str(output / "h")],
            ["changes", "--store", str(output / "h")],
        ],
        "convert": [
            [path, "-o", str(output / "c")],
            [path, "--to", "chrome", "-o", str(output / "m")],
        ],
        "scrub": [[path, "-o", str(output / "s")]],
        "trim": [[path, "--steps", "1..2", "-o", str(output / "t")]],
        "verify": [[path]],
        "sql": [[path, "select * from kernels"], [path, f'select "{EVIL}" from kernels']],
    }
    return ways.get(name, [[path], [path, "-o", str(output / f"{name}.out")]])


@pytest.mark.parametrize("terminal", thinned([True, False]), ids=["terminal", "pipe"])
def test_no_command_lets_a_name_steer_a_terminal(
    terminal: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = trace(tmp_path / "evil")
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(tmp_path)  # where some commands write
    printed: dict[str, str] = {}
    ways = {name: asked(name, folder, tmp_path) for name in COMMANDS if name not in SERVERS}
    if terminal:  # what prints otherwise there than into a pipe
        ways = {
            name: ways[name]
            for name in ("cache", "diff", "doctor", "history", "sql", "summary", "verify")
        }
        ways |= {name: [[str(folder)]] for name in ("kernel_top", "time_breakdown")}
    else:
        ways |= {name: [[str(folder)]] for name in sorted(ANALYSES)}
    for name in ("kernel_top", "time_breakdown", "doctor", "summary"):
        ways[name] = [*ways[name], [str(folder), "--format", "md"]]
        ways[name].append([str(folder), "--format", "json"])
        ways[name].append([str(folder), "--format", "csv"])
    for name, commands in ways.items():
        for words in commands:
            monkeypatch.setattr(sys, "stdout", Terminal() if terminal else io.StringIO())
            monkeypatch.setattr(sys, "stderr", io.StringIO())  # without the bar of progress
            run_command_line([name, *words])
            printed[f"{name} {' '.join(words[1:])}"] = sys.stdout.getvalue() + sys.stderr.getvalue()
    monkeypatch.undo()
    leaks = {name: lines for name, text in printed.items() if (lines := steering(text))}
    assert not leaks, json.dumps(leaks, indent=1)[:6000]
    assert SEEN in printed["kernel_top "]
    if not terminal:
        (row,) = (
            row
            for row in json.loads(printed["kernel_top --format json"])["rows"]
            if row["name"] == EVIL
        )
        assert row["count"] == 6


@pytest.mark.parametrize(
    "words",
    [
        ["kernel_top", f"/nowhere/{EVIL}"],
        [EVIL],
        ["kernel_top", f"--{EVIL}", "x"],
        ["kernel_top", "sample", "--steps", EVIL],
        ["kernel_top", "sample", "--ranks", EVIL],
        ["kernel_top", "sample", "--from", EVIL],
        ["kernel_top", "sample", "--format", EVIL],
        ["kernel_top", "sample", "--annotation", f"({EVIL}"],
        ["kernel_top", "sample", "-o", f"/no/{EVIL}"],
        ["kernel_top", f"http://127.0.0.1:9/{EVIL}"],
        ["whatif", "sample", EVIL],
        ["cache", EVIL],
        ["convert", "sample", "--table", EVIL, "-o", "/nowhere"],
        ["sql", "sample", f"select {EVIL}"],
        ["simulate", f"/nowhere/{EVIL}"],
        ["kernel_top", "sample", "--gpus", f"/no/{EVIL}"],
        ["kernel_top", "sample", "--rank-pattern", f"({EVIL}"],
        ["diff", "sample", EVIL],
    ],
    ids=lambda words: " ".join(words)[:30].encode("ascii", "replace").decode().replace("\x1b", "?"),
)
def test_no_error_steers_a_terminal(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for stream in ("stdout", "stderr"):
        monkeypatch.setattr(sys, stream, io.StringIO())
    assert run_command_line(words) != 0
    text = sys.stdout.getvalue() + sys.stderr.getvalue()
    monkeypatch.undo()
    assert not steering(text)
