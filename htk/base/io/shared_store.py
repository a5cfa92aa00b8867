"""Parsed tables in a folder or bucket that many machines write and read.

One object holds what one file was parsed to, of all its processes. It is named by the code that
read the file and by the file's content, so that writers need not know of each other: who comes
second finds the work done, or writes the same again. What is read is copied into the cache of this
machine; others may have written it, so its seal and its tables are checked first.
"""

import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path

from htk.base.errors import TraceError
from htk.base.io.object_folder import ObjectFolder
from htk.base.io.packed_entry import adopt_entry, naming_damage, pack_entry, unpack_entry
from htk.base.io.remote import is_url
from htk.base.io.store import META, Store
from htk.base.io.store_key import (
    StoreKey,
    is_unsigned_asked_for,
    key_of_new_store,
    key_of_store,
)
from htk.base.io.table_code import table_code
from htk.base.io.temporary import temporary_folder

MARK = "htk-store.json"  # tells a store from a folder of traces
_OBJECT = re.compile(r"([0-9a-f]{40})\.zip")
_SHARE = re.compile(r"share-[0-9a-f]{16}-\d{1,6}-of-\d{1,6}\.json")
_STORES = re.compile(r"^(s3a?|gs|gcs|abfss?|az|memory)://", re.IGNORECASE)


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
        elif not os.path.isfile(os.path.join(address, MARK)):  # False for what is no path
            return None
        store = cls(address)
        return store if store._folder.exists(MARK) else None

    def mark(self) -> None:
        """Say that this is a store."""
        self._folder.make_folder(_name_code_folder())
        if not self._folder.exists(MARK):
            key = key_of_new_store(self._folder.location)
            content = {"kind": "parsed traces of htk", "store": key.store}
            self._folder.put_bytes(json.dumps(content).encode(), MARK)
        self.require_key()

    def require_key(self) -> None:
        """Refuse, by a TraceError, a store whose key is not at hand, unless that is asked for."""
        if not is_unsigned_asked_for():
            self._written_with()

    def names(self) -> list[str]:
        """Return the keys of the files whose entries this code made."""
        return sorted(self.sizes())

    def sizes(self) -> dict[str, int]:
        """Return the keys of the files whose entries this code made, and the entries' bytes."""
        listed = self._folder.listed(_name_code_folder())
        return {m[1]: size for name, size in listed.items() if (m := _OBJECT.fullmatch(name))}

    def has_others(self) -> bool:
        """Return whether it holds entries that other code made."""
        return bool(set(self._folder.listed()) - {MARK, _name_code_folder()})

    def note(self, name: str, content: bytes) -> None:
        """Keep what a share says that it will store, in place of what it said before."""
        self._folder.put_bytes(content, _name_code_folder(), name)

    def notes(self) -> list[bytes | Exception]:
        """Return what shares say that they store."""
        names = [
            name for name in self._folder.listed(_name_code_folder()) if _SHARE.fullmatch(name)
        ]
        return [*self._folder.read(_name_code_folder(), sorted(names)).values()]

    def put(self, folders: Sequence[Path]) -> None:
        """Keep the cache's folders of one file, that of its first process first."""
        name = _name_object(folders[0].name)
        packed = temporary_folder(folders[0].parent)
        try:
            pack_entry(folders, packed / name)
            self._written_with().append_seal(packed / name, f"{_name_code_folder()}/{name}")
            self._folder.put_file(packed / name, _name_code_folder(), name)
        finally:
            shutil.rmtree(packed, ignore_errors=True)

    def name_of(self, key: str) -> str:
        """Return an entry's name for people."""
        return f"{self.address}: entry {key}"

    def cache_key(self, key: str) -> str:
        """Return the name of an entry's copy in the cache: what came from one store is never what
        another holds."""
        source = f"unsigned {self.address}" if is_unsigned_asked_for() else self._name
        return hashlib.sha256(f"{source}/{key}".encode()).hexdigest()[:40]

    def fetch(self, key: str, store: Store) -> None:
        """Copy a file's entry into the cache, unless it is there; TraceError if it was changed."""
        own = self.cache_key(key)
        if not (store.root / own / META).is_file():
            with self.copied(key, store, self._written_with()) as packed:
                adopt_entry(unpack_entry(packed, key, packed.parent), own, store.root)

    @contextmanager
    def copied(self, key: str, store: Store, sealed_by: StoreKey | None = None) -> Iterator[Path]:
        """Copy an entry to this machine and take its seal, unless it may be of anybody; TraceError
        if it is not what was written, also where that is found out later."""
        store.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder = temporary_folder(store.root)
        packed = folder / _name_object(key)
        try:
            with naming_damage(self.name_of(key)):
                self._folder.get_file(packed, _name_code_folder(), packed.name)
                if sealed_by is not None:
                    sealed_by.take_seal(packed, f"{_name_code_folder()}/{packed.name}")
                yield packed
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def seals(self, store: Store) -> dict[str, str]:
        """Return the keys of the files whose entries this code made, and what is wrong with each
        entry: nothing where it is as it was sealed."""
        key = self._written_with()
        wrong = {}
        for name in self.names():
            wrong[name] = ""
            try:
                with self.copied(name, store, key) as packed:
                    unpack_entry(packed, name, packed.parent)
            except TraceError as error:
                wrong[name] = str(error)
        return wrong

    def _written_with(self) -> StoreKey:
        """Return the secret of the store; TraceError where this user has none."""
        key = key_of_store(self._name)
        if key is None:
            raise TraceError(
                f"{self.address}: the key of this store is not at hand, so anybody may have "
                "written it; name the key's file with --store-key (or HTK_STORE_KEY), or use it "
                "all the same, whoever wrote it: --store-key none"
            )
        return key

    @cached_property
    def _name(self) -> str:
        """What the store says that its secret is called."""
        content = self._folder.read_start(MARK)
        with suppress(ValueError, AttributeError):
            return str(json.loads(content).get("store", ""))
        return ""


def _name_object(key: str) -> str:
    return f"{key}.zip"


def _name_code_folder() -> str:
    """Return the folder of entries that the code which runs here made."""
    return table_code()[:16]
