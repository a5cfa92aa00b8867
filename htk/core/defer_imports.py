"""Keeps start-up short where a library would import more than it needs.

For processes that are htk's own, where no user's code runs: the command line.
"""

import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any


class _NotYet:
    """Finds neither pandas nor dateutil."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> None:
        if name in ("pandas", "dateutil"):
            raise ImportError(name)


def spare_pandas() -> None:
    """Keep pyarrow from importing pandas and dateutil at its first conversion, for half a second.

    It does so to recognise a Series and a relativedelta, which no command has. It looks again when
    to_pandas() needs them, so nothing is lost.
    """
    if "pandas" in sys.modules:
        return
    import pyarrow as pa

    blocker = _NotYet()
    sys.meta_path.insert(0, blocker)
    try:
        pa.scalar(0)
    finally:
        sys.meta_path.remove(blocker)


class _NoDocs(dict[str, Any]):
    """What pyarrow takes from the documentation of its options: nothing."""

    def __init__(self, text: str) -> None:
        super().__init__(Parameters=[])


def spare_docs() -> None:
    """Let pyarrow.compute be imported without parsing the documentation of each of its functions.

    It composes docstrings, which no command shows, with a parser that imports pydoc and more: a
    fifth of what a question takes whose tables are cached.
    """
    stand_in = ModuleType("pyarrow.vendored.docscrape")
    stand_in.NumpyDocString = _NoDocs  # type: ignore[attr-defined]
    sys.modules.setdefault(stand_in.__name__, stand_in)
