"""A store of parsed tables, opened as the recording that its entries were made of."""

from functools import partial
from pathlib import Path
from typing import BinaryIO

from htk.base.core.parser import Source
from htk.base.errors import TraceError
from htk.base.io.entry import StoredEntry
from htk.base.io.shared_store import SharedStore
from htk.base.io.store import Store
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
    cache = Store()
    keys = shared.names()
    if not keys:
        why = "was written by another version of htk" if shared.has_others() else "is empty"
        raise TraceError(f"{shared.address}: the store {why}; {AGAIN}")
    read: list[FileRecording] = []
    unread, failed = not_stored(notes_of(shared.notes()), keys)
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for key, outcome in zip(
            keys, pool.map(partial(_fetched, shared, cache), keys), strict=True
        ):
            if isinstance(outcome, TraceError):
                failed.append((f"{shared.address}/{key}", str(outcome)))
            else:
                read += outcome
    return read, unread, failed


def _fetched(shared: SharedStore, cache: Store, key: str) -> list[FileRecording] | TraceError:
    try:
        shared.fetch(key, cache)
    except TraceError as error:
        return error
    entries = cache.find_all(key)
    if entries is None or not isinstance(entries[0], StoredEntry):
        return TraceError(f"{shared.address}: entry {key} cannot be kept in {cache.root}")
    name = entries[0].source_name
    source = Source(name, partial(_not_here, name), identity=key)
    return [
        FileRecording(source, entry.parsed.parser, entry, process_of(entry, k))
        for k, entry in enumerate(entries)
    ]


def _not_here(name: str) -> BinaryIO:
    raise TraceError(f"{name}: the store holds its tables alone")
