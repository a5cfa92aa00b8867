"""The process that reads files from outside: one file after the other, each within its limits.

A request is a line of JSON. While a file is read, the bytes of one that has no path are asked of
the process that started this one. What was read, and every table that is made of it alone, is kept
in the cache and said to be there, or answered as Arrow streams. So is a table that is made of
several files, or of a part of them, whose names and tables the other process tells.
"""

import io
import json
import pickle
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import BinaryIO, cast

import pyarrow as pa
import pyarrow.ipc

from htk.base.core.parser import Parsed, ParseOptions, Source
from htk.base.core.process_limits import limit_cpu_seconds, limit_private_bytes, private_bytes
from htk.base.errors import HtkError, TraceError
from htk.base.io.entry import MemoryEntry
from htk.base.io.packed_entry import naming_damage, parsed_entry
from htk.base.io.raw_files import open_guarded
from htk.base.io.spill import Spill, columns_in_files
from htk.base.io.store import Store
from htk.base.mappings import Fields
from htk.traces.trace.file import make_tables
from htk.traces.trace.parsing import describe_damage, parse
from htk.traces.trace.trace import Trace

_BUFFER = 1 << 20
_PROGRESS_STEP = 4 << 20  # stored bytes between two words about it


def serve(requests: BinaryIO, answers: BinaryIO) -> None:
    """Read files until no more are asked for."""
    while line := requests.readline():
        request = json.loads(line)
        kind = _Making if "table" in request else _Reading
        kind(request, requests, answers).answer()


class _Reading:
    """One file: what was asked, and the pipes to who asked."""

    def __init__(self, request: Fields, requests: BinaryIO, answers: BinaryIO) -> None:
        self._request = request
        self._requests = requests
        self._answers = answers
        self._told = 0

    def answer(self) -> None:
        """Read the file and say what became of it."""
        request = self._request
        limit_cpu_seconds(request["cpu_seconds"])
        limit_private_bytes(private_bytes() + request["memory_bytes"])
        try:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                entries = self._read()
        except HtkError as error:
            self._send_facts({"failed": type(error).__name__, "why": str(error)})
        except (MemoryError, pa.ArrowMemoryError):
            _recordings.clear()
            _selected.clear()
            self._send_facts({"failed": "memory"})
        except Exception as error:  # of damage that a parser did not foresee
            self._send_facts(
                {"failed": "TraceError", "why": describe_damage(request["name"], error)}
            )
        else:
            warned = [str(w.message) for w in caught if issubclass(w.category, RuntimeWarning)]
            self._send(entries, warned)
        finally:
            limit_private_bytes(None)

    def _read(self) -> list[MemoryEntry]:
        """Return what the file holds, and what is made of it; nothing, if it lies in the cache now.

        All is made before any is kept: what cannot be made fails here, each time.
        """
        request = self._request
        if request["key"] is None:
            return _complete_entries(*self._parse_request(lambda table: table))
        store = _open_store(request["cache"], request["cache_limit"])
        with columns_in_files(store.root):
            name, parsed = self._parse_request(Spill(store.root))
            complete = _complete_entries(name, parsed)
            entries = store.save_all(request["key"], parsed, name)
            for entry, in_memory in zip(entries, complete, strict=True):
                for table_name, table in in_memory.made.items():
                    entry.derived(table_name, partial(lambda table: table, table))
        return complete if any(isinstance(entry, MemoryEntry) for entry in entries) else []

    def _parse_request(self, keep: Callable[[pa.Table], pa.Table]) -> tuple[str, Parsed]:
        """Return the name of the file, and what a parser reads of it or its entry of a store is."""
        request = self._request
        if request["entry"]:
            packed = Path(request["path"])
            with naming_damage(request["name"]):
                return parsed_entry(packed, request["entry"], packed.parent)
        options = ParseOptions(
            request["keep_unknown"],
            request["keep_overruns"],
            self._report_progress,
            request["time_unit"],
            keep,
        )
        return request["name"], parse(self._build_source(), options)

    def _build_source(self) -> Source:
        request = self._request
        path = None if request["path"] is None else Path(request["path"])
        open_ = self._open_served if path is None else partial(_open_path, path)
        name = request["name"]
        return Source(name, partial(open_guarded, name, open_), request["size"], path=path)

    def _report_progress(self, stored_bytes: int) -> None:
        if stored_bytes - self._told >= _PROGRESS_STEP:
            self._told = stored_bytes
            self._send_facts({"progress": stored_bytes})

    def _open_served(self) -> BinaryIO:
        opened = self.ask({"open": True})
        return io.BufferedReader(_Served(self, opened["number"], opened["seekable"]), _BUFFER)

    def ask(self, question: Fields) -> Fields:
        """Put a question about the file's bytes; what cannot be had is an error."""
        self._send_facts(question)
        reply: Fields = json.loads(self._requests.readline())
        if "error" in reply:
            raise TraceError(reply["error"])
        return reply

    def bytes_after(self, size: int) -> bytes:
        """Return the bytes that follow an answer."""
        return self._requests.read(size)

    def _send_facts(self, facts: Fields) -> None:
        self._answers.write(json.dumps(facts).encode() + b"\n")
        self._answers.flush()

    def _send(self, entries: list[MemoryEntry], warned: list[str]) -> None:
        named = [{**entry.tables, **entry.made} for entry in entries]
        tables = [_pack_table(name, table) for each in named for name, table in each.items()]
        sizes = iter([table.size for table in tables])
        facts = [
            {
                "tables": [[name, next(sizes)] for name in each],
                "rank": entry.parsed.rank,
                "world_size": entry.parsed.world_size,
                "facts": dict(entry.parsed.facts),
                "parser": entry.parsed.parser,
            }
            for each, entry in zip(named, entries, strict=True)
        ]
        self._send_facts({"recordings": facts, "warned": warned})
        for table in tables:
            self._answers.write(memoryview(table))
        self._answers.flush()


