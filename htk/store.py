"""Where parsed files are kept."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from htk.parser import Parsed, ParseOptions, Source


class Entry(Protocol):
    """The tables of one parsed file, and what is derived from them."""

    @property
    def parsed(self) -> Parsed: ...

    @property
    def tables(self) -> Mapping[str, pa.Table]: ...

    def derived(self, name: str, make: Callable[[], pa.Table]) -> pa.Table: ...


class MemoryEntry:
    """Kept as long as it is used."""

    def __init__(self, parsed: Parsed) -> None:
        self.parsed = parsed
        self.tables = parsed.tables
        self._derived: dict[str, pa.Table] = {}

    def derived(self, name: str, make: Callable[[], pa.Table]) -> pa.Table:
        if name not in self._derived:
            self._derived[name] = make()
        return self._derived[name]


class Store:
    def key(self, source: Source, parser: str, options: ParseOptions) -> str:
        return ""

    def find(self, key: str) -> Entry | None:
        return None

    def save(self, key: str, parsed: Parsed) -> Entry:
        return MemoryEntry(parsed)


def cache_root() -> Path:
    return Path(".")
