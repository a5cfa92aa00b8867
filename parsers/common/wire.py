"""Protocol buffers as they lie in a file: fields one behind the other, without a schema.

Everything is bounded by the bytes given: a number has at most ten bytes, a length that reaches
beyond the end cuts the message there.
"""

from collections.abc import Iterator
from dataclasses import dataclass

VARINT = 0
EIGHT_BYTES = 1
BYTES = 2
FOUR_BYTES = 5
_LONGEST_VARINT = 10
_WIDTHS = {EIGHT_BYTES: 8, FOUR_BYTES: 4}


class Cut(Exception):
    """The message ends within a field, or is none."""


@dataclass(frozen=True)
class Field:
    """A field: its number, how it is written, and its value or where its bytes lie."""

    number: int
    kind: int
    value: int  # of a number
    start: int
    end: int


def read_varint(data: bytes, begin: int, end: int) -> tuple[int, int]:
    """Return a number of variable length, and where it ends."""
    value = 0
    for k in range(_LONGEST_VARINT):
        if begin + k >= end:
            raise Cut
        byte = data[begin + k]
        value |= (byte & 0x7F) << 7 * k
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, begin + k + 1
    raise Cut


def read_fields(data: bytes, position: int, end: int) -> Iterator[Field]:
    """The fields of a message; raises Cut where it breaks off."""
    while position < end:
        tag, position = read_varint(data, position, end)
        number = tag >> 3
        kind = tag & 7
        if kind == VARINT:
            value, stop = read_varint(data, position, end)
            yield Field(number, kind, value, position, stop)
        else:
            size = _WIDTHS.get(kind)
            if kind == BYTES:
                size, position = read_varint(data, position, end)
            if size is None or position + size > end:
                raise Cut
            stop = position + size
            yield Field(number, kind, 0, position, stop)
        position = stop


def read_signed(value: int) -> int:
    """A 64-bit number as int64 has it."""
    return value - (1 << 64) if value >= 1 << 63 else value
