"""A stored file as a stream of its decompressed bytes: plain, gzip (members too) or zstd.

Damage ends the stream instead of raising: everything that could be decompressed comes first, then
`damage` says what was wrong. Only a decompression bomb raises.
"""

import os
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from types import TracebackType
from typing import Any, BinaryIO, Self, cast

from htk.base.errors import TraceError

_GZIP = b"\x1f\x8b"
_ZSTD = b"\x28\xb5\x2f\xfd"
_ZSTD_SKIPPABLE = 0x184D2A50 >> 4  # any of sixteen frame types, by their upper 28 bits
_STORED_BLOCK = 32 * 1024
_CAREFUL_BLOCK = 4 * 1024
_BLOCK = 256 * 1024

# A trace packs 10 to 60 to one, a file of one repeated event some hundreds.
_MOST_RATIO = 1000
_FREE_BYTES = 64 << 20
_MOST_BYTES = 256 << 30
_CHECKSUM = (
    "the checksum is wrong at stored byte {offset:,}: bytes of the file were changed, perhaps such "
    "as were read; copy it again"
)
_LIMIT_VARIABLE = "HTK_UNPACK_LIMIT"


def open_stream(file: BinaryIO | str | os.PathLike[str]) -> "Stream":
    """The decompressed bytes of a path or an open binary file, whichever way it is packed."""
    with ExitStack() as opened:
        stored = file
        if isinstance(stored, str | os.PathLike):
            stored = opened.enter_context(open(stored, "rb", buffering=0))
        source = _Source(stored)
        kind = _find_packing(source.peek(4))
        stream = {"gzip": _Gzip, "zstd": _Zstd, "plain": Stream}[kind](source)
        stream.owned = opened.pop_all()
        return stream


def unpack_limit() -> int | None:
    """The most bytes one file may unpack to (HTK_UNPACK_LIMIT: bytes, or 'none')."""
    setting = os.environ.get(_LIMIT_VARIABLE, "").strip().lower()
    if setting == "none":
        return None
    if setting.isdigit():
        return int(setting)
    if setting:
        raise TraceError(f"{_LIMIT_VARIABLE} is '{setting}'; expected a number of bytes or 'none'")
    return _MOST_BYTES


class _Source:
    """A stored file that can be looked into, and knows how much of it was read."""

    def __init__(self, file: BinaryIO) -> None:
        self.file = file
        self.offset = 0  # bytes handed on
        self._ahead = b""

    def peek(self, size: int) -> bytes:
        while len(self._ahead) < size and (more := self.file.read(size - len(self._ahead))):
            self._ahead += more
        return self._ahead

    def read(self, size: int = -1) -> bytes:
        taken = self._ahead[:size] if size >= 0 else self._ahead
        self._ahead = self._ahead[len(taken) :]
        taken = taken or self.file.read(size) or b""
        self.offset += len(taken)
        return taken

    def put_back(self, data: bytes) -> None:
        self._ahead = data + self._ahead
        self.offset -= len(data)

    def again(self) -> bool:
        """Back to the beginning, if the file can go there."""
        try:
            self.file.seek(0)
        except (OSError, AttributeError, ValueError):
            return False
        self._ahead = b""
        self.offset = 0
        return True


class Stream:
    """Plain bytes, and what all streams share."""

    def __init__(self, source: _Source) -> None:
        self.source = source
        self.owned = ExitStack()
        self.offset = 0  # decompressed bytes handed out
        self.damage: str | None = None  # why the stream ended before its time
        self.damage_kind = "compression_damage"
        self._limit = unpack_limit()

    @property
    def compressed_offset(self) -> int:
        """Stored bytes read so far."""
        return self.source.offset

    def readinto(self, buffer: memoryview | bytearray, /) -> int:
        """Fills some of the buffer; 0 at the end."""
        view = memoryview(buffer).cast("B")
        data = self.read1(len(view)) if len(view) else b""
        view[: len(data)] = data
        return len(data)

    def read1(self, size: int) -> bytes:
        """Some bytes, up to `size`, without putting pieces together; none at the end."""
        data = self._read_more(size)
        self.offset += len(data)
        self._check_limit()
        return data

    def read(self, size: int) -> bytes:
        """Up to `size` bytes, fewer only at the end."""
        parts: list[bytes] = []
        while size > 0 and (data := self.read1(min(size, _BLOCK))):
            parts.append(data)
            size -= len(data)
        return b"".join(parts)

    def close(self) -> None:
        self.owned.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _read_more(self, size: int) -> bytes:
        return self.source.read(size)

    def _check_limit(self) -> None:
        if self._limit is None:
            return
        packed = type(self) is not Stream and self.offset > _FREE_BYTES
        ratio = self.offset / max(self.compressed_offset, 1)
        if self.offset > self._limit or (packed and ratio > _MOST_RATIO):
            raise TraceError(
                f"{self.compressed_offset:,} bytes unpack to more than {self.offset:,}: taken for "
                f"a decompression bomb; set {_LIMIT_VARIABLE}=none if the file is right"
            )


