"""A store of parsed tables, opened as the recording that its entries were made of."""

from functools import partial
from pathlib import Path
from typing import BinaryIO

from htk.base.core.parser import ParseOptions, Source
from htk.base.errors import HtkError, TraceError
from htk.base.io.entry import StoredEntry
from htk.base.io.shared_store import SharedStore
from htk.base.io.store import Store
from htk.base.io.store_key import is_unsigned_asked_for
from htk.traces.trace.confined import ConfinedReaders
from htk.traces.trace.file import FileRecording, process_of
from htk.traces.trace.shares import AGAIN, not_stored, notes_of

_AT_ONCE = 16  # copies from a bucket: it is waited for, not worked for


def stored_recordings(
    inputs: object,
) -> tuple[list[FileRecording], list[str], list[tuple[str, str]]] | None:
    """Return what the entries of a store hold, what of them cannot be used, and what shares have
    not stored, as the reading of files does; None where the inputs name no store."""
    shared = SharedStore.at(str(inputs)) if isinstance(inputs, str | Path) else None
    if shared is None:
        return None
    shared.require_key()
    cache = Store()
    keys = shared.names()
    if not keys:
        why = "was written by another version of htk" if shared.has_others() else "is empty"
        raise TraceError(f"{shared.address}: the store {why}; {AGAIN}")
    read: list[FileRecording] = []
    unread, failed = not_stored(notes_of(shared.notes()), keys)
    from concurrent.futures import ThreadPoolExecutor

    readers = ConfinedReaders([])
    fetched = partial(_fetch_recordings, shared, cache, readers)
    try:
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            for key, outcome in zip(keys, pool.map(fetched, keys), strict=True):
                if isinstance(outcome, HtkError):
                    failed.append((f"{shared.address}/{key}", str(outcome)))
                else:
                    read += outcome
    finally:
        readers.stop()
    return read, unread, failed


def _fetch_recordings(
    shared: SharedStore, cache: Store, readers: ConfinedReaders, key: str
) -> list[FileRecording] | HtkError:
    own = shared.cache_key(key)
    try:
        if is_unsigned_asked_for():
            _fetch_unsigned(shared, cache, readers, key)
        else:
            shared.fetch(key, cache)
    except HtkError as error:
        return error
    entries = cache.find_all(own)
    if entries is None or not isinstance(entries[0], StoredEntry):
        return TraceError(f"{shared.address}: entry {key} cannot be kept in {cache.root}")
    name = entries[0].source_name
    source = Source(name, partial(_not_here, name), identity=own)
    return [
        FileRecording(source, entry.parsed.parser, entry, process_of(entry, k))
        for k, entry in enumerate(entries)
    ]


def _fetch_unsigned(shared: SharedStore, cache: Store, readers: ConfinedReaders, key: str) -> None:
    """Copy an entry that anybody may have written into the cache: unpacked, checked and written
    anew in a process with limits."""
    own = shared.cache_key(key)
    if cache.find_all(own) is None:
        with shared.copied(key, cache) as packed:
            name = shared.name_of(key)
            size = packed.stat().st_size
            source = Source(name, partial(_not_here, name), size, path=packed)
            readers.entries(source, ParseOptions(entry=key), cache, own)


def _not_here(name: str) -> BinaryIO:
    raise TraceError(f"{name}: the store holds its tables alone")
