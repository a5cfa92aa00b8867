"""What several graphs of one recording share, made once."""

from collections.abc import Callable
from typing import TypeVar, cast

from htk.base.mappings import Fields, NamedTables
from htk.quantities.graph.left_out import RepresentedTables, left_out_of

_T = TypeVar("_T")


class SharedTables(RepresentedTables):
    """The tables of a recording, and what was found in them whatever the step."""

    def __init__(self, tables: NamedTables) -> None:
        super().__init__(tables, left_out_of(tables))
        self._found: Fields = {}

    def once(self, what: str, find: Callable[[], _T]) -> _T:
        if what not in self._found:
            self._found[what] = find()
        return cast("_T", self._found[what])


def find_once(tables: NamedTables, what: str, find: Callable[[], _T]) -> _T:
    """Return what the recording alone tells; who asks must not write to it."""
    return tables.once(what, find) if isinstance(tables, SharedTables) else find()
