"""The size of a cache in bytes: the last count, then a line for each addition since.

Counting thousands of entries takes half a second, which every process that keeps something would
pay. A note that is damaged, old or gone costs one count. Removals by others stay in the sum, so it
is too high at worst, and is then counted.
"""

import os
import time
from contextlib import suppress
from pathlib import Path

from htk.base.io.temporary import temporary_name

NAME = "kept"
_OLD_S = 3600.0  # what killed processes left is found by a count, too
_MOST_BYTES = 1 << 16  # of notes; a count makes one line of them


class KeptBytes:
    """The sum of a cache's entries, noted in its folder."""

    def __init__(self, root: Path) -> None:
        self._path = root / NAME

    def read(self) -> int | None:
        """Return what the cache holds; nothing where that has to be counted."""
        try:
            with self._path.open("rb") as file:
                counted = [int(word) for word in file.read(_MOST_BYTES).split()]
                is_whole = not file.read(1)
        except (OSError, ValueError):
            return None
        is_fresh = bool(counted) and 0 <= time.time() - counted[0] < _OLD_S
        return sum(counted[1:]) if is_fresh and is_whole else None

    def add(self, size: int) -> None:
        """Note what was added, where there is a sum to add it to."""
        with suppress(OSError):
            note = os.open(self._path, os.O_WRONLY | os.O_APPEND)
            os.write(note, f"{size}\n".encode())  # a short line is written whole, or not at all
            os.close(note)

    def count(self, size: int) -> None:
        """Note what was counted; a disk that will not costs another count."""
        note = self._path.with_name(temporary_name(NAME))
        with suppress(OSError):
            note.write_text(f"{int(time.time())} {size}\n")
            note.replace(self._path)

    def clear(self) -> None:
        """Forget the sum."""
        with suppress(OSError):
            self._path.unlink()
