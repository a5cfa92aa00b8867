"""File objects for pipes and parts of files; the reason why a file cannot be read."""

import io
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import IO, BinaryIO, NoReturn, cast

from htk.base.core.parser import Source
from htk.base.errors import HtkError, TraceError

_BLOCK = 1 << 20


def build_broken_source(name: str, why: str) -> Source:
    """A file that cannot be used: it says why when it is opened, so that others can be read."""
    return Source(name, partial(_refuse_reading, f"{name}: {why}"))


def _refuse_reading(why: str) -> NoReturn:
    raise TraceError(why)


def open_guarded(name: str, open_: Callable[[], BinaryIO]) -> BinaryIO:
    """A file whose troubles are errors of ours: disks, networks and archives have many kinds."""
    try:
        return cast(BinaryIO, _Guarded(name, open_()))
    except HtkError:
        raise
    except Exception as error:
        raise TraceError(f"{name}: {spell_reason(error)}") from error


def spell_reason(error: BaseException) -> str:
    """Return what an error says, on one line."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    message = " ".join(str(error).split())
    return message or type(error).__name__


class _Guarded(io.RawIOBase):
    def __init__(self, name: str, file: BinaryIO) -> None:
        self._name = name
        self._file = file

    def readable(self) -> bool:
        return True

    def read(self, size: int | None = -1) -> bytes:
        try:
            return self._file.read(-1 if size is None else size)
        except HtkError:
            raise
        except Exception as error:
            raise TraceError(f"{self._name}: {spell_reason(error)}") from error

    def readall(self) -> bytes:
        return self.read()

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def seekable(self) -> bool:
        return self._file.seekable()

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()


class _Stretch(io.RawIOBase):
    """Bytes of a known number, read by their positions."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._place = 0

    def _read_from(self, position: int, size: int) -> bytes:
        raise NotImplementedError

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        data = self._read_from(self._place, min(len(buffer), max(self._size - self._place, 0)))
        buffer[: len(data)] = data
        self._place += len(data)
        return len(data)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._place, os.SEEK_END: self._size}[whence]
        self._place = base + offset
        return self._place

    def tell(self) -> int:
        return self._place


class Part(_Stretch):
    """A stretch of a file that nobody else reads, as a file."""

    def __init__(self, file: BinaryIO, offset: int, size: int) -> None:
        super().__init__(size)
        self._file = file
        self._offset = offset

    def _read_from(self, position: int, size: int) -> bytes:
        self._file.seek(self._offset + position)
        return self._file.read(size)

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()


@dataclass(frozen=True)
class Spool:
    """Bytes kept in a file without a name, which is gone with the last who can read it."""

    file: IO[bytes]
    size: int

    @classmethod
    def from_reader(cls, name: str, read: Callable[[int], bytes], limit: int | None) -> "Spool":
        kept = tempfile.TemporaryFile()  # noqa: SIM115  (lives as long as its readers)
        size = 0
        try:
            while block := read(_BLOCK):
                size += len(block)
                if limit is not None and size > limit:
                    raise TraceError(f"{name}: more than {limit:,} bytes; write it to a file first")
                kept.write(block)
            kept.flush()
        except OSError as error:
            raise TraceError(f"{name}: cannot be kept in a file: {spell_reason(error)}") from error
        return cls(kept, size)

    def open(self) -> BinaryIO:
        """Open the file at its beginning, with a position of its own."""
        return io.BufferedReader(_SpoolReader(self))


class _SpoolReader(_Stretch):
    """Reads of a file that others read too."""

    def __init__(self, spool: Spool) -> None:
        super().__init__(spool.size)
        self._spool = spool

    def _read_from(self, position: int, size: int) -> bytes:
        return os.pread(self._spool.file.fileno(), size, position)
