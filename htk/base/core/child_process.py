"""A process that works for this one over two pipes: started, killed and started again.

What it runs is a function of `htk` that takes the pipes: requests to read, answers to write.
"""

import faulthandler
import gc
import os
import select
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, BinaryIO, Protocol

if TYPE_CHECKING:
    import subprocess

Serve = Callable[[BinaryIO, BinaryIO], None]


class ChildProcess(Protocol):
    """A running process and the pipes to it."""

    requests: BinaryIO
    answers: BinaryIO

    def alive(self) -> bool: ...

    def kill(self) -> None: ...


def start_child(
    function: str, environment: Mapping[str, str], *, fork: bool | None = None
) -> ChildProcess:
    """Start a process that runs `module:function`, with these changes to its environment."""
    return (
        _start_fork(function)
        if (may_fork() if fork is None else fork)
        else _start_fresh(function, environment)
    )


def may_fork() -> bool:
    """Return whether a copy of this process can serve: a third of a second less than a new one, but
    only safe where no other thread may hold a lock."""
    return sys.platform == "linux" and threading.active_count() == 1


def main(function: str) -> None:
    """Serve the process that started this one, over standard input and output."""
    requests = os.fdopen(os.dup(0), "rb")
    answers = os.fdopen(os.dup(1), "wb")
    _serve_requests(function, requests, answers)


def _serve_requests(function: str, requests: BinaryIO, answers: BinaryIO) -> None:
    module, _, name = function.partition(":")
    serve: Serve = getattr(import_module(module), name)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    faulthandler.disable()  # its end is told by the process that started it
    if hasattr(select, "poll"):
        threading.Thread(target=_end_with_parent, args=(requests.fileno(),), daemon=True).start()
    serve(requests, answers)
    os._exit(0)


def _end_with_parent(requests: int) -> None:
    """End this process, whatever it is busy with, when nobody can send it requests any more."""
    poll = select.poll()
    poll.register(requests, 0)  # hanging up is always told
    poll.poll()
    os._exit(1)


class _Spawned:
    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        assert process.stdin is not None and process.stdout is not None
        self._process = process
        self.requests: BinaryIO = process.stdin  # type: ignore[assignment]
        self.answers: BinaryIO = process.stdout  # type: ignore[assignment]

    def alive(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


def _start_fresh(function: str, environment: Mapping[str, str]) -> ChildProcess:
    """Start a process that has imported nothing yet."""
    import multiprocessing.spawn
    import subprocess  # a cached trace is opened without

    paths = [path or os.getcwd() for path in sys.path]
    process = subprocess.Popen(
        [
            os.fsdecode(multiprocessing.spawn.get_executable() or sys.executable),
            "-c",
            f"from htk.base.core.child_process import main; main({function!r})",
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), **environment},
        start_new_session=True,  # an interrupt from the keyboard is for the process that asks
    )
    return _Spawned(process)


class _Forked:
    def __init__(self, pid: int, requests: BinaryIO, answers: BinaryIO) -> None:
        self._pid: int | None = pid  # until its end is known
        self._lock = threading.Lock()  # a clock may kill it while its end is awaited
        self.requests = requests
        self.answers = answers

    def alive(self) -> bool:
        with self._lock:
            return not self._has_ended()

    def _has_ended(self) -> bool:
        if self._pid is not None and os.waitpid(self._pid, os.WNOHANG)[0]:
            self._pid = None
        return self._pid is None

    def kill(self) -> None:
        with self._lock:
            if self._has_ended() or self._pid is None:
                return
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)
            self._pid = None


def _start_fork(function: str) -> ChildProcess:
    """Start a copy of this process, which has imported what it needs."""
    import_module(function.partition(":")[0])
    request_end, requests = os.pipe()
    answers, answer_end = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of threads that Arrow keeps asleep
        pid = os.fork()
    if not pid:
        try:
            os.close(requests)
            os.close(answers)
            os.setsid()
            gc.freeze()  # what was copied is not looked at, which would copy it in truth
            _serve_requests(function, os.fdopen(request_end, "rb"), os.fdopen(answer_end, "wb"))
        finally:
            os._exit(1)
    os.close(request_end)
    os.close(answer_end)
    return _Forked(pid, os.fdopen(requests, "wb"), os.fdopen(answers, "rb"))
