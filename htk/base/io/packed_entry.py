"""What one file was parsed to, of all its processes, in one object of a store: a ZIP archive, not
compressed, of folders as the cache has them. Nothing in it is believed before it is checked."""

import re
import shutil
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from htk.base.core.parser import Parsed
from htk.base.errors import TraceError
from htk.base.io.entry import PARSED
from htk.base.io.raw_files import spell_reason
from htk.base.io.store import META, give_entry, meta_of
from htk.base.io.table_file import ENDING, MOST_COMPRESSED, SELDOM_READ, StoredTables, read_tables
from htk.base.mappings import Facts
from htk.base.schema import DERIVED, TABLES

_MEMBER = re.compile(r"([0-9a-f]{40})(-\d{1,6})?/([\w-]{1,100}\.arrow|meta\.json)")
_RECORD_BATCH, _DICTIONARY_BATCH = 3, 2  # kinds of an Arrow message
_HEADER, _BATCH_OF_DICTIONARY, _BUFFERS, _COMPRESSION = 2, 1, 2, 3  # fields of its tables
_BUFFER = struct.Struct("<qq")  # where one lies, and its length


@contextmanager
def naming_damage(entry: str) -> Iterator[None]:
    """Raise a TraceError for whatever an entry that is not what was written leads to."""
    import zipfile  # not needed where the inputs name no store

    kinds = (ValueError, KeyError, TypeError, OSError, IndexError, struct.error)
    try:
        yield
    except (*kinds, zipfile.BadZipFile, pa.ArrowException) as error:
        if isinstance(error, MemoryError):  # Arrow's own kind is both
            raise
        raise TraceError(
            f"{entry} is not what was written ({spell_reason(error)}); remove it and run htk map "
            "again"
        ) from error


def pack_entry(folders: Sequence[Path], target: Path) -> None:
    """Write the cache's folders of one file, that of its first process first, into an archive."""
    import zipfile

    with zipfile.ZipFile(target, "w") as archive:
        for folder in folders:
            for file in (*sorted(folder.glob(f"*{ENDING}")), folder / META):
                archive.write(file, f"{folder.name}/{file.name}")


def unpack_entry(packed: Path, key: str, target: Path) -> list[Path]:
    """Unpack the folders of one file, and nothing else, and check them; the first process comes
    first."""
    import zipfile

    folders = set()
    with zipfile.ZipFile(packed) as archive:
        members = archive.infolist()
        if sum(member.file_size for member in members) > packed.stat().st_size:
            raise ValueError("its members overlap")
        for member in members:
            match = _MEMBER.fullmatch(member.filename)
            if match is None or match[1] != key or member.compress_type != zipfile.ZIP_STORED:
                raise ValueError(f"member {member.filename[:200]!r}")
            folder = target / (match[1] + (match[2] or ""))
            folder.mkdir(exist_ok=True)
            folders.add(folder)
            with archive.open(member) as content, (folder / match[3]).open("xb") as file:
                shutil.copyfileobj(content, file)
    for folder in folders:
        _check_entry(folder)
    return sorted(folders, key=lambda folder: (len(folder.name), folder.name))


def adopt_entry(folders: Sequence[Path], key: str, root: Path) -> None:
    """Move checked folders into the cache, under the key that they have there."""
    for folder in reversed(folders):  # the first process tells of the others: it comes last
        own = key + folder.name[len(key) :]
        if not (root / own).exists():
            give_entry(folder, own)
            folder.rename(root / own)


def parsed_entry(packed: Path, key: str, target: Path) -> tuple[str, Parsed]:
    """Return the name of the file of which an entry was made, and what the parser read of it; what
    was derived of that is left out."""
    folders = unpack_entry(packed, key, target)
    metas = [meta_of((folder / META).read_bytes(), folder.name) for folder in folders]
    first, *others = [
        _read_parsed(folder, meta) for folder, meta in zip(folders, metas, strict=True)
    ]
    return str(metas[0]["source"]), replace(first, others=tuple(others))


def _read_parsed(folder: Path, meta: Facts) -> Parsed:
    stored = read_tables(folder / f"{PARSED}{ENDING}", folder.name, PARSED + ENDING, thorough=False)
    tables = {name: stored[name] for name in stored.index}
    return Parsed(tables, meta["rank"], meta["world_size"], meta["facts"], parser=meta["parser"])


def _check_entry(folder: Path) -> None:
    """Refuse an entry whose tables are not those that were written, or could not have been."""
    meta_of((folder / META).read_bytes(), folder.name)
    for file in {folder / f"{PARSED}{ENDING}", *folder.glob(f"*{ENDING}")}:
        stored = read_tables(file, folder.name, file.name, thorough=True)
        for name in stored.index:
            _check_size(stored, name)
            table = stored[name]
            table.validate(full=True)
            for field in table.schema:
                if {**TABLES, **DERIVED}[name].field(field.name).type != field.type:
                    raise ValueError(f"column {name}.{field.name} is {field.type}")


def _check_size(stored: StoredTables, name: str) -> None:
    """Refuse a table that takes more memory than htk would have compressed, before it is read."""
    most = MOST_COMPRESSED if name in SELDOM_READ else 0
    unpacked = 0
    reader = pa.BufferReader(stored.stream(name))
    for message in pa.ipc.MessageReader.open_stream(reader):
        unpacked += _compressed_bytes(message.metadata.to_pybytes(), message.body)
        if unpacked > most:
            raise ValueError(f"table {name} is compressed from {unpacked:,} bytes")


def _compressed_bytes(metadata: bytes, body: pa.Buffer | None) -> int:
    """Return what compressed buffers of an Arrow message say that they unpack to; 0: it has none.

    The metadata is a FlatBuffer, of which no binding is at hand.
    """
    message = _FlatTable(metadata, *struct.unpack_from("<I", metadata))
    kind = metadata[message.field(1) or 0] if message.field(1) else 0
    if kind not in (_RECORD_BATCH, _DICTIONARY_BATCH) or body is None:
        return 0
    batch = message.table(_HEADER)
    if kind == _DICTIONARY_BATCH:
        batch = batch.table(_BATCH_OF_DICTIONARY)
    if not batch.field(_COMPRESSION):
        return 0
    total = 0
    start = batch.followed(_BUFFERS)
    (count,) = struct.unpack_from("<I", metadata, start)
    for k in range(count):
        offset, length = _BUFFER.unpack_from(metadata, start + 4 + k * _BUFFER.size)
        if length:
            (unpacked,) = struct.unpack("<q", body[offset : offset + 8].to_pybytes())
            total += max(unpacked, length)  # -1: it is as it was
    return total


class _FlatTable:
    """A table of a FlatBuffer: where each of its fields lies."""

    def __init__(self, content: bytes, start: int) -> None:
        self._content = content
        self._start = start
        (back,) = struct.unpack_from("<i", content, start)
        self._fields = start - back
        (self._size,) = struct.unpack_from("<H", content, self._fields)

    def field(self, number: int) -> int:
        """Return where a field begins; 0: the table has none of this number."""
        entry = 4 + 2 * number
        if entry + 2 > self._size:
            return 0
        (offset,) = struct.unpack_from("<H", self._content, self._fields + entry)
        return self._start + offset if offset else 0

    def followed(self, number: int) -> int:
        """Return where that begins to which a field points."""
        field = self.field(number)
        (offset,) = struct.unpack_from("<I", self._content, field)
        return field + int(offset)

    def table(self, number: int) -> "_FlatTable":
        return _FlatTable(self._content, self.followed(number))
