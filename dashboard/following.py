"""A run whose files still come: when they rest, it is read anew beside what is shown."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from htk.traces.trace.opening import Inputs

_MOST_FILES = 100_000

FileStates = frozenset[tuple[str, int, int]]  # of each file its path, size, time of change


def file_states(inputs: Inputs) -> FileStates:
    """Return the names, sizes and times of a run's files, without reading them."""
    paths: Sequence[object] = [inputs] if isinstance(inputs, str | Path) else list(inputs)
    states: set[tuple[str, int, int]] = set()
    for path in map(Path, map(str, paths)):
        for file in path.rglob("*") if path.is_dir() else [path]:
            try:
                facts = file.stat()
            except OSError:  # gone since it was listed, or no path of this machine
                continue
            if file.is_file() and len(states) < _MOST_FILES:
                states.add((str(file), facts.st_size, facts.st_mtime_ns))
    return frozenset(states)


@dataclass
class News:
    """What following a run found, in words for the visitor, and how often it was read anew."""

    version: int = 0
    text: str = ""


class Followed:
    """One run that is followed. Looked at again and again by whoever shows it."""

    def __init__(self, inputs: Inputs) -> None:
        self.inputs = inputs
        self._read = self._last = file_states(inputs)
        self._news = News()
        self._reading = False
        self._lock = threading.Lock()

    def look(self, read_anew: Callable[[], str]) -> News:
        """Return the news; files that changed and then rested between two looks are read by
        `read_anew`, in a thread of its own, which returns what went wrong, or nothing."""
        now = file_states(self.inputs)
        with self._lock:
            if self._reading or now == self._read:
                return self._news
            rested = now == self._last
            self._last = now
            if not rested:
                self._news = News(self._news.version, "files are being written …")
                return self._news
            self._reading = True
            new = len({path for path, _, _ in now} - {path for path, _, _ in self._read})
            what = f"{new} new file{'s' if new > 1 else ''}" if new else "files that changed"
            self._news = News(self._news.version, f"reading {what} …")
        threading.Thread(target=self._finish, args=(now, read_anew), daemon=True).start()
        return self._news

    def _finish(self, states: FileStates, read_anew: Callable[[], str]) -> None:
        problem = "the reading ended"
        try:
            problem = read_anew()
        finally:
            with self._lock:
                self._read = states
                self._reading = False
                text = f"not read: {problem}" if problem else f"{len(states)} files"
                self._news = News(self._news.version + (not problem), text)
