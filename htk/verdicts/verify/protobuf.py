"""Messages of protobuf, read by their wire format alone."""

from typing import Any


def read_fields(message: bytes) -> dict[int, list[Any]]:
    """Return the fields of a protobuf message by number: whole numbers, or bytes."""
    fields: dict[int, list[Any]] = {}
    position = 0
    value: Any
    while position < len(message):
        key, position = _read_varint(message, position)
        wire = key & 7
        if wire == 0:
            value, position = _read_varint(message, position)
        elif wire == 2:
            length, position = _read_varint(message, position)
            value = message[position : position + length]
            position += length
        elif wire in (1, 5):
            value = None
            position += 8 if wire == 1 else 4
        else:
            raise ValueError(f"wire type {wire}")
        fields.setdefault(key >> 3, []).append(value)
    return fields


def _read_varint(message: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[position]
        position += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, position
        if shift > 63:
            raise ValueError("a number of more than 64 bits")
