"""A table on disk: an Arrow file, and after it a seal that says whose it is and what it held.

The seal holds the entry's key and the table's name (two files that were swapped differ), the length
(one that was cut differs) and a checksum (one that was changed differs).
"""

import hashlib
import json
import os
import struct
import threading
from contextlib import suppress
from functools import cache
from pathlib import Path

import pyarrow as pa

_SEAL = struct.Struct("<8s16sQI")  # what it is, whose, length of the table, checksum
_MAGIC = b"htktable"
_CHECKED = "checked.json"
TEMPORARY = ".new-"  # how files and folders are called that are not whole yet


class DamagedTable(ValueError):
    """A stored table is not what was written."""


def write_table(path: Path, table: pa.Table, key: str, name: str) -> None:
    """Write a table and its seal."""
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table.unify_dictionaries().combine_chunks())
    with pa.memory_map(str(path)) as mapped:
        content = mapped.read_buffer()
    seal = _SEAL.pack(_MAGIC, _owner(key, name), content.size, checksum(content))
    with path.open("ab") as end:
        end.write(seal)


def read_table(path: Path, key: str, name: str, *, thorough: bool) -> pa.Table:
    """Map a table. Its seal, its length and its footer are looked at always, its checksum where
    `thorough`."""
    with pa.memory_map(str(path)) as mapped:
        stored = mapped.read_buffer()
    length = stored.size - _SEAL.size
    if length < 0:
        raise DamagedTable(f"{path}: {stored.size} bytes, expected a table and its seal")
    magic, owner, sealed_length, sealed_checksum = _SEAL.unpack(stored[length:])
    if (magic, owner, sealed_length) != (_MAGIC, _owner(key, name), length):
        raise DamagedTable(f"{path}: not the table {name} that was written")
    content = stored[:length]
    if thorough and checksum(content) != sealed_checksum:
        raise DamagedTable(f"{path}: its checksum differs from the one written")
    return pa.ipc.open_file(pa.BufferReader(content)).read_all()


def checksum(content: bytes | pa.Buffer) -> int:
    """Return the CRC-32 of bytes, at the speed of memory."""
    from isal import isal_zlib  # not imported where every table was checked before

    return int(isal_zlib.crc32(content))


class TableFolder:
    """The tables of an entry's folder, each checked whole once in a boot of the machine.

    What was checked is noted with what the file system says of its last change, so that a file that
    somebody wrote to since is checked again.
    """

    def __init__(self, folder: Path, key: str) -> None:
        self.folder, self._key = folder, key
        self._checked = _noted(folder / _CHECKED)
        self._noted = dict(self._checked)

    def read(self, name: str) -> pa.Table:
        """Map a table; DamagedTable or an error of Arrow's if it is not what was written."""
        path = self.folder / f"{name}.arrow"
        changed = _last_change(path)  # before it is read: who writes now is seen the next time
        table = read_table(path, self._key, name, thorough=self._checked.get(name) != changed)
        self._checked[name] = changed
        return table

    def write(self, name: str, table: pa.Table) -> None:
        """Keep a table; it appears whole or not at all."""
        temporary = self._temporary(name)
        try:
            write_table(temporary, table, self._key, name)
            temporary.replace(self.folder / f"{name}.arrow")
        finally:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)

    def note(self) -> None:
        """Note which tables were found right. Where that fails they are checked again, no more."""
        if self._checked == self._noted:
            return
        self._noted = dict(self._checked)
        temporary = self._temporary(_CHECKED)
        with suppress(OSError):
            temporary.write_text(json.dumps({"boot": _boot(), "checked": self._noted}))
            temporary.replace(self.folder / _CHECKED)

    def _temporary(self, name: str) -> Path:
        return self.folder / f"{TEMPORARY}{name}-{os.getpid()}-{threading.get_ident()}"


def _noted(path: Path) -> dict[str, list[int]]:
    """Return what was noted since the machine started; nothing where that cannot be read."""
    try:
        noted = json.loads(path.read_text())
        return dict(noted["checked"]) if noted["boot"] == _boot() else {}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def _last_change(path: Path) -> list[int]:
    facts = path.stat()
    return [facts.st_ino, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns]


@cache
def _boot() -> str:
    """Return what tells one start of the machine from the next, where the system says it."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _owner(key: str, name: str) -> bytes:
    return hashlib.sha256(f"{key}/{name}".encode()).digest()[:16]


def inside(folder: Path) -> list[Path]:
    """Return what a folder holds; nothing, if another process removed it."""
    try:
        return list(folder.iterdir())
    except OSError:
        return []


def is_ruin(folder: Path) -> bool:
    """Return whether a folder holds tables and no description of them: an entry that was damaged.

    What is not htk's stays.
    """
    if folder.name.startswith(TEMPORARY) or not folder.is_dir():
        return False
    names = [path.name for path in inside(folder)]
    return bool(names) and all(n.endswith(".arrow") or n == _CHECKED for n in names)
