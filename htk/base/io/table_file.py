"""Tables on disk: one file holds one or several, as Arrow streams, and after them an index and a
seal that say whose they are and what they held.

The seal holds the entry's key and the file's name (two files that were swapped differ), the length
(one that was cut differs) and a checksum (one that was changed differs).
"""

import hashlib
import json
import os
import struct
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa

from htk.base.io.null_columns import with_nulls, without_nulls
from htk.base.io.spill import begin_writing
from htk.base.io.temporary import TEMPORARY, boot_id, temporary_name
from htk.base.mappings import NamedTables

# What it is, whose, the length of all before the seal, that of the index, and a checksum of both.
_SEAL = struct.Struct("<8s16sQQI")
_MAGIC = b"htktabls"
_CHECKED = "checked.txt"
ENDING = ".arrow"
_IN_MEMORY = 4 << 20  # small tables go to the file in one piece, a larger one buffer by buffer
# Every event of a trace lies in a table of its kind, too; what asks for all of them takes longer
# than to decompress them. A large table stays mapped: decompressed, it would take memory.
SELDOM_READ = ("events",)
_LEAST_COMPRESSED = 64 << 10
MOST_COMPRESSED = 64 << 20
_RENAMED = 3  # of the facts of a file, those that a new name does not change
_UNWRITTEN = 256 << 20  # bytes of a file that hold memory until the system writes them
_ALIGNMENT = 64  # of buffers in memory, as Arrow recommends


class DamagedTable(ValueError):
    """A stored table is not what was written."""


@dataclass(frozen=True)
class StoredTables:
    """The tables of a file, mapped; none is read before it is asked for."""

    content: pa.Buffer
    index: Mapping[str, tuple[int, ...]]  # where each begins, its length, that of its whole schema

    def __getitem__(self, name: str) -> pa.Table:
        table = pa.ipc.open_stream(pa.BufferReader(self.stream(name))).read_all()
        start, length, *of_schema = self.index[name]
        end = start + length
        if not of_schema:
            return table
        schema = pa.ipc.read_schema(self.content[end : end + of_schema[0]])
        return with_nulls(table, schema)

    def stream(self, name: str) -> pa.Buffer:
        """Return the Arrow stream of a table."""
        start, length = self.index[name][:2]
        return self.content[start : start + length]


class _Summed:
    """A file that is written from its beginning to its end, and the checksum of what was."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._written = self.checksum = self._unwritten = 0
        self._small = pa.BufferOutputStream()  # what is still to be written
        self.closed = False

    @property
    def length(self) -> int:
        return self._written + int(self._small.tell())

    def write(self, content: bytes | pa.Buffer) -> int:
        """Write at once; small pieces before it must be in the file."""
        self._file.write(content)
        self.checksum = compute_checksum(content, self.checksum)
        size = len(content)
        self._written += size
        self._unwritten += size
        if self._unwritten >= _UNWRITTEN:
            self._unwritten = 0
            begin_writing(self._file)
        return size

    def flush(self) -> None: ...

    def add_bytes(self, content: bytes) -> None:
        self._small.write(content)

    def add(self, table: pa.Table, *, compress: bool = False) -> tuple[int, ...]:
        """Write a table, as aligned as a mapped file; return where it is, its length and, where
        columns that hold nothing were left out, that of its schema."""
        recorded = without_nulls(table)
        is_worth_it = _LEAST_COMPRESSED < recorded.get_total_buffer_size() < MOST_COMPRESSED
        start, length = self._add(recorded, "lz4" if compress and is_worth_it else None)
        if recorded.num_columns == table.num_columns:
            return start, length
        schema = table.schema.serialize()
        self.add_bytes(schema)
        return start, length, len(schema)

    def _add(self, table: pa.Table, compression: str | None) -> tuple[int, int]:
        self.add_bytes(bytes(-self.length % _ALIGNMENT))
        start = self.length
        batches = table.to_batches()
        if len(batches) > 1:
            batches = table.unify_dictionaries().combine_chunks().to_batches()
        sink: Any = self._small
        if table.get_total_buffer_size() > _IN_MEMORY:
            self.pour()
            sink = pa.PythonFile(self, "w")
        options = pa.ipc.IpcWriteOptions(compression=compression)
        with pa.ipc.RecordBatchStreamWriter(sink, table.schema, options=options) as writer:
            for batch in batches:
                writer.write_batch(batch)
        if self._small.tell() > _IN_MEMORY:
            self.pour()
        return start, self.length - start

    def pour(self) -> None:
        """Write the small pieces: a hundred of them in one."""
        content = self._small.getvalue()
        self._small = pa.BufferOutputStream()
        self.write(content)


def write_tables(path: Path, tables: NamedTables, key: str, file_name: str) -> None:
    """Write tables, their index and the seal, of a file that will be called `file_name`."""
    with path.open("wb") as file:
        content = _Summed(file)
        index = {
            name: content.add(table, compress=name in SELDOM_READ) for name, table in tables.items()
        }
        listed = json.dumps(index).encode()
        content.add_bytes(listed)
        content.pour()
        owner = _hash_owner(key, file_name)
        file.write(_SEAL.pack(_MAGIC, owner, content.length, len(listed), content.checksum))


def read_tables(path: Path, key: str, file_name: str, *, thorough: bool) -> StoredTables:
    """Map the tables of a file. Its seal, its length and its index are looked at always, its
    checksum where `thorough`."""
    with pa.memory_map(str(path)) as mapped:
        stored = mapped.read_buffer()
    length = stored.size - _SEAL.size
    if length < 0:
        raise DamagedTable(f"{path}: {stored.size} bytes, expected tables and their seal")
    magic, owner, sealed_length, index_length, sealed_checksum = _SEAL.unpack(stored[length:])
    if (magic, owner, sealed_length) != (_MAGIC, _hash_owner(key, file_name), length):
        raise DamagedTable(f"{path}: not the tables that were written")
    content = stored[:length]
    if thorough and compute_checksum(content) != sealed_checksum:
        raise DamagedTable(f"{path}: its checksum differs from the one written")
    listed = json.loads(content[max(length - index_length, 0) :].to_pybytes())
    if not isinstance(listed, dict):
        raise DamagedTable(f"{path}: no index of its tables")
    return StoredTables(content, {name: tuple(facts) for name, facts in listed.items()})


def give_tables(path: Path, key: str) -> None:
    """Make a file of tables one of another entry's."""
    with path.open("r+b") as file:
        file.seek(len(_MAGIC) - _SEAL.size, os.SEEK_END)
        file.write(_hash_owner(key, path.name))


