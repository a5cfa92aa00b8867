"""Protobuf messages without their schema, as lists of fields, and back."""

from typing import Any

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
# Each field is {path: value}: 1.3 is field 3 of a message in field 1; 1.3:5 is of 32 bits.
Message = list[dict[str, Any]]


def decode_message(data: bytes, above: str = "") -> Message:
    """Return the fields of a message; what cannot be one within it stays bytes."""
    fields: Message = []
    offset = 0
    while offset < len(data):
        tag, offset = _read_varint(data, offset)
        path = f"{above}{tag >> 3}"
        if tag & 7 == VARINT:
            value, offset = _read_varint(data, offset)
            fields.append({path: value})
        elif tag & 7 == BYTES:
            size, offset = _read_varint(data, offset)
            fields.append({path: _decode_bytes(_take(data, offset, size), f"{path}.")})
            offset += size
        elif tag & 7 in (FIXED64, FIXED32):
            size = 8 if tag & 7 == FIXED64 else 4
            fields.append({f"{path}:{tag & 7}": _take(data, offset, size)})
            offset += size
        else:
            raise ValueError(f"wire type {tag & 7}")
    return fields


def encode_message(fields: Message) -> bytes:
    """Return the message of these fields; integers are written in 64 bits at most."""
    parts = []
    for field in fields:
        ((path, value),) = field.items()
        number, _, fixed = path.rpartition(".")[2].partition(":")
        if isinstance(value, int):
            parts += [_varint(int(number) << 3), _varint(min(value, 2**64 - 1) % 2**64)]
            continue
        content = value if isinstance(value, bytes) else encode_message(value)
        parts.append(_varint(int(number) << 3 | int(fixed or BYTES)))
        parts += [content] if fixed else [_varint(len(content)), content]
    return b"".join(parts)


def _decode_bytes(data: bytes, above: str) -> bytes | Message:
    if not data or (data.isascii() and data.decode().isprintable()):
        return data
    try:
        fields = decode_message(data, above)
    except (IndexError, ValueError):
        return data
    return fields if encode_message(fields) == data else data


def _read_varint(data: bytes, offset: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[offset]
        value |= (byte & 127) << shift
        offset += 1
        shift += 7
        if byte < 128:
            return value, offset
        if shift > 63:
            raise ValueError("a varint of more than ten bytes")


def _take(data: bytes, offset: int, size: int) -> bytes:
    if offset + size > len(data):
        raise ValueError("cut")
    return data[offset : offset + size]


def _varint(value: int) -> bytes:
    parts = bytearray()
    while value > 127:
        parts.append(value & 127 | 128)
        value >>= 7
    return bytes([*parts, value])
