"""`htk` and `python -m htk`."""

import atexit
import gc
import io
import os
import sys
import threading
import warnings
from collections.abc import Sequence
from typing import Any, NoReturn


def main(argv: list[str] | None = None) -> None:
    """Run one command of a process that is htk's own, and end the process."""
    try:
        from htk.faces.cli.kept_answers import answer_or_run

        gc.set_threshold(100_000)  # a command is short: what it makes is looked through seldom
        warnings.formatwarning = _one_line
        _accept_any_character()
        code = answer_or_run(sys.argv[1:] if argv is None else argv, _run_here)
    except KeyboardInterrupt:  # while a command is imported; `run` says the same later
        sys.stderr.write("htk: stopped\n")
        code = 130
    _leave_process(code)


def _run_here(argv: Sequence[str]) -> int:
    # No question multiplies large matrices: threads for them would cost a third of a short answer.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before NumPy is imported

    from htk.base.core.defer_imports import spare_data_classes, spare_docs, spare_modules

    spare_data_classes()
    spare_docs()
    spare_modules()

    from htk.base.core.process_memory import spare_page_faults
    from htk.faces.cli.main import run_command_line

    spare_page_faults()
    return run_command_line(list(argv))


def _leave_process(code: int) -> NoReturn:
    """End the process without taking NumPy and Arrow apart, which takes longer than some answers.

    What was registered to be done at the end is done; a process with threads ends as usual.
    """
    if threading.active_count() > 1:
        sys.exit(code)
    atexit._run_exitfuncs()
    try:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:  # the reader of our output had enough
                stream.flush()
    except OSError:
        sys.exit(code)
    os._exit(code)


def _accept_any_character() -> None:
    """Write characters that the encoding of the output lacks as \\u2013 and the like: an answer has
    names of any script, and a pipe on Windows, or a locale of old, takes few."""
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")


def _one_line(message: Warning | str, *_: Any, **__: Any) -> str:
    return f"htk: {' '.join(str(message).split())}\n"


if __name__ == "__main__":
    main()
