"""The process that answers queries of one run: started, killed and started again from here."""

import json
import os
import re
import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from contextvars import ContextVar, copy_context
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import pyarrow as pa
import pyarrow.ipc

from htk.base.core.child_process import ChildProcess, start_child
from htk.base.core.extras import require_extra
from htk.base.errors import HtkError, UsageError
from htk.base.mappings import Facts, NamedTables

# Set by whoever asked a query and no longer wants its answer.
cancelled: ContextVar[threading.Event | None] = ContextVar("cancelled", default=None)

MOST_WORKERS = 4  # at once; the one used longest ago is ended
_GRACE_S = 2.0  # DuckDB stops at the next vector; what does not is killed
_LOOK_S = 0.05  # how often a query looks whether it is still wanted
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?)(i?)B\s*", re.IGNORECASE)
_POWER = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}


# What stands for the parameters of a query: `?` in their order, or $name.
QueryValues = Sequence[Any] | Facts


@dataclass(frozen=True)
class Limits:
    """The time and memory that a query may take before it is stopped."""

    seconds: float = 60.0
    memory: str = "4GB"

    @property
    def memory_bytes(self) -> int:
        """The memory limit in bytes."""
        match = _SIZE.fullmatch(self.memory)
        if match is None or not float(match[1]):
            raise UsageError(f"--memory {self.memory}: expected a size such as 4GB or 500MB")
        base = 1024 if match[3] else 1000
        return int(float(match[1]) * base ** _POWER[match[2].upper()])


class Refusal(HtkError):
    """The process gave no answer: a kind of reason, and the reason."""

    def __init__(self, kind: str, why: str = "") -> None:
        super().__init__(why)
        self.kind = kind
        self.why = why


class QueryWorker:
    """One process with the relations of one run. It answers one query at a time."""

    def __init__(self, memory_bytes: int, dataset: Mapping[str, str]) -> None:
        self._opening = {
            "memory_bytes": memory_bytes,
            "macros": build_macros(),
            "dataset": dict(dataset),
        }
        self._lock = threading.Lock()
        self._process: ChildProcess | None = None
        self._sent: dict[str, weakref.ref[pa.Table]] = {}

    @property
    def memory_bytes(self) -> int:
        return int(str(self._opening["memory_bytes"]))

    @property
    def busy(self) -> bool:
        """Whether a query is being answered."""
        return self._lock.locked()

    def query(
        self,
        text: str,
        relations: NamedTables,
        seconds: float,
        values: QueryValues = (),
    ) -> pa.Table:
        """Return the answer to a query over these relations, or raise Refusal.

        While another query is answered it waits: that ends at its own time limit.
        """
        while not self._lock.acquire(timeout=_LOOK_S):
            if is_cancelled():
                raise Refusal("cancelled")
        try:
            process = self._start_process()
            try:
                self._send_changed(process, relations)
                request = {"text": text, "seconds": seconds, "values": values}
                return _ask_worker(process, request)
            except BaseException as error:  # an interrupt too leaves an answer half read
                if not isinstance(error, Refusal) or error.kind in ("killed", "died"):
                    self._end()
                if isinstance(error, BrokenPipeError):
                    raise Refusal("died") from None
                raise
        finally:
            self._lock.release()

    def close(self) -> None:
        """End the process, whatever it does."""
        process = self._process
        if process is not None:
            process.kill()

    def _start_process(self) -> ChildProcess:
        if self._process is None or not self._process.alive():
            self._end()
            self._process = start_child("htk.verdicts.query.engine:serve", {"HOME": os.devnull})
            _send_request(self._process, {"do": "start", "with": self._opening})
        return self._process

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()
        self._process = None
        self._sent = {}

    def _send_changed(self, process: ChildProcess, relations: NamedTables) -> None:
        for name, table in relations.items():
            sent = self._sent.get(name)
            if sent is not None and sent() is table:
                continue
            _send_request(process, {"do": "relation", "name": name})
            with pa.ipc.new_stream(process.requests, table.schema) as stream:
                stream.write_table(table)
            process.requests.flush()
            self._sent[name] = weakref.ref(table)


_workers: OrderedDict[int, QueryWorker] = OrderedDict()
_workers_lock = threading.Lock()


def worker_of(run: Any, memory_bytes: int, dataset: Mapping[str, str]) -> QueryWorker:
    """Return the worker of a run, whatever is selected of it; it ends with the run."""
    require_extra("sql", "SQL")
    key = id(run)
    with _workers_lock:
        worker = _workers.get(key)
        if worker is None or (worker.memory_bytes != memory_bytes and not worker.busy):
            if worker is None:
                weakref.finalize(run, _forget_worker, key).atexit = False
            else:
                worker.close()
            worker = _workers[key] = QueryWorker(memory_bytes, dataset)
        _workers.move_to_end(key)
        idle = [other for other, each in _workers.items() if other != key and not each.busy]
        while len(_workers) > MOST_WORKERS and idle:
            _workers.pop(idle.pop(0)).close()
    return worker


def is_cancelled() -> bool:
    """Return whether nobody wants the answer to the query at hand any more."""
    event = cancelled.get()
    return event is not None and event.is_set()


def build_macros() -> str:
    """Return the SQL of the macros that every query may use."""
    return files("htk.verdicts.query").joinpath("macros.sql").read_text(encoding="utf-8")


def _forget_worker(key: int) -> None:
    worker = _workers.pop(key, None)
    if worker is not None:
        worker.close()


def _ask_worker(process: ChildProcess, query: Facts) -> pa.Table:
    """Send a query and read its answer, until the time for both is over."""
    answered = threading.Event()
    killed = threading.Event()

    def watch_deadline() -> None:
        ends = time.monotonic() + query["seconds"] + _GRACE_S
        while not answered.wait(_LOOK_S):
            if time.monotonic() > ends or is_cancelled():
                killed.set()
                process.kill()
                return

    threading.Thread(target=copy_context().run, args=[watch_deadline], daemon=True).start()
    try:
        _send_request(process, {"do": "query", **query})
        reply = json.loads(process.answers.readline() or b"null")
        if reply is None:
            raise Refusal("killed" if killed.is_set() else "died")
        if "refused" in reply:
            raise Refusal(reply["refused"], reply["why"])
        return pa.ipc.open_stream(process.answers).read_all()
    except (OSError, ValueError) as error:  # the process ended within an answer
        raise Refusal("killed" if killed.is_set() else "died") from error
    finally:
        answered.set()


def _send_request(process: ChildProcess, request: Facts) -> None:
    process.requests.write(json.dumps(request).encode() + b"\n")
    process.requests.flush()
