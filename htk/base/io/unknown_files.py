"""Files that no parser recognised, remembered so that parsers are not imported to ask again.

One line for each, with the key that an entry of the cache would have: another content, or other
code, has another key. A line that is damaged is one file that is asked again.
"""

import re
from contextlib import suppress
from functools import cached_property
from pathlib import Path

NAME = "unknown"
_KEY = re.compile(rb"^[0-9a-f]{40}$", re.MULTILINE)
_MOST_BYTES = 4 << 20  # 100,000 files; beyond, all are forgotten


class UnknownFiles:
    """The keys of files that are no traces, in a folder of the cache."""

    def __init__(self, root: Path) -> None:
        self._path = root / NAME

    def __contains__(self, key: str) -> bool:
        return key.encode() in self._keys

    def add(self, key: str) -> None:
        """Remember a file; a disk that will not costs nothing."""
        with suppress(OSError):
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            if self._path.exists() and self._path.stat().st_size > _MOST_BYTES:
                self.clear()
            with self._path.open("ab") as file:  # a short line is written whole, or not at all
                file.write(f"{key}\n".encode())

    def clear(self) -> None:
        """Forget every file."""
        with suppress(OSError):
            self._path.unlink()

    @cached_property
    def _keys(self) -> frozenset[bytes]:
        try:
            with self._path.open("rb") as file:
                return frozenset(_KEY.findall(file.read(2 * _MOST_BYTES)))
        except OSError:
            return frozenset()
