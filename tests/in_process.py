"""Commands run in this process: what they end with, print and complain of."""

import io
from contextlib import redirect_stderr, redirect_stdout
from typing import NamedTuple

from htk.faces.cli.main import run


class Printed(NamedTuple):
    """What a command left behind."""

    returncode: int
    stdout: str
    stderr: str


def htk(*words: str) -> Printed:
    """Run a command where no process of its own is the subject: to start one takes a second."""
    out = io.StringIO()
    err = io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = run(list(words))
    return Printed(code, out.getvalue(), err.getvalue())
