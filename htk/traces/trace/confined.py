"""Files from outside (URLs, uploads, pickles, unsigned entries of stores, what the dashboard and
agents open), read in a process of its own with limits that hold; so is made what is made of them.

One process serves many files. Its end, by a limit or by the system, is one failed file: the next
one is read by a new process. Local files of other formats are read in this process, where limits
on sizes and ratios bound them.
"""

import json
import os
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import BinaryIO

import pyarrow as pa
import pyarrow.ipc

from htk.base import errors
from htk.base.core.child_process import ChildProcess, start_child
from htk.base.core.humanize import format_bytes, format_duration
from htk.base.core.parser import Parsed, ParseOptions, Source
from htk.base.errors import TraceError, UsageError
from htk.base.io.entry import Entry, MemoryEntry
from htk.base.io.store import Store
from htk.base.mappings import Facts, Fields
from htk.base.schema import TABLES

PICKLED = ("flight_recorder", "memory_snapshot")  # formats whose files may be pickles
SERVED = 2  # processes that a server holds ready: to read a recording, and for the one before
_FUNCTION = "htk.traces.trace.confined_child:serve"
_MOST_PROCESSES = 4
_FILES_A_PROCESS = 16
_BYTES_A_PROCESS = 64 << 20
_MOST_READ = 16 << 20  # bytes of a file handed over at once
_FREE_SECONDS, _BYTES_A_SECOND = 60.0, 50_000  # of stored bytes, by the slower engine
_FREE_MEMORY = 4 << 30
_MEMORY_A_BYTE = 16
_WALL = 3.0  # a processor is shared, disks and networks are waited for
_SECONDS = "HTK_PARSE_SECONDS"
_MEMORY = "HTK_PARSE_MEMORY"


@dataclass(frozen=True)
class ParseLimits:
    """What the reading of one file may take."""

    cpu_seconds: float
    memory_bytes: int

    @property
    def wall_seconds(self) -> float:
        return self.cpu_seconds * _WALL


def limits_of(stored_bytes: int) -> ParseLimits:
    """Return what a file of that size may take, unless the environment says otherwise."""
    return ParseLimits(
        _read_setting(_SECONDS) or _FREE_SECONDS + stored_bytes / _BYTES_A_SECOND,
        _read_setting(_MEMORY) or _FREE_MEMORY + _MEMORY_A_BYTE * stored_bytes,
    )


def _read_setting(variable: str) -> int | None:
    setting = os.environ.get(variable, "").strip()
    if setting and not (setting.isdigit() and int(setting)):
        unit = "seconds" if variable == _SECONDS else "bytes"
        raise UsageError(f"{variable} is {setting!r}; expected a number of {unit}")
    return int(setting) if setting else None


def is_from_outside(source: Source) -> bool:
    """Return whether a file comes from another machine: by a URL, in an archive or by a pipe."""
    return source.path is None


@dataclass(frozen=True)
class ConfinedTask:
    """What a process is asked for."""

    source: Source
    facts: Facts
    limits: ParseLimits
    progress: Callable[[int], None] | None = None
    recording: Callable[[], bytes] = bytes  # of which tables are made, as it travels
    done: str = "read"  # what becomes of it


_ready: list["_Reader"] = []  # processes that wait for a recording
_most_ready = 0


@contextmanager
def held_ready(count: int) -> Iterator[None]:
    """Start processes that outlast recordings, while this one has no other thread: it cannot be
    copied then, and a new one takes a second. They end with the block."""
    global _most_ready
    _most_ready = count
    try:
        start_ready()
        yield
    finally:
        _most_ready = 0
        while _ready:
            _ready.pop().stop()


def start_ready() -> None:
    """Start the processes that are to wait and do not."""
    while len(_ready) < _most_ready:
        _ready.append(_Reader())
        _ready[-1].start()


def _take_ready() -> "_Reader":
    with suppress(IndexError):
        return _ready.pop()
    return _Reader()


