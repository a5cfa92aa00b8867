"""Tables of all files of a recording, kept as they were joined.

With a thousand small files, opening and joining the tables of each costs more than most questions;
of a recording that was asked before, one file a table is mapped.
"""

import hashlib
import json
import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import fields
from functools import cached_property, partial
from pathlib import Path

import pyarrow as pa

from htk.base.core.parser import Parsed
from htk.base.core.version import VERSION
from htk.base.io.entry import StoredEntry, warn_unkept
from htk.base.io.spill import arrays_in_files
from htk.base.io.store import Store
from htk.base.io.table_code import answer_code, package_code
from htk.base.mappings import NamedTables
from htk.base.spread.mapper import ThreadMapper
from htk.base.spread.workplace import Workplace
from htk.quantities.derived.registry import BY_RANK, OVER_RANKS, base_tables
from htk.traces.trace.file import TraceFile

_FEWEST_FILES = 32  # of fewer, joining costs less than keeping
_LARGEST_BYTES = 512 << 20  # of larger tables, most of the cost is in their rows
_LARGEST_ANSWER = 16 << 20  # bytes; what has more rows is asked for once
_SHARE_OF_CACHE = 32  # that one joined table may take
_LEAST_BYTES = 1 << 20  # of tables of a file whose totals are made, and kept, by themselves
_WORK_PER_BYTE = 4  # that answers take at most, of their tables
_SHARE_OF_ARRAYS = 4  # of the memory, for large arrays: what Arrow makes of tables takes as much
_SHARE_OF_MEMORY = 4  # the same: it is in memory once, to be written


def are_joined(files: Sequence[TraceFile]) -> bool:
    """Return whether the tables of these files are kept joined."""
    return len(_list_folders(files)) >= _FEWEST_FILES


def are_small(name: str, files: Sequence[TraceFile]) -> bool:
    """Return whether a table is made of so few rows of each file that calls cost more than rows:
    totals are made of joined tables then, and no threads wait for each other's calls."""
    if not files:
        return False
    reads = base_tables([name])
    size = sum(file.entry.size_bytes(table) for file in files for table in reads)
    return size < _LEAST_BYTES * len(files)


def _list_folders(files: Sequence[TraceFile]) -> list[Path]:
    """Return the folders of the files' entries; none where they are few or not all in the cache."""
    # The links of a user's GPUs decide what of a collective is not known. The variable is OWN_FILE
    # of models.hardware, which most questions need not import.
    if os.environ.get("HTK_GPUS"):
        return []
    folders = [file.entry.folder for file in files if isinstance(file.entry, StoredEntry)]
    return folders if len(folders) >= max(len(files), 2) else []