class _Gzip(Stream):
    def __init__(self, source: _Source) -> None:
        from isal import igzip_lib  # not needed where the cache has the tables

        super().__init__(source)
        self._library: Any = igzip_lib
        self._decoder = self._new_decoder()
        self._ended = False
        self._saved: Iterator[bytes] = iter(())  # what a careful decoder gets out of damaged data
        self._left = b""

    def _read_more(self, size: int) -> bytes:
        while not self._ended:
            try:
                data = self._decode_step(size)
            except self._library.IsalError as error:
                self._note_damage(str(error))
                break
            if data:
                return data
        while not self._left and (part := next(self._saved, None)) is not None:
            self._left = part
        data = self._left[:size]
        self._left = self._left[size:]
        return data

    def _new_decoder(self) -> Any:
        return self._library.IgzipDecompressor(self._library.DECOMP_GZIP)

    def _decode_step(self, size: int) -> bytes:
        decoder = self._decoder
        if decoder.eof:
            self._next_member(decoder.unused_data)
            return b""
        stored = self.source.read(_STORED_BLOCK) if decoder.needs_input else b""
        if decoder.needs_input and not stored:
            self._ended = True
            self.damage = f"gzip data ends early, after {self.source.offset:,} bytes"
            return b""
        data: bytes = decoder.decompress(stored, size)
        return data

    def _next_member(self, unused: bytes) -> None:
        while len(unused) < 2 and (more := self.source.read(_STORED_BLOCK)):
            unused += more
        if unused.startswith(_GZIP):
            self._decoder = self._new_decoder()
            self.source.put_back(unused)
            return
        self._ended = True
        while unused and not unused.strip(b"\0"):  # padding
            unused = self.source.read(_STORED_BLOCK)
        if unused:
            self.damage = "bytes that are no gzip data follow the gzip data; they are left out"

    def _note_damage(self, why: str) -> None:
        """The decoder lost the output of its last step: decode again, carefully."""
        self._ended = True
        offset = self.source.offset
        if "checksum" in why:
            self.damage = _CHECKSUM.format(offset=offset)
            self.damage_kind = "wrong_checksum"
        else:
            self.damage = f"gzip data is damaged near stored byte {offset:,} ({why})"
        if self.source.again():
            self._saved = _skip_bytes(_read_until_damage(self.source), self.offset)


class _Zstd(Stream):
    def __init__(self, source: _Source) -> None:
        super().__init__(source)
        import zstandard  # few traces are packed with it

        self._error = zstandard.ZstdError
        decoder = zstandard.ZstdDecompressor()
        self._reader = decoder.stream_reader(
            cast(BinaryIO, source), read_size=_STORED_BLOCK, read_across_frames=True, closefd=False
        )

    def _read_more(self, size: int) -> bytes:
        if self.damage is not None:
            return b""
        try:
            return self._reader.read(size)
        except self._error as error:
            offset = self.source.offset
            if "checksum" in str(error):
                self.damage = _CHECKSUM.format(offset=offset)
                self.damage_kind = "wrong_checksum"
                return b""
            self.damage = f"zstd data is damaged near stored byte {offset:,} ({error})"
            return b""


def _find_packing(start: bytes) -> str:
    if start.startswith(_GZIP):
        return "gzip"
    number = int.from_bytes(start, "little")
    zstd = start == _ZSTD or (len(start) == 4 and number >> 4 == _ZSTD_SKIPPABLE)
    return "zstd" if zstd else "plain"


def _read_until_damage(source: _Source) -> Iterator[bytes]:
    """Everything that gzip data yields before its damage, to the last byte."""
    decoder = zlib.decompressobj(31)
    while stored := decoder.unconsumed_tail or source.read(_STORED_BLOCK):
        before = decoder.copy()
        try:
            data = decoder.decompress(stored, _CAREFUL_BLOCK)
        except zlib.error:
            yield from _byte_by_byte(before, stored)
            return
        yield data
        if decoder.eof:
            source.put_back(decoder.unused_data)
            decoder = zlib.decompressobj(31)


def _byte_by_byte(decoder: "zlib._Decompress", stored: bytes) -> Iterator[bytes]:
    with suppress(zlib.error):  # what one step decoded is lost when that step fails
        for i in range(len(stored)):
            yield decoder.decompress(stored[i : i + 1])


def _skip_bytes(parts: Iterator[bytes], skipped: int) -> Iterator[bytes]:
    """The parts without their first bytes."""
    for part in parts:
        if skipped < len(part):
            yield part[skipped:]
        skipped = max(skipped - len(part), 0)
