"""Run tests in a copy of the tree, in a process forked from one that holds the packages they need.

What a test process imports of other projects takes longer than most tests; a mutation run starts
hundreds of such processes. The tree's own modules are imported anew in each.
"""

import contextlib
import json
import os
import resource
import select
import signal
import sys
import time
from pathlib import Path
from typing import NamedTuple

import pytest

# What most tests import; each that is missing costs time, nothing else.
import hypothesis  # noqa: F401  # isort: skip
import numpy  # noqa: F401  # isort: skip
import pyarrow.compute  # noqa: F401  # isort: skip

OWN = ("htk", "parsers", "analyses", "dashboard", "bench", "tests")
MOST_BYTES = 8 << 30  # of a process's addresses: a mutant may allocate without end
OPTIONS = ("-x", "-q", "--tb=no", "--no-header", "-p", "no:cacheprovider")


class Outcome(NamedTuple):
    code: int  # of pytest
    failed: str  # the first test, or file, that failed; "" where none did


class _FirstFailure:
    """Take note of what failed first."""

    name = ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and not self.name:
            self.name = report.nodeid

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed and not self.name:
            self.name = report.nodeid


def outcome(root: Path, arguments: tuple[str, ...], seconds: float) -> Outcome | None:
    """Return how the tests ended; None: they did not, in so many seconds."""
    receiving, sending = os.pipe()
    process = os.fork()
    if process == 0:
        os.close(receiving)
        _run(root, arguments, sending)
    os.close(sending)
    try:
        text = _read(receiving, time.monotonic() + seconds)
    finally:  # with what the tests started
        os.close(receiving)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process, signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError):  # before it had a group of its own
            os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
    if text is None:
        return None
    return Outcome(*json.loads(text)) if text else Outcome(-1, "")  # it died


def _read(pipe: int, until: float) -> bytes | None:
    text = b""
    while select.select([pipe], [], [], max(until - time.monotonic(), 0))[0]:
        if not (part := os.read(pipe, 65536)):
            return text
        text += part
    return None


def _run(root: Path, arguments: tuple[str, ...], sending: int) -> None:
    """Run pytest and end the process."""
    code, first = 99, _FirstFailure()
    try:
        os.setsid()
        resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))
        nothing = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(nothing, stream)
        for name in [n for n in sys.modules if n.split(".")[0] in OWN]:
            del sys.modules[name]
        os.chdir(root)
        sys.path.insert(0, str(root))
        os.environ |= {"PYTHONPATH": str(root), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
        code = int(pytest.main([*OPTIONS, *arguments], plugins=[first]))
    finally:
        os.write(sending, json.dumps([code, first.name]).encode())
        os._exit(0)
