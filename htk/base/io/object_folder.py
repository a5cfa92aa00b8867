"""A folder on this machine or in a bucket that several machines write to at once.

An object appears whole or not at all, and its name says what it is: writers need no lock. Requests
that a throttled store refuses are made again.
"""

import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from htk.base.errors import TraceError
from htk.base.io.raw_files import spell_reason
from htk.base.io.remote import find_filesystem, is_url
from htk.base.io.temporary import is_given_up, remove_path, temporary_name

_BUCKETS = re.compile(r"(s3a?|gs|gcs|abfss?|az)://", re.IGNORECASE)
_TRIES = 4  # of a request to a store that is throttled
_MOST_OF_A_START = 64 << 10
_AT_ONCE = 512  # objects read in one request, so that few are in memory

Done = TypeVar("Done")


def _may_come(content: bytes | Exception) -> bool:
    """Return whether an object that was not read may be, asked again."""
    return isinstance(content, Exception) and not isinstance(content, FileNotFoundError)


class ObjectFolder:
    """Objects below an address."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._is_local = not is_url(address)
        self.location = str(Path(address).resolve()) if self._is_local else address
        self._system, path = find_filesystem(self.location)
        self._path = path.rstrip("/")

    def make_folder(self, *names: str) -> None:
        """Make a folder, where there is none. In one of this machine, what writers left that were
        killed goes. Buckets have no folders, and one whose name was misspelt is not to be made."""
        if _BUCKETS.match(self.address):
            return
        self._try_request(partial(self._system.makedirs, self._join_path(*names), exist_ok=True))
        if self._is_local:
            for left in filter(is_given_up, Path(self._join_path(*names)).iterdir()):
                remove_path(left)

    def exists(self, *names: str) -> bool:
        """Return whether there is such an object or folder."""
        return bool(self._try_request(partial(self._system.exists, self._join_path(*names))))

    def listed(self, *names: str) -> dict[str, int]:
        """Return the names in a folder and their sizes in bytes; none where there is no folder."""
        try:
            entries = self._try_request(
                partial(self._system.ls, self._join_path(*names), detail=True)
            )
        except FileNotFoundError:
            return {}
        paths = {str(e["name"]).rstrip("/"): int(e.get("size") or 0) for e in entries}
        own = self._join_path(*names).strip("/")  # buckets may list a folder in itself
        return {p.rsplit("/", 1)[-1]: size for p, size in paths.items() if p.strip("/") != own}

    def put_bytes(self, content: bytes, *names: str) -> None:
        """Write an object of these bytes."""
        self._put(names, lambda target: self._system.pipe_file(target, content))

    def put_file(self, file: Path, *names: str) -> None:
        """Write an object that holds what a file of this machine does."""
        self._put(names, lambda target: self._system.put_file(str(file), target))

    def get_file(self, target: Path, *names: str) -> None:
        """Copy an object to a file of this machine."""
        self._try_request(partial(self._system.get_file, self._join_path(*names), str(target)))

    def read_start(self, *names: str) -> bytes:
        """Return what an object begins with, 64 KiB at most."""
        read = partial(
            self._system.cat_file, self._join_path(*names), start=0, end=_MOST_OF_A_START
        )
        return bytes(self._try_request(read))

    def read(self, folder: str, names: Sequence[str]) -> dict[str, bytes | Exception]:
        """Return what objects of a folder hold, or why one cannot be read."""
        contents: dict[str, bytes | Exception] = {}
        for first in range(0, len(names), _AT_ONCE):
            paths = {
                self._join_path(folder, name): name for name in names[first : first + _AT_ONCE]
            }
            for path, name in paths.items():
                contents[name] = FileNotFoundError(path)
            for _ in range(_TRIES):
                got = self._system.cat(list(paths), on_error="return")
                contents |= {paths[path]: content for path, content in got.items()}
                paths = {path: name for path, name in paths.items() if _may_come(contents[name])}
                if not paths:
                    break
        return contents

    def _put(self, names: Sequence[str], write: Callable[[str], Any]) -> None:
        """Write an object; it appears whole, as objects of buckets do."""
        target = self._join_path(*names)
        if not self._is_local:
            try:
                self._try_request(partial(write, target))
            except FileNotFoundError as error:
                raise TraceError(
                    f"{self.address}: {spell_reason(error)}; is there such a bucket?"
                ) from error
            return
        folder, _, name = target.rpartition("/")
        temporary = f"{folder}/{temporary_name(name)}"
        try:
            self._try_request(partial(write, temporary))
            Path(temporary).replace(target)
        finally:
            Path(temporary).unlink(missing_ok=True)

    def _join_path(self, *names: str) -> str:
        return "/".join((self._path, *names))

    def _try_request(self, request: Callable[[], Done]) -> Done:
        """Return what a request gives; a store that is throttled or away is asked again."""
        for attempt in range(_TRIES):
            try:
                return request()
            except FileNotFoundError:
                raise
            except Exception as error:  # each file system has errors of its own
                if attempt == _TRIES - 1:
                    raise TraceError(f"{self.address}: {spell_reason(error)}") from error
        raise AssertionError("not reached")