class JoinedTables:
    """Tables made of all files of a recording, each joined once and kept in the cache."""

    def __init__(self, store: Store, files: tuple[TraceFile, ...], work: Workplace) -> None:
        self._store = store
        self.files = files
        self._work = work

    def bounded(self) -> AbstractContextManager[None]:
        """Hold what is made in a block to the memory of the work, if it may take more than that."""
        if not self.exceeds_memory:
            return nullcontext()
        return arrays_in_files(self._store.root, self._work.limit_bytes // _SHARE_OF_ARRAYS)

    @cached_property
    def exceeds_memory(self) -> bool:
        """Whether joining the tables of all files may take more memory than the work is given."""
        sizes = (file.entry.size_bytes(name) for file in self.files for name in file.entry.tables)
        return _WORK_PER_BYTE * sum(sizes) > self._work.limit_bytes

    @cached_property
    def _largest_bytes(self) -> int:
        share = min(
            self._store.limit_bytes // _SHARE_OF_CACHE, self._work.limit_bytes // _SHARE_OF_MEMORY
        )
        return min(_LARGEST_BYTES, share)

    def table(self, name: str, make: Callable[[], pa.Table], tables: NamedTables) -> pa.Table:
        """Return a table as it was kept, else as it is made, which is kept unless it is large."""
        if name == "collective_matches":
            make = partial(self._matched_or, make, tables)
        if name in BY_RANK:
            make = partial(self._by_rank_or, name, make, tables)
        return self.kept(name, make)

    def kept(self, name: str, make: Callable[[], pa.Table]) -> pa.Table:
        """Return a table as it was kept, else as others make it."""
        if not self._is_kept(name) or self._entry is None:
            return make()
        return self._entry.derived(name, make, largest_bytes=self._largest_bytes)

    def answer(self, name: str, make: Callable[[], pa.Table]) -> pa.Table:
        """Return what a question about all files was answered before, else what it is now."""
        if not (len(self.files) >= _FEWEST_FILES or self._are_large) or self._answers is None:
            return make()
        return self._answers.derived(name, make, largest_bytes=_LARGEST_ANSWER)

    @property
    def keeps_events(self) -> bool:
        """Whether tables of events are kept joined, too: files are many, and fit in memory."""
        return len(self.files) >= _FEWEST_FILES and not self.exceeds_memory

    def _is_kept(self, name: str) -> bool:
        """Return whether a table is kept: of few files only what costs more to make than to keep,
        which is made of all of them, and of many events."""
        if len(self.files) >= _FEWEST_FILES:
            return True
        return name in OVER_RANKS and self._are_large

    @cached_property
    def _are_large(self) -> bool:
        sizes = (file.entry.size_bytes("kernels") for file in self.files)
        return sum(sizes) >= _LEAST_BYTES * len(self.files)

    def _matched_or(self, make: Callable[[], pa.Table], tables: NamedTables) -> pa.Table:
        matched = self._match_by_partition(tables)
        return make() if matched is None else matched

    def _by_rank_or(self, name: str, make: Callable[[], pa.Table], tables: NamedTables) -> pa.Table:
        """Return what is made of all ranks, rank by rank where each has many events."""
        if len(self.files) < 2 or not self._are_large:
            return make()
        from htk.traces.trace.by_rank import made_by_rank

        # Threads would hold the activities of several ranks at a time, for no less CPU time.
        mapper = self._work.mapper if self._work.is_elsewhere else ThreadMapper(1)
        rows = made_by_rank(name, self.files, tables, mapper)
        return make() if rows is None else rows

    def _match_by_partition(self, tables: NamedTables) -> pa.Table | None:
        """Return the matches of all collectives, made by partition; None: there are few enough to
        be matched at once."""
        if len(self.files) < 2 or not (self.exceeds_memory or self._work.is_elsewhere):
            return None
        from htk.traces.trace.matching import matched_by_partition, worth_partitions

        if not worth_partitions(self.files, self._work, exceeds_memory=self.exceeds_memory):
            return None
        windows = tables["rank_windows"]
        ranks = tables["ranks"]
        root = self._store.root
        try:
            return matched_by_partition(self.files, windows, ranks, self._work, root)
        except OSError as error:  # a full disk
            warn_unkept(root, error)
            return None

    @cached_property
    def _entry(self) -> StoredEntry | None:
        """The entry of the joined tables; None where files are few or are not in the cache."""
        return self._entry_of("files joined", package_code("traces/trace"))

    @cached_property
    def _answers(self) -> StoredEntry | None:
        """The entry of answers about all files; of the code of today, so that the cache may drop
        those of yesterday's."""
        return self._entry_of("files answered for", answer_code())

    def _entry_of(self, what: str, code: str) -> StoredEntry | None:
        folders = _list_folders(self.files)
        if not folders:
            return None
        key = self._build_key(folders, what, code)
        entry = self._store.find(key)
        if entry is None:
            source = f"{Path(self.files[0].file).parent}, {len(folders)} {what}"
            entry = self._store.save(key, Parsed({}), source, is_joined=True)
        return entry if isinstance(entry, StoredEntry) else None

    def _build_key(self, folders: Sequence[Path], *code: str) -> str:
        """Return a name that follows from the files' entries, from all else that their tables are
        made of, and from the code that makes what is kept."""
        names = [
            field.name
            for field in fields(TraceFile)
            if field.name not in ("entry", "execution", "stacks")
        ]
        facts = [[getattr(file, name) for name in names] for file in self.files]
        content = [[VERSION, *code], [folder.name for folder in folders], names, facts]
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:40]
