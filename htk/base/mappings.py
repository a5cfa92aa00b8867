"""Types of what is handed on by name: fields, facts, tables."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

Fields = dict[
    str, Any
]  # of a row, of a record in a file, of a command: whoever has them may change them
Facts = Mapping[str, Any]  # the same, to be read only
NamedTables = Mapping[str, "pa.Table"]


class ReplacedTables(NamedTables):
    """Tables of which some are others."""

    def __init__(self, tables: NamedTables, others: NamedTables) -> None:
        self._tables = tables
        self._others = others

    def __getitem__(self, name: str) -> "pa.Table":
        table = self._others.get(name)
        return self._tables[name] if table is None else table

    def __iter__(self) -> Iterator[str]:
        return iter(self._tables)

    def __len__(self) -> int:
        return len(self._tables)
