"""The cache: a parsed file's tables on disk, memory-mapped when it is opened again.

An entry is a folder named by what the file is (its identity), which code read it and how; it holds
a sealed file of the parsed tables, one for each table derived from them, and `meta.json`. What is
not as it was written is made anew. Entries appear whole (a rename) or not at all, so two processes
may work at once and a kill leaves nothing but a temporary folder, swept later.
"""

import hashlib
import json
import os
import shutil
import threading
import time
import zlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from htk.base.core.parser import Parsed, ParseOptions, Source
from htk.base.core.version import VERSION
from htk.base.errors import UsageError
from htk.base.io.cache_folder import cache_root
from htk.base.io.entry import PARSED, Entry, MemoryEntry, StoredEntry, warn_unkept
from htk.base.io.kept_bytes import KeptBytes
from htk.base.io.table_code import table_code
from htk.base.io.table_file import (
    ENDING,
    TableFolder,
    give_tables,
    is_ruin,
    list_folder,
    read_tables,
    size_of,
    sizes_inside,
)
from htk.base.io.temporary import (
    STALE_S,
    TEMPORARY,
    is_given_up,
    remove_path,
    temporary_folder,
    temporary_name,
)
from htk.base.io.unknown_files import UnknownFiles
from htk.base.mappings import Facts, Fields

DEFAULT_LIMIT_BYTES = 20 << 30
META = "meta.json"
_TRIES = 5
_SPARE_SHARE = 16  # of what may be kept; once this has run out, so much of it is freed


@dataclass(frozen=True)
class ListedEntry:
    """An entry, as `htk cache ls` shows it."""

    source: str
    size_bytes: int
    created: float
    last_used: float
    folder: Path
    is_joined: bool = False  # tables of other entries, which can be joined again


