"""CPU time of running processes, and own memory of a command and all processes that it starts,
those that outlive it too.

A cluster's processes belong to no command that could wait for them: what they take is read from
/proc while they run.
"""

import ctypes
import os
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

_INTERVAL_S = 0.02
_PR_SET_CHILD_SUBREAPER = 36
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_END_S = 20  # that processes of a cluster get to end after the command did


@dataclass
class TreeUse:
    """Memory that processes held, each named by its id and start."""

    exit_code: int = 0
    anonymous: dict[tuple[int, int], int] = field(default_factory=dict)  # the most, in bytes
    command: tuple[int, int] = (0, 0)  # the command's own process

    @property
    def command_mb(self) -> int:
        """Anonymous memory of the command's own process, at most."""
        return round(self.anonymous[self.command] / 1e6)


def measure_tree(words: Sequence[str], environment: Mapping[str, str]) -> TreeUse:
    """Run a command to its end and that of all it started. Processes whose parent ended become
    children of this one."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    use = TreeUse()
    child = subprocess.Popen(list(words), env=dict(environment), stderr=subprocess.DEVNULL)
    ended = None
    while ended is None or time.monotonic() < ended + _END_S:
        running = _look(use, child.pid)
        if child.poll() is not None:
            ended = ended or time.monotonic()
            _reap()
            if not running:
                break
        time.sleep(_INTERVAL_S)
    use.exit_code = child.returncode
    return use


def _look(use: TreeUse, command: int) -> bool:
    """Note what each process holds; return whether there are any."""
    running = False
    for process in descendants(os.getpid()):
        with suppress(OSError, IndexError, ValueError):  # it ended meanwhile
            words = _stat(process)
            key = (process, int(words[19]))
            running |= words[0] != "Z"
            status = Path(f"/proc/{process}/status").read_text()
            held = int(status.partition("RssAnon:")[2].split()[0]) << 10
            use.anonymous[key] = max(use.anonymous.get(key, 0), held)
            if process == command:
                use.command = key
    return running


def _stat(process: int) -> list[str]:
    """Return the words that follow the process' name."""
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()


def cpu_seconds_below(process: int) -> float:
    """Return what a process and all below it took so far; those that ended are missing."""
    took = 0.0
    for member in (process, *descendants(process)):
        with suppress(OSError, IndexError, ValueError):
            words = _stat(member)
            took += (int(words[11]) + int(words[12])) / _TICKS_PER_S
    return took


def descendants(process: int) -> Iterator[int]:
    """Yield the children of a process, and theirs."""
    with suppress(OSError):
        for task in Path(f"/proc/{process}/task").iterdir():
            for child in map(int, (task / "children").read_text().split()):
                yield child
                yield from descendants(child)


def _reap() -> None:
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