def compute_checksum(content: bytes | pa.Buffer, before: int = 0) -> int:
    """Return the CRC-32 of bytes, at the speed of memory; `before`: that of what comes first."""
    from isal import isal_zlib  # not imported where every table was checked before

    return int(isal_zlib.crc32(content, before))


class TableFolder:
    """The files of an entry's folder, each checked whole once in a boot of the machine.

    What was checked is noted with what the file system says of its last change, so that a file that
    somebody wrote to since is checked again.
    """

    def __init__(self, folder: Path, key: str) -> None:
        self.folder = folder
        self._key = key
        self._checked = _read_notes(folder / _CHECKED)

    def holds(self, file: str) -> bool:
        return (self.folder / f"{file}{ENDING}").exists()

    def read(self, file: str) -> StoredTables:
        """Map the tables of a file; DamagedTable or an error of Arrow's or the system's if it is
        not what was written."""
        path = self.folder / f"{file}{ENDING}"
        changed = _last_change(path)  # before it is read: who writes now is seen the next time
        is_checked = self._checked.get(file) == changed
        tables = read_tables(path, self._key, path.name, thorough=not is_checked)
        if not is_checked:
            self._note_right(file, changed)
        return tables

    def write(self, file: str, tables: NamedTables) -> None:
        """Keep tables in a file; it appears whole or not at all."""
        path = self.folder / f"{file}{ENDING}"
        temporary = self.folder / temporary_name()
        try:
            write_tables(temporary, tables, self._key, path.name)
            written = _last_change(temporary)
            temporary.replace(path)
        except BaseException:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise
        changed = _last_change(path)
        if changed[:_RENAMED] == written[:_RENAMED]:
            self._note_right(file, changed)

    def _note_right(self, file: str, changed: list[str]) -> None:
        """Note that a file was found right. Where that fails it is checked again, no more."""
        self._checked[file] = changed
        words = " ".join([boot_id(), file, *changed])
        line = f"\n{words}\n"  # one of its own after half a one
        with suppress(OSError), (self.folder / _CHECKED).open("ab", buffering=0) as notes:
            notes.write(line.encode())


def _read_notes(path: Path) -> dict[str, list[str]]:
    """Return what was noted since the machine started, a line for each file; nothing where that
    cannot be read."""
    try:
        lines = path.read_text("ascii").splitlines()
    except (OSError, ValueError):
        return {}
    boot = boot_id()
    noted = [line.split(" ") for line in lines]
    return {words[1]: words[2:] for words in noted if len(words) > 2 and words[0] == boot}


def _last_change(path: Path) -> list[str]:
    facts = path.stat()
    return [str(n) for n in (facts.st_ino, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns)]


def _hash_owner(key: str, name: str) -> bytes:
    return hashlib.sha256(f"{key}/{name}".encode()).digest()[:16]


def list_folder(folder: Path) -> list[Path]:
    """Return what a folder holds; nothing, if another process removed it."""
    try:
        return list(folder.iterdir())
    except OSError:
        return []


def sizes_inside(folder: Path) -> dict[str, int]:
    """Return the files of a folder and how many bytes each is; none, if there is no such folder."""
    sizes = {}
    with suppress(OSError), os.scandir(folder) as files:
        for file in files:
            with suppress(FileNotFoundError):  # it was given its name, or was removed
                sizes[file.name] = file.stat().st_size
    return sizes


def size_of(folder: Path) -> int:
    """Return how many bytes the files of a folder are."""
    return sum(sizes_inside(folder).values())


def is_ruin(name: str, files: Collection[str]) -> bool:
    """Return whether a folder of this name holds tables and no description of them: an entry that
    was damaged. What is not htk's stays."""
    if name.startswith(TEMPORARY) or not files:
        return False
    return all(file.endswith(ENDING) or file == _CHECKED for file in files)