class Store:
    """Parsed files, found by their identity."""

    def __init__(self, root: Path | None = None, limit_bytes: int | None = None) -> None:
        self.root = root or cache_root()
        self.limit_bytes = limit_bytes if limit_bytes is not None else _read_limit()
        self.unknown = UnknownFiles(self.root)
        self._kept = KeptBytes(self.root)
        self._counting = threading.Lock()

    def __reduce__(self) -> tuple[object, ...]:
        """Sent to another process, it is a folder that both can read."""
        return Store, (self.root, self.limit_bytes)

    def key(self, source: Source, options: ParseOptions, plugins: Sequence[str] = ()) -> str:
        """Return the name of a file's entry; another file, reader or code has another name.

        `plugins` tells the code of parsers that other packages add. Which parser reads the file
        follows from its content and from that code, so that no parser is asked on a hit.
        """
        facts = [
            source.identity,
            source.file_name,  # some parsers read facts from it
            [VERSION, table_code(), *plugins],
            os.environ.get("HTK_ENGINE", ""),  # which of the two readers is asked for
            options.keep_unknown_arguments,
            options.time_unit,
            options.keep_overruns,
        ]
        return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:40]

    def find(self, key: str) -> Entry | None:
        """Return the entry, unless there is none or it is damaged (then it is dropped)."""
        folder = self.root / key
        try:
            entry = StoredEntry(folder, _read_meta(folder))
        except (FileNotFoundError, pa.ArrowException, ValueError, KeyError, TypeError):
            if folder.is_dir():
                self._remove(folder)
            return None
        except OSError:  # not ours to read, or the disk is ill
            return None
        with suppress(OSError):  # a cache that one may only read is a cache
            os.utime(folder / META)
        return entry

    def save(
        self, key: str, parsed: Parsed, source_name: str = "", *, is_joined: bool = False
    ) -> Entry:
        """Keep what was parsed; where the disk will not, it stays in memory, with a warning."""
        temporary = None
        try:
            self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
            temporary = temporary_folder(self.root)
            self._fill(temporary, key, parsed, {"source": source_name, "joined": is_joined})
            size = size_of(temporary)
            self._publish(temporary, self.root / key)
        except (OSError, pa.ArrowException) as error:
            warn_unkept(self.root, error)
            return MemoryEntry(parsed)
        finally:
            if temporary is not None:
                shutil.rmtree(temporary, ignore_errors=True)
        self._make_room(size, key)
        return self.find(key) or MemoryEntry(parsed)

    def find_all(self, key: str) -> Sequence[Entry] | None:
        """Return the entries of every process of a file, unless one of them is missing."""
        first = self.find(key)
        if not isinstance(first, StoredEntry):
            return None
        entries = [first, *(self.find(_of_process(key, k + 1)) for k in range(first.others))]
        return None if None in entries else [e for e in entries if e is not None]

    def save_all(self, key: str, parsed: Parsed, source_name: str = "") -> Sequence[Entry]:
        """Keep what was parsed of every process of a file; the first process comes last, so that
        an entry under `key` means that the others were written."""
        others = [
            self.save(_of_process(key, k), other, source_name)
            for k, other in enumerate(parsed.others, 1)
        ]
        return [self.save(key, parsed, source_name), *others]

    def size_bytes(self, key: str) -> int:
        """Return what a file's entries take, of all its processes; 0: it was not parsed yet."""
        folder = self.root / key
        if not (folder / META).is_file():
            return 0
        with suppress(OSError):  # another process removes it
            return size_of(folder) + sum(map(size_of, self.root.glob(f"{key}-*")))
        return 0

    def list(self) -> list[ListedEntry]:
        """Return what is kept, the last used first."""
        entries = []
        for folder in self._list_folders():
            try:
                meta = json.loads((folder / META).read_text())
                used = (folder / META).stat().st_mtime
                size = size_of(folder)
                source = meta["source"]
                created = meta["created"]
                is_joined = bool(meta.get("joined"))
                entries.append(ListedEntry(source, size, created, used, folder, is_joined))
            except (OSError, ValueError, KeyError, TypeError):
                continue  # being removed by another process
        return sorted(entries, key=lambda e: -e.last_used)

    def verify(self) -> tuple[int, Sequence[str]]:
        """Read every entry whole. Returns how many are as written, and what the others were made
        of: those are removed, so that the next look makes them anew."""
        intact = 0
        damaged = []
        for folder in list(self._list_folders()):
            try:
                _read_meta(folder)
                for path in {folder / f"{PARSED}{ENDING}", *folder.glob(f"*{ENDING}")}:
                    read_tables(path, folder.name, path.name, thorough=True)
                intact += 1
            except (OSError, pa.ArrowException, ValueError, KeyError, TypeError):
                if not (folder / META).is_file():
                    continue  # removed by another process
                damaged.append(_read_source_name(folder))
                self._remove(folder)
        return intact, damaged

    def clear(self) -> int:
        """Remove everything; says how many entries are gone."""
        folders = list(self._list_folders())
        for folder in folders:
            self._remove(folder)
        self.unknown.clear()
        self._kept.clear()
        self._sweep_leftovers(0)
        return len(folders) - len({*folders} & {*self._list_folders()})

    def _list_folders(self) -> Iterator[Path]:
        for folder in list_folder(self.root):
            if not folder.name.startswith(TEMPORARY) and (folder / META).is_file():
                yield folder

    def _fill(self, folder: Path, key: str, parsed: Parsed, facts: Facts) -> None:
        TableFolder(folder, key).write(PARSED, parsed.tables)
        meta = {
            **facts,
            "key": key,
            "created": time.time(),
            "rank": parsed.rank,
            "world_size": parsed.world_size,
            "facts": dict(parsed.facts),
            "others": len(parsed.others),
            "parser": parsed.parser,
        }
        _write_meta(folder, meta)

    def _publish(self, temporary: Path, target: Path) -> None:
        """Give the entry its name; whoever came first has it."""
        try:
            temporary.rename(target)
        except OSError:
            if not (target / META).is_file():
                raise

    def _remove(self, folder: Path) -> None:
        """Remove an entry: for everybody at once by a rename, then delete its files."""
        doomed = self.root / temporary_name()
        with suppress(OSError):
            folder.rename(doomed)
            for _ in range(_TRIES):  # another process may be writing the last file into it
                shutil.rmtree(doomed, ignore_errors=True)
                if not doomed.exists():
                    break

    def _make_room(self, added: int, keep: str) -> None:
        """Remove the least recently used, until the rest fits. What is there is counted seldom."""
        with self._counting:
            self._kept.add(added)
            kept = self._kept.read()
            if kept is not None and kept <= self.limit_bytes:
                return
            kept = self._sweep_leftovers(STALE_S)
            if kept > self.limit_bytes:
                # Some more than has to go, or every further entry would have all counted again.
                spare = self.limit_bytes // _SPARE_SHARE
                kept -= self._evict_entries(kept - self.limit_bytes + spare, keep)
            self._kept.count(kept)

    def _evict_entries(self, size: int, keep: str) -> int:
        """Remove entries of so many bytes, first those that were joined, then what was used longest
        ago; return how many bytes they took."""
        freed = 0
        for entry in sorted(reversed(self.list()), key=lambda e: not e.is_joined):
            if freed >= size:
                break
            if entry.folder.name != keep:
                self._remove(entry.folder)
                freed += entry.size_bytes
        return freed

    def _sweep_leftovers(self, older_than_s: float) -> int:
        """Remove what killed processes left, and entries whose description is gone; return how
        many bytes is left, with what is being written. Each folder is looked at once: there may be
        thousands, of dozens of files."""
        total = 0
        for folder in list_folder(self.root):
            sizes = sizes_inside(folder)
            if is_given_up(folder, older_than_s):
                remove_path(folder)
            elif is_ruin(folder.name, sizes):
                with suppress(OSError):
                    if time.time() - folder.stat().st_mtime >= older_than_s:
                        self._remove(folder)
            elif META in sizes or folder.name.startswith(TEMPORARY):
                unfinished = [name for name in sizes if name.startswith(TEMPORARY)]
                for left in (folder / name for name in unfinished):
                    if is_given_up(left, older_than_s):
                        remove_path(left)
                        del sizes[left.name]
                total += sum(sizes.values())
        return total


