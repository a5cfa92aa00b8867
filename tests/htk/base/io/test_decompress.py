"""Stored bytes, however packed, whole or damaged, as the bytes they stand for."""

import gzip
import io
import random
import zlib

import pytest
import zstandard

from htk.base.errors import TraceError
from htk.base.io.decompress import open_stream

DICE = random.Random(3)
TEXT = b"".join(b'{"ts":%d,"name":"op"},\n' % DICE.randrange(10**9) for _ in range(40_000))


def unpacked(stored: bytes, size: int = 100_000) -> tuple[bytes, str | None]:
    with open_stream(io.BytesIO(stored)) as stream:
        return drained(stream, size), stream.damage


def drained(stream, size: int) -> bytes:
    buffer = bytearray(size)
    parts = []
    while got := stream.readinto(buffer):
        parts.append(bytes(buffer[:got]))
    return b"".join(parts)


class OneWay(io.RawIOBase):
    """A pipe: reads on, never back, and a little at a time."""

    def __init__(self, stored: bytes) -> None:
        self.stored = io.BytesIO(stored)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer) -> int:
        return self.stored.readinto(memoryview(buffer)[:777])


PACKED = {
    "plain": TEXT,
    "gzip": gzip.compress(TEXT),
    "gzip, several members": gzip.compress(TEXT[:9]) + gzip.compress(b"") + gzip.compress(TEXT[9:]),
    "gzip, padded": gzip.compress(TEXT) + b"\0" * 1000,
    "zstd": zstandard.compress(TEXT),
    "zstd, several frames": zstandard.compress(TEXT[:9]) + zstandard.compress(TEXT[9:]),
}


@pytest.mark.parametrize("packing", PACKED)
@pytest.mark.parametrize("size", [1000, 100_000])
def test_every_packing_unpacks(packing, size):
    assert unpacked(PACKED[packing], size) == (TEXT, None)


@pytest.mark.parametrize("packing", PACKED)
def test_a_pipe_unpacks_too(packing):
    with open_stream(OneWay(PACKED[packing])) as stream:
        assert drained(stream, 5000) == TEXT
        assert stream.damage is None
        assert stream.compressed_offset == len(PACKED[packing])


@pytest.mark.parametrize("stored", [b"", b"{", gzip.compress(b"", mtime=0)])
def test_little_or_nothing(stored):
    expected = b"" if stored[:1] == b"\x1f" else stored
    assert unpacked(stored) == (expected, None)


def test_a_path_opens_and_closes(tmp_path):
    path = tmp_path / "trace.json.gz"
    path.write_bytes(PACKED["gzip"])
    with open_stream(path) as stream:
        assert stream.read(30) == TEXT[:30]
    assert stream.source.file.closed


def test_progress_is_in_stored_bytes():
    with open_stream(io.BytesIO(PACKED["gzip"])) as stream:
        stream.readinto(bytearray(1000))
        assert 0 < stream.compressed_offset < len(PACKED["gzip"])
        drained(stream, 100_000)
        assert stream.compressed_offset == len(PACKED["gzip"])


@pytest.mark.parametrize("cut", [20, 5000, 100_000])
def test_a_cut_gzip_gives_all_it_holds(cut):
    stored = PACKED["gzip"][:cut]
    text, damage = unpacked(stored)
    assert text == zlib.decompressobj(31).decompress(stored)
    assert damage == f"gzip data ends early, after {cut:,} bytes"


def test_a_wrong_checksum_loses_nothing():
    stored = bytearray(PACKED["gzip"])
    stored[-6] ^= 1
    text, damage = unpacked(bytes(stored))
    assert text == TEXT
    assert damage is not None and damage.startswith("the checksum is wrong")


def test_damage_inside_loses_what_follows_it():
    """A stored block of an impossible type, behind blocks that are whole."""
    packer = zlib.compressobj(wbits=31)
    stored = packer.compress(TEXT[:500_000]) + packer.flush(zlib.Z_FULL_FLUSH)
    text, damage = unpacked(stored + b"\x07" * 50)
    assert text == TEXT[:500_000]
    assert damage is not None and "damaged" in damage


def test_a_damaged_pipe_gives_what_came_before():
    packer = zlib.compressobj(wbits=31)
    stored = packer.compress(TEXT[:500_000]) + packer.flush(zlib.Z_FULL_FLUSH)
    with open_stream(OneWay(stored + b"\x07" * 50)) as stream:
        text = drained(stream, 1000)
        assert TEXT.startswith(text)
        assert len(text) > 400_000
        assert stream.damage is not None


def test_bytes_behind_gzip_data_are_said():
    text, damage = unpacked(PACKED["gzip"] + b"what is this")
    assert text == TEXT
    assert damage == "bytes that are no gzip data follow the gzip data; they are left out"


def test_damaged_zstd_gives_what_came_before():
    stored = bytearray(zstandard.ZstdCompressor(write_checksum=True).compress(TEXT))
    stored[-2] ^= 1
    text, damage = unpacked(bytes(stored))
    assert TEXT.startswith(text)
    assert damage is not None and damage.startswith("the checksum is wrong")


def bomb(packing: str) -> bytes:
    block = b" " * (1 << 20)
    if packing == "gzip":
        packer = zlib.compressobj(9, wbits=31)
        return b"".join([*(packer.compress(block) for _ in range(90)), packer.flush()])
    packer = zstandard.ZstdCompressor().compressobj()
    return b"".join([*(packer.compress(block) for _ in range(90)), packer.flush()])


@pytest.mark.parametrize("packing", ["gzip", "zstd"])
def test_a_decompression_bomb_is_refused(packing):
    with pytest.raises(TraceError, match="taken for a decompression bomb; set HTK_UNPACK_LIMIT"):
        unpacked(bomb(packing))


def test_the_limit_can_be_lifted_or_set(monkeypatch):
    monkeypatch.setenv("HTK_UNPACK_LIMIT", "none")
    assert len(unpacked(bomb("gzip"))[0]) == 90 << 20
    monkeypatch.setenv("HTK_UNPACK_LIMIT", "100000")
    with pytest.raises(TraceError, match="bytes unpack to more than"):
        unpacked(PACKED["gzip"], 1000)
    monkeypatch.setenv("HTK_UNPACK_LIMIT", "much")
    with pytest.raises(TraceError, match="expected a number of bytes or 'none'"):
        unpacked(b"")