class ConfinedReaders:
    """The processes that work for one recording."""

    def __init__(self, expected: Sequence[Source]) -> None:
        """`expected`: files that they will be asked for, in so far as that is known."""
        stored = sum(source.size or 0 for source in expected)
        wanted = 1 + len(expected) // _FILES_A_PROCESS + stored // _BYTES_A_PROCESS
        most = min(wanted, _MOST_PROCESSES, os.cpu_count() or 1)
        self._free = threading.Semaphore(most)
        self._lock = threading.Lock()
        self._readers = [_take_ready() for _ in range(most)]
        self._idle = list(self._readers)
        self._stopped = False
        if expected:  # while no other thread runs: copies of this process start sooner
            for reader in self._readers:
                reader.start()

    def entries(
        self, source: Source, options: ParseOptions, store: Store | None, key: str | None
    ) -> Sequence[Entry]:
        """Return what a file holds, of each process and cycle; it is kept under the key."""
        limits = limits_of(source.size or 0)
        facts = _build_request(source, options, limits, store, key)
        answer = self.ask(ConfinedTask(source, facts, limits, options.progress))
        if answer is not None:
            return answer
        entries = None if store is None or key is None else store.find_all(key)
        if entries is None:  # room was made for files of others
            return self.entries(source, options, None, None)
        return entries

    def ask(self, task: ConfinedTask) -> Sequence[MemoryEntry] | None:
        """Return what a process answers; None: it lies in the cache."""
        with self._free:
            with self._lock:
                if self._stopped:
                    raise TraceError("stopped")
                reader = self._idle.pop()
            try:
                return reader.answer(task)
            finally:
                with self._lock:
                    self._idle.append(reader)

    def stop(self) -> None:
        """End every process, also of files that are being read: they fail, and no more are read.
        Those that have nothing to do may wait for another recording."""
        with self._lock:
            self._stopped = True
            idle = list(self._idle)
        for reader in self._readers:
            if reader in idle and len(_ready) < _most_ready:
                _ready.append(reader)
            else:
                reader.stop()


class _Reader:
    """One process, started again when it ended."""

    def __init__(self) -> None:
        self._process: ChildProcess | None = None
        self._empty: dict[str, pa.Table] = {}
        self._stopped = False

    def start(self) -> ChildProcess:
        """Return the running process."""
        if self._process is not None and self._process.alive():
            return self._process
        self._end()
        self._process = start_child(_FUNCTION, {})
        if self._stopped:  # meanwhile
            self._end()
            raise TraceError("stopped")
        return self._process

    def stop(self) -> None:
        self._stopped = True
        process = self._process
        if process is not None:
            process.kill()

    def _end(self) -> None:
        process = self._process
        self._process = None
        self._empty = {}
        if process is not None:
            process.kill()
            for pipe in (process.requests, process.answers):
                with suppress(OSError):
                    pipe.close()

    def answer(self, task: ConfinedTask) -> Sequence[MemoryEntry] | None:
        """Return what a file holds, or a table; None: it lies in the cache."""
        timed_out = threading.Event()
        process = self.start()

        def stop_all() -> None:
            timed_out.set()
            process.kill()

        clock = threading.Timer(task.limits.wall_seconds, stop_all)
        clock.daemon = True
        clock.start()
        talk = _Conversation(process, task, self._empty)
        try:
            talk.say(task.facts)
            return talk.answer()
        except _Ended:
            raise TraceError(_why_ended(task, timed_out.is_set())) from None
        finally:
            clock.cancel()
            talk.close()
            if not talk.is_over:  # the process ended, or what it says is no longer asked for
                self._end()


def _build_request(
    source: Source,
    options: ParseOptions,
    limits: ParseLimits,
    store: Store | None,
    key: str | None,
) -> Facts:
    return {
        "name": source.name,
        "size": source.size,
        "path": None if source.path is None else os.fspath(source.path),
        "keep_unknown": options.keep_unknown_arguments,
        "keep_overruns": options.keep_overruns,
        "time_unit": options.time_unit,
        "entry": options.entry,
        "key": key,
        "cache": None if store is None else os.fspath(store.root),
        "cache_limit": None if store is None else store.limit_bytes,
        "cpu_seconds": limits.cpu_seconds,
        "memory_bytes": limits.memory_bytes,
    }


class _Ended(Exception):
    """The process is gone."""