def _of_process(key: str, k: int) -> str:
    """Return the key of a file's k-th further process."""
    return f"{key}-{k}"


def _read_limit() -> int:
    setting = os.environ.get("HTK_CACHE_LIMIT")
    if not setting:
        return DEFAULT_LIMIT_BYTES
    if not setting.isdecimal():
        raise UsageError(f"HTK_CACHE_LIMIT is {setting!r}; expected a number of bytes")
    return int(setting)


def _read_meta(folder: Path) -> Fields:
    return meta_of((folder / META).read_bytes(), folder.name)


def meta_of(content: bytes, key: str) -> Fields:
    """Return what an entry says of itself; ValueError if that is not what was written."""
    meta = json.loads(content)
    if not isinstance(meta, dict) or "checksum" not in meta:
        raise ValueError(f"{key}: not what was written")
    if meta.pop("checksum") != _meta_checksum(meta) or meta["key"] != key:
        raise ValueError(f"{key}: not what was written")
    return meta


def give_entry(folder: Path, key: str) -> None:
    """Make a folder of tables the entry of another key."""
    meta = meta_of((folder / META).read_bytes(), folder.name) | {"key": key}
    for file in folder.glob(f"*{ENDING}"):
        give_tables(file, key)
    _write_meta(folder, meta)


def _write_meta(folder: Path, meta: Facts) -> None:
    sealed = dict(meta) | {"checksum": _meta_checksum(meta)}
    (folder / META).write_text(json.dumps(sealed))


def _read_source_name(folder: Path) -> str:
    """Return the name of the file an entry was made of, if that can be read still."""
    try:
        return str(json.loads((folder / META).read_text())["source"])
    except (OSError, ValueError, KeyError, TypeError):
        return folder.name


def _meta_checksum(meta: Facts) -> int:
    return zlib.crc32(json.dumps(meta, sort_keys=True).encode())
