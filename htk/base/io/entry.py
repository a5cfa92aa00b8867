"""The tables of one parsed file: in memory, or in a folder of the cache."""

import os
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from htk.base.core.parser import Parsed
from htk.base.io.kept_bytes import KeptBytes
from htk.base.io.table_file import StoredTables, TableFolder
from htk.base.mappings import Facts, NamedTables

PARSED = "parsed"  # the file of the tables that the parser made
_DERIVED = "derived-"


class Entry(Protocol):
    """The tables of one parsed file, and what is derived from them."""

    @property
    def parsed(self) -> Parsed: ...

    @property
    def tables(self) -> NamedTables: ...

    def size_bytes(self, name: str) -> int:
        """Return about how large a parsed table is, without reading it; 0: there is none."""
        ...

    def rows(self, name: str) -> int:
        """Return how many rows a parsed table has; 0: there is none."""
        ...

    def derived(
        self, name: str, make: Callable[[], pa.Table], *, smallest_bytes: int = 0
    ) -> pa.Table:
        """Return a table made of the others; where it is kept, a smaller one than that is not."""
        ...

    def lacks(self, name: str) -> bool:
        """Return whether a table made of the others would have to be made."""
        ...

    def offer(self, name: str, table: pa.Table) -> None:
        """Take a table made of the others that `derived` need not make."""
        ...

    def release(self) -> None:
        """Let go of tables that can be read again."""
        ...

    def release_parsed(self) -> None:
        """Let go of the parsed tables, where they can be read again."""
        ...


class MemoryEntry:
    """Kept as long as it is used."""

    def __init__(self, parsed: Parsed) -> None:
        self.parsed = parsed
        self.tables = parsed.tables
        self.made: dict[str, pa.Table] = {}  # of the others

    def rows(self, name: str) -> int:
        return int(self.tables[name].num_rows) if name in self.tables else 0

    def size_bytes(self, name: str) -> int:
        return int(self.tables[name].get_total_buffer_size()) if name in self.tables else 0

    def derived(
        self, name: str, make: Callable[[], pa.Table], *, smallest_bytes: int = 0
    ) -> pa.Table:
        if name not in self.made:
            self.made[name] = make()
        return self.made[name]

    def lacks(self, name: str) -> bool:
        return name not in self.made

    def offer(self, name: str, table: pa.Table) -> None:
        self.made.setdefault(name, table)

    def release(self) -> None: ...

    def release_parsed(self) -> None: ...


class _Mapped(NamedTables):
    """Tables of a file, each read when first asked for."""

    def __init__(self, stored: StoredTables) -> None:
        self._stored = stored
        self._open: dict[str, pa.Table] = {}
        self._rows: dict[str, int] = {}

    def rows(self, name: str) -> int:
        if name not in self._rows:
            self._rows[name] = self[name].num_rows if name in self else 0
        return self._rows[name]

    def __getitem__(self, name: str) -> pa.Table:
        table = self._open.get(name)
        if table is None:
            table = self._open[name] = self._stored[name]
            self._rows[name] = table.num_rows
        return table

    def release(self) -> None:
        self._open.clear()

    def __contains__(self, name: object) -> bool:
        return name in self._stored.index

    def __iter__(self) -> Iterator[str]:
        return iter(self._stored.index)

    def __len__(self) -> int:
        return len(self._stored.index)


class StoredEntry:
    """Tables on disk."""

    def __init__(self, folder: Path, meta: Facts) -> None:
        self._folder = TableFolder(folder, folder.name)
        self._meta = meta
        self._stored = self._folder.read(PARSED)
        self.tables = _Mapped(self._stored)
        self.parsed = Parsed(
            self.tables, meta["rank"], meta["world_size"], meta["facts"], parser=meta["parser"]
        )
        self.others = int(meta.get("others", 0))  # further processes of the file
        self._derived: dict[str, pa.Table] = {}
        self._offered: dict[str, pa.Table] = {}  # made and not asked for yet

    def __reduce__(self) -> tuple[object, ...]:
        """Sent to another process, it is the name of a folder that both can read."""
        return StoredEntry, (self._folder.folder, self._meta)

    @property
    def folder(self) -> Path:
        return self._folder.folder

    @property
    def source_name(self) -> str:
        return str(self._meta["source"])

    def rows(self, name: str) -> int:
        return self.tables.rows(name)

    def size_bytes(self, name: str) -> int:
        return self._stored.index.get(name, (0, 0))[1]

    def derived(
        self,
        name: str,
        make: Callable[[], pa.Table],
        *,
        smallest_bytes: int = 0,
        largest_bytes: int | None = None,
    ) -> pa.Table:
        """Return a table as it was kept, else as it is made; one of another size is not kept."""
        table = self._derived.get(name)
        if table is None:
            table = self._find(name)
            if table is None:
                table = self._offered.pop(name, None)
                table = make() if table is None else table
                size = table.nbytes  # of a slice, not of what it is cut from
                if smallest_bytes <= size and (largest_bytes is None or size <= largest_bytes):
                    table = self._keep(name, table)
            self._derived[name] = table
        return table

    def lacks(self, name: str) -> bool:
        if name in self._derived or name in self._offered:
            return False
        return not self._folder.holds(_DERIVED + name)

    def offer(self, name: str, table: pa.Table) -> None:
        self._offered.setdefault(name, table)

    def release_parsed(self) -> None:
        self.tables.release()

    def release(self) -> None:
        self.release_parsed()
        self._derived.clear()
        self._offered.clear()

    def _find(self, name: str) -> pa.Table | None:
        try:
            return self._folder.read(_DERIVED + name)[name]
        except (OSError, ValueError, KeyError, pa.ArrowException):
            return None

    def _keep(self, name: str, table: pa.Table) -> pa.Table:
        try:
            self._folder.write(_DERIVED + name, {name: table})
        except FileNotFoundError:  # another process removed the entry; what is mapped stays
            return table
        except OSError as error:
            warn_unkept(self._folder.folder.parent, error)
            return table
        KeptBytes(self._folder.folder.parent).add(table.nbytes)
        stored = self._find(name)  # mapped: what was made need not stay in memory
        return table if stored is None else stored


def warn_unkept(where: Path, error: Exception) -> None:
    """Say that nothing could be kept somewhere, and why: once, however many tables it would be."""
    why = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else error
    warnings.warn(f"nothing kept in {where}: {why}", RuntimeWarning, stacklevel=1)
