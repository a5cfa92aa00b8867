"""Commands run in this process: what they end with, print and complain of."""

import io
from contextlib import redirect_stderr, redirect_stdout
from typing import NamedTuple

from htk.faces.cli.main import run_command_line


class Printed(NamedTuple):
    """The exit code of a command, and what it printed."""

    returncode: int
    stdout: str
    stderr: str


def htk(*words: str) -> Printed:
    """Run a command in this process: starting another takes a second."""
    out = io.StringIO()
    err = io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = run_command_line(list(words))
    return Printed(code, out.getvalue(), err.getvalue())
