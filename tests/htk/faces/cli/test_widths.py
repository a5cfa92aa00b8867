"""Every question in a pseudo-terminal of 50 to 200 columns: name and main number stand."""

import json
import os
import re
import subprocess
import sys

import pytest

WIDTHS = (50, 66, 80, 120, 200)
# Asks each question once, and prints each answer at each width of its own terminal.
PRINT_ALL = """
import fcntl, json, struct, sys, termios
from htk.analyses import ANALYSES
from htk.answers.ask import ask_trace
from htk.answers.output.render import print_table, text_columns
from htk.base.errors import HtkError
from htk.traces.trace.opening import open_trace

trace = open_trace("sample")
for name in ANALYSES:
    try:
        answer = ask_trace(trace, name).head(20)
    except HtkError:
        continue
    headings = {c.name: c.heading for c in text_columns(answer, 20)}
    drawn = getattr(answer.analysis.chart, "y", ())
    drawn = (drawn,) if isinstance(drawn, str) else drawn
    wanted = [h for n, h in headings.items() if n == "name"]
    wanted += [headings[n] for n in drawn if n in headings][:1]
    for width in WIDTHS:
        size = struct.pack("HHHH", 50, width, 0, 0)
        fcntl.ioctl(1, termios.TIOCSWINSZ, size)
        print("@@" + json.dumps([name, width, wanted, len(answer)]), flush=True)
        print_table(answer)
print("@@" + json.dumps(["", 0, [], 0]), flush=True)
"""


def print_in_terminal(script: str) -> str:
    """Return what a script prints into a terminal of its own."""
    ours, theirs = os.openpty()
    environment = {k: v for k, v in os.environ.items() if k != "COLUMNS"} | {"TERM": "xterm"}
    process = subprocess.Popen(
        [sys.executable, "-c", script], stdin=theirs, stdout=theirs, stderr=theirs, env=environment
    )
    os.close(theirs)
    parts = []
    try:
        while block := os.read(ours, 1 << 16):
            parts.append(block)
    except OSError:  # the terminal has closed
        pass
    assert process.wait() == 0, b"".join(parts)[-2000:]
    return b"".join(parts).decode().replace("\r\n", "\n")


@pytest.mark.skipif(sys.platform == "win32", reason="no pseudo-terminals")
def test_every_question_at_every_width() -> None:
    text = print_in_terminal(f"WIDTHS = {WIDTHS}\n{PRINT_ALL}")
    plain = re.sub(r"\x1b\[[\d;]*m", "", text)
    blocks = [block.split("\n") for block in plain.split("@@")[1:-1]]
    assert len(blocks) > 40 * len(WIDTHS)
    bad = []
    for first, *lines in blocks:
        name, width, wanted, rows = json.loads(first)
        ends = (k for k, line in enumerate(lines) if line.startswith(("…", "coverage:")))
        table = lines[: next(ends)]
        missing = [heading for heading in wanted if heading not in "\n".join(table)]
        long = [line for line in table if len(line.rstrip()) > width]
        if missing or (rows and long):
            bad.append((name, width, missing, long[:2]))
    assert not bad
