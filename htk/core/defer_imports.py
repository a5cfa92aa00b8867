"""Keeps start-up short where a library would import more than it needs."""

import sys
from collections.abc import Sequence
from types import ModuleType


class _NotYet:
    """Finds no pandas."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> None:
        if name == "pandas":
            raise ImportError(name)


def spare_pandas() -> None:
    """Half a second saved: at its first conversion pyarrow imports pandas, to know a Series.

    A command has no Series. pyarrow looks again when to_pandas() asks for it, so nothing is lost.
    Not for use where the user's own code runs.
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
