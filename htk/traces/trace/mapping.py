"""Parse a share of a recording's files into a store: a task of a Slurm array, a pod of a job.

Entries are named by content, so that shares may overlap, be run again, or be cut short.
"""

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path

from htk.base.core.parser import Source
from htk.base.errors import HtkError, TraceError, UsageError
from htk.base.io.entry import StoredEntry
from htk.base.io.remote import is_url
from htk.base.io.shared_store import SharedStore
from htk.base.io.sources import content_identity, rank_from_name, resolve_inputs
from htk.base.io.store import Store
from htk.base.spread.workplace import Workplace
from htk.traces.trace.file import FileRecording, make_tables
from htk.traces.trace.opening import (
    SIDECARS,
    Inputs,
    OpenOptions,
    key_of,
    parse_options,
    read_all,
    with_sample,
)
from htk.traces.trace.shares import NO_TRACE, ShareNote

_FILES_AT_A_TIME = 16  # parsed before they are stored: what is cut short loses no more
_TRIES = 3  # to store a file before the cache gives it up


@dataclass(frozen=True)
class Shard:
    """The `number`-th of `count` shares, from 1."""

    number: int = 1
    count: int = 1

    @classmethod
    def parsed(cls, text: str) -> "Shard":
        match = re.fullmatch(r"(\d{1,6})/(\d{1,6})", text.strip())
        if match is None or not 1 <= int(match[1]) <= int(match[2]):
            raise UsageError(f"shard {text!r}: expected a share such as 3/32, from 1/32 to 32/32")
        return cls(int(match[1]), int(match[2]))

    def take_share(self, sources: Sequence[Source]) -> list[Source]:
        """Return its share of the files: every count-th, so that neighbours are spread."""
        return list(sources[self.number - 1 :: self.count])


@dataclass(frozen=True)
class MappedFiles:
    """What became of a share's files."""

    stored: int
    there_before: int
    unread: tuple[str, ...]
    failed: tuple[tuple[str, str], ...]


def map_files(
    inputs: Inputs, address: str, shard: Shard, options: OpenOptions | None = None
) -> MappedFiles:
    """Parse a share of the files that the store at an address does not hold yet into it."""
    options = options or OpenOptions()
    if not address:
        raise UsageError("--store is empty; name the folder or URL to keep tables in")
    sources = [_named_by_content(s) for s in shard.take_share(resolve_inputs(with_sample(inputs)))]
    work = Workplace(options.on, options.memory_bytes)
    shared = SharedStore(address)
    shared.mark()
    cache = Store()
    there = set(shared.names())
    keys = {s.name: key_of(cache, s, parse_options(options)) for s in sources}
    note = ShareNote(_name_inputs(inputs), shard.number, shard.count, time.time(), keys)
    shared.note(note.name, note.packed())
    missing = [s for s in sources if keys[s.name] not in there]
    stored = 0
    unread = []
    failed = []
    for first in range(0, len(missing), _FILES_AT_A_TIME):
        batch = missing[first : first + _FILES_AT_A_TIME]
        read, strange, broken = read_all(batch, options, work)
        unread += strange
        failed += broken
        for source, recordings in groupby(read, key=lambda recording: recording.source):
            try:
                _put_recordings(shared, source, list(recordings), options, work)
                stored += 1
            except TraceError as error:
                failed.append((source.name, str(error)))
    strangers = (name for name in unread if not name.endswith(SIDECARS))
    left = dict.fromkeys(strangers, NO_TRACE) | dict(failed)
    there |= set(shared.names())
    kept = {name: key for name, key in keys.items() if key in there or name in left}
    shared.note(note.name, replace(note, keys=kept, left=left).packed())
    work.close()
    return MappedFiles(stored, len(sources) - len(missing), tuple(unread), tuple(failed))


def _name_inputs(inputs: Inputs) -> str:
    """Return what the shares of a run have in common, wherever they work."""
    names = [inputs] if isinstance(inputs, str | Path) else inputs
    return ", ".join(str(n) if is_url(str(n)) else str(Path(n).absolute()) for n in names)


def _named_by_content(source: Source) -> Source:
    """Return a file named by its content, and by the rank that its name or folder states: of two
    ranks whose files are alike, each has an entry."""
    try:
        content = content_identity(source)
    except HtkError:  # said when it is read
        return source
    rank = rank_from_name(source.name)
    identity = content if rank is None else f"{content}|{rank}"
    return replace(source, identity=identity)


def _put_recordings(
    shared: SharedStore,
    source: Source,
    recordings: Sequence[FileRecording],
    options: OpenOptions,
    work: Workplace,
) -> None:
    """Store the tables of a file. Where the cache had to make room for others, of this share or of
    another that uses it, the file is read again."""
    for _ in range(_TRIES):
        try:
            shared.put([_complete_recording(recording) for recording in recordings])
            return
        except FileNotFoundError:
            again, strange, broken = read_all([source], options, work)
            if strange or broken:  # it was changed since, or is gone
                raise TraceError(broken[0][1] if broken else f"{source.name}: changed") from None
            recordings = again
    raise TraceError(
        f"{source.name}: its tables do not stay in the cache until they are stored; raise "
        "HTK_CACHE_LIMIT, or give each share a cache of its own (HTK_CACHE_DIR)"
    )


def _complete_recording(recording: FileRecording) -> Path:
    """Return the folder of a file's tables, with those that are made of them file by file."""
    entry = recording.entry
    if not isinstance(entry, StoredEntry):
        raise TraceError(f"{recording.source.name}: cannot be kept on this machine's disk")
    make_tables(entry, recording.source.name)
    return entry.folder