class _Conversation:
    """What is said between the two processes while one file is read."""

    def __init__(
        self, process: ChildProcess, task: ConfinedTask, empty: dict[str, pa.Table]
    ) -> None:
        self._process = process
        self._task = task
        self._empty = empty  # tables without rows that the process has sent before
        self._files: dict[int, BinaryIO] = {}
        self.is_over = False

    def say(self, facts: Facts, data: bytes = b"") -> None:
        try:
            self._process.requests.write(json.dumps(facts).encode() + b"\n" + data)
            self._process.requests.flush()
        except (OSError, ValueError):
            raise _Ended from None

    def answer(self) -> Sequence[MemoryEntry] | None:
        """Hand over bytes as they are asked for, until the answer is there."""
        while True:
            heard = self._hear_answer()
            if "progress" in heard:
                self._tell_progress(heard["progress"])
            elif "failed" in heard:
                self.is_over = True
                raise _build_failure(self._task, heard)
            elif "recordings" in heard:
                return self._read_recordings(heard)
            else:
                self._serve(heard)

    def _tell_progress(self, stored_bytes: int | None) -> None:
        if self._task.progress is not None and stored_bytes is not None:
            self._task.progress(stored_bytes)

    def _hear_answer(self) -> Fields:
        try:
            heard: Fields | None = json.loads(self._process.answers.readline() or b"null")
        except (OSError, ValueError):
            heard = None
        if heard is None:
            raise _Ended
        return heard

    def _read_recordings(self, heard: Facts) -> Sequence[MemoryEntry] | None:
        recordings = []
        for facts in heard["recordings"]:
            tables = {name: self._read_table(name, size) for name, size in facts.pop("tables")}
            parsed = Parsed({n: t for n, t in tables.items() if n in TABLES}, **facts)
            recordings.append(MemoryEntry(parsed))
            recordings[-1].made.update({n: t for n, t in tables.items() if n not in TABLES})
        for text in heard["warned"]:
            warnings.warn(text, RuntimeWarning, stacklevel=2)
        self.is_over = True
        self._tell_progress(self._task.source.size)
        return recordings or None

    def _read_table(self, name: str, size: int) -> pa.Table:
        """Return a table; one of no bytes is empty as it was before."""
        if not size:
            return self._empty[name]
        try:
            data = self._process.answers.read(size)
            table = pa.ipc.open_stream(pa.py_buffer(data)).read_all()
        except (OSError, ValueError):
            raise _Ended from None
        if not table.num_rows:
            self._empty[name] = table
        return table

    def _serve(self, heard: Facts) -> None:
        """Answer what the process asks about the file's bytes, or about its recording."""
        data = b""
        try:
            if "open" in heard:
                number = len(self._files)
                file = self._files[number] = self._task.source.open()
                facts: Fields = {"number": number, "seekable": file.seekable()}
            elif "read" in heard:
                data = self._files[heard["read"]].read(min(heard["size"], _MOST_READ)) or b""
                facts = {"bytes": len(data)}
            elif "seek" in heard:
                file = self._files[heard["seek"]]
                facts = {"offset": file.seek(heard["offset"], heard["whence"])}
            elif "recording" in heard:
                data = self._task.recording()
                facts = {"bytes": len(data)}
            else:
                self._files[heard["close"]].close()
                facts = {}
        except (OSError, ValueError, TraceError) as error:
            facts = {"error": str(error)}
            data = b""
        self.say(facts, data)

    def close(self) -> None:
        for file in self._files.values():
            with suppress(OSError, TraceError):
                file.close()


def _build_failure(task: ConfinedTask, heard: Facts) -> errors.HtkError:
    if heard["failed"] == "memory":
        most = format_bytes(task.limits.memory_bytes)
        return TraceError(
            f"{task.source.name}: not {task.done} within {most} of memory; set {_MEMORY} "
            "if the file is right"
        )
    kind = getattr(errors, heard["failed"], TraceError)
    return kind(heard["why"]) if issubclass(kind, errors.HtkError) else TraceError(heard["why"])


def _why_ended(task: ConfinedTask, timed_out: bool) -> str:
    limits = task.limits
    not_done = f"{task.source.name}: not {task.done}"
    if timed_out:
        most = format_duration(limits.wall_seconds * 1e9)
        return f"{not_done} within {most}; set {_SECONDS} if the file is right"
    return (
        f"{not_done}: its process was ended, at {limits.cpu_seconds:,.0f} s of processor time or "
        f"{format_bytes(limits.memory_bytes)} of memory; set {_SECONDS} or {_MEMORY} if the file "
        "is right"
    )
