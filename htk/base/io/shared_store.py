"""Parsed tables in a folder or bucket that many machines write and read.

One object holds what one file was parsed to, of all its processes: a ZIP archive, not compressed,
of folders as the cache has them. It is named by the code that read the file and by the file's
content, so that writers need not know of each other: who comes second finds the work done, or
writes the same again. What is read is copied into the cache of this machine, and checked first,
since others may have written it.
"""

import json
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from htk.base.errors import TraceError
from htk.base.io.entry import PARSED
from htk.base.io.object_folder import ObjectFolder
from htk.base.io.raw_files import reason
from htk.base.io.remote import is_url
from htk.base.io.store import META, Store, meta_of
from htk.base.io.table_code import table_code
from htk.base.io.table_file import ENDING, read_tables
from htk.base.io.temporary import temporary_folder
from htk.base.schema import DERIVED, TABLES

MARK = "htk-store.json"  # tells a store from a folder of traces
_MEMBER = re.compile(r"([0-9a-f]{40})(-\d{1,6})?/([\w-]{1,100}\.arrow|meta\.json)")
_OBJECT = re.compile(r"([0-9a-f]{40})\.zip")
_SHARE = re.compile(r"share-[0-9a-f]{16}-\d{1,6}-of-\d{1,6}\.json")
_STORES = re.compile(r"^(s3a?|gs|gcs|abfss?|az|memory)://", re.IGNORECASE)
_NOTE = json.dumps({"kind": "parsed traces of htk"}).encode()


class SharedStore:
    """Entries below an address."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._folder = ObjectFolder(address)

    @classmethod
    def at(cls, address: str) -> "SharedStore | None":
        """Return the store at an address; None if there is none."""
        if is_url(address):
            if not _STORES.match(address):
                return None
        elif not (Path(address) / MARK).is_file():
            return None
        store = cls(address)
        return store if store._folder.exists(MARK) else None

    def mark(self) -> None:
        """Say that this is a store."""
        self._folder.make_folder(_code())
        if not self._folder.exists(MARK):
            self._folder.put_bytes(_NOTE, MARK)

    def names(self) -> list[str]:
        """Return the keys of the files whose entries this code made."""
        return sorted(self.sizes())

    def sizes(self) -> dict[str, int]:
        """Return the keys of the files whose entries this code made, and the entries' bytes."""
        listed = self._folder.listed(_code())
        return {m[1]: size for name, size in listed.items() if (m := _OBJECT.fullmatch(name))}

    def has_others(self) -> bool:
        """Return whether it holds entries that other code made."""
        return bool(set(self._folder.listed()) - {MARK, _code()})

    def note(self, name: str, content: bytes) -> None:
        """Keep what a share says that it will store, in place of what it said before."""
        self._folder.put_bytes(content, _code(), name)

    def notes(self) -> list[bytes | Exception]:
        """Return what shares say that they store."""
        names = [name for name in self._folder.listed(_code()) if _SHARE.fullmatch(name)]
        return [*self._folder.read(_code(), sorted(names)).values()]

    def put(self, folders: Sequence[Path]) -> None:
        """Keep the cache's folders of one file, that of its first process first."""
        key = folders[0].name
        packed = temporary_folder(folders[0].parent)
        import zipfile  # not needed where the inputs name no store

        try:
            with zipfile.ZipFile(packed / "zip", "w") as archive:
                for folder in folders:
                    for file in (*sorted(folder.glob(f"*{ENDING}")), folder / META):
                        archive.write(file, f"{folder.name}/{file.name}")
            self._folder.put_file(packed / "zip", _code(), f"{key}.zip")
        finally:
            shutil.rmtree(packed, ignore_errors=True)

    def fetch(self, key: str, store: Store) -> None:
        """Copy a file's entry into the cache, unless it is there; TraceError if it was changed."""
        if (store.root / key / META).is_file():
            return
        store.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        temporary = temporary_folder(store.root)
        try:
            packed = temporary / "zip"
            self._folder.get_file(packed, _code(), f"{key}.zip")
            folders = _unpacked(packed, key, temporary)
            for folder in folders:
                _check(folder)
            for folder in reversed(folders):  # the first process tells of the others: it comes last
                if not (store.root / folder.name).exists():
                    folder.rename(store.root / folder.name)
        except _damage() as error:
            raise TraceError(
                f"{self.address}: entry {key} is not what was written ({reason(error)}); "
                "remove it and run htk map again"
            ) from error
        finally:
            shutil.rmtree(temporary, ignore_errors=True)


def _damage() -> tuple[type[Exception], ...]:
    import zipfile

    arrow: type[Exception] = pa.ArrowException
    return (ValueError, KeyError, TypeError, OSError, zipfile.BadZipFile, arrow)


def _code() -> str:
    """Return the folder of entries that the code which runs here made."""
    return table_code()[:16]


def _unpacked(packed: Path, key: str, target: Path) -> list[Path]:
    """Unpack the folders of one file, and nothing else; the first process comes first."""
    import zipfile

    folders = set()
    with zipfile.ZipFile(packed) as archive:
        for member in archive.infolist():
            match = _MEMBER.fullmatch(member.filename)
            if match is None or match[1] != key or member.compress_type != zipfile.ZIP_STORED:
                raise ValueError(f"member {member.filename[:200]!r}")
            folder = target / (match[1] + (match[2] or ""))
            folder.mkdir(exist_ok=True)
            folders.add(folder)
            with archive.open(member) as content, (folder / match[3]).open("wb") as file:
                shutil.copyfileobj(content, file)
    return sorted(folders, key=lambda folder: (len(folder.name), folder.name))


def _check(folder: Path) -> None:
    """Refuse an entry whose tables are not those that were written, or could not have been."""
    meta_of((folder / META).read_bytes(), folder.name)
    for file in {folder / f"{PARSED}{ENDING}", *folder.glob(f"*{ENDING}")}:
        stored = read_tables(file, folder.name, file.name, thorough=True)
        for name in stored.index:
            table = stored[name]
            table.validate(full=True)
            for field in table.schema:
                if {**TABLES, **DERIVED}[name].field(field.name).type != field.type:
                    raise ValueError(f"column {name}.{field.name} is {field.type}")