def _complete_entries(name: str, parsed: Parsed) -> list[MemoryEntry]:
    """Return what each process of a file recorded, with all that is made of it alone."""
    entries = [MemoryEntry(process) for process in (parsed, *parsed.others)]
    for entry in entries:
        make_tables(entry, name)
    return entries


class _Making(_Reading):
    """One table of a recording's files."""

    def _read(self) -> list[MemoryEntry]:
        name = self._request["table"]
        entry = MemoryEntry(Parsed({}))
        entry.made[name] = self._trace().tables[name]
        return [entry]

    def _trace(self) -> Trace:
        """Return the files and the part of them that is looked at, as they were left."""
        number = self._request["recording"]
        if number not in _recordings:
            _recordings.clear()
            _selected.clear()
            reply = self.ask({"recording": number})
            files, joined, began_ns = pickle.loads(self.bytes_after(reply["bytes"]))
            _recordings[number] = Trace(files, joined=joined, began_ns=began_ns)
        chosen = self._request["selection"]
        if chosen not in _selected:
            _selected.clear()
            selection = pickle.loads(bytes.fromhex(chosen))
            _selected[chosen] = replace(
                _recordings[number], selection=selection, unselected=_recordings[number]
            )
        return _selected[chosen]


_recordings: dict[int, Trace] = {}  # the last one, whole
_selected: dict[str, Trace] = {}  # the last part of it
_empty: dict[str, pa.Schema] = {}  # of tables that were sent with their schema before


def _pack_table(name: str, table: pa.Table) -> pa.Buffer:
    """Return a table as an Arrow stream; no bytes for an empty one that was sent before."""
    if not table.num_rows:
        if name in _empty and table.schema.equals(_empty[name], check_metadata=True):
            return pa.py_buffer(b"")
        _empty[name] = table.schema
    target = pa.BufferOutputStream()
    with pa.ipc.new_stream(target, table.schema) as stream:
        stream.write_table(table)
    return target.getvalue()


class _Served(io.RawIOBase):
    """A file whose bytes another process reads."""

    def __init__(self, reading: _Reading, number: int, seekable: bool) -> None:
        self._reading = reading
        self._number = number
        self._seekable = seekable
        self._offset = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return self._seekable

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        reply = self._reading.ask({"read": self._number, "size": len(buffer)})
        data = self._reading.bytes_after(reply["bytes"])
        buffer[: len(data)] = data
        self._offset += len(data)
        return len(data)

    def seek(self, offset: int, whence: int = 0) -> int:
        reply = self._reading.ask({"seek": self._number, "offset": offset, "whence": whence})
        self._offset = int(reply["offset"])
        return self._offset

    def tell(self) -> int:
        return self._offset

    def close(self) -> None:
        if not self.closed:
            self._reading.ask({"close": self._number})
        super().close()


def _open_path(path: Path) -> BinaryIO:
    return cast(BinaryIO, path.open("rb", buffering=0))


@cache
def _open_store(root: str, limit_bytes: int) -> Store:
    return Store(Path(root), limit_bytes)
