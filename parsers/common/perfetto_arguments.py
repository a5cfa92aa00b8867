"""Arguments of Perfetto's events: debug_annotation.proto, with interned keys and texts."""

import math
import struct
from collections.abc import Mapping
from typing import Any

import msgspec

from htk.parsers.common.wire import BYTES, EIGHT_BYTES, VARINT, Field, fields, signed

KEYS = 3  # of interned_data.proto: names of arguments
TEXTS = 29
_KEY_ID, _BOOL, _UINT, _INT, _DOUBLE, _TEXT, _POINTER, _JSON, _KEY = 1, 2, 3, 4, 5, 6, 7, 9, 10
_ENTRIES, _ITEMS, _TEXT_ID = 11, 12, 17
_DEEPEST = 8  # of arguments in arguments
_Interned = Mapping[int, Mapping[int, Any]]


def read_argument(
    data: bytes, annotation: Field, interned: _Interned, depth: int = 0
) -> tuple[str, Any]:
    """Return the name of an argument and its value; without a value it is an empty list."""
    key = ""
    entries: dict[str, Any] = {}
    items: list[Any] = []
    value: Any = None
    for part in fields(data, annotation.start, annotation.end):
        if part.kind == VARINT:
            if part.number == _KEY_ID:
                key = interned[KEYS].get(part.value, "")
            elif part.number == _TEXT_ID:
                value = interned[TEXTS].get(part.value, "")
            elif part.number == _BOOL:
                value = bool(part.value)
            elif part.number in (_UINT, _INT, _POINTER):
                value = signed(part.value)
        elif part.kind == EIGHT_BYTES and part.number == _DOUBLE:
            value = read_double(data, part)
        elif part.kind == BYTES:
            if part.number == _KEY:
                key = read_text(data, part)
            elif part.number == _TEXT:
                value = read_text(data, part)
            elif part.number == _JSON:
                value = _decode(read_text(data, part))
            elif part.number in (_ENTRIES, _ITEMS) and depth < _DEEPEST:
                inner, argument = read_argument(data, part, interned, depth + 1)
                if part.number == _ENTRIES:
                    entries[inner] = argument
                else:
                    items.append(argument)
    return key, value if value is not None else entries or items


def read_text(data: bytes, part: Field) -> str:
    return data[part.start : part.end].decode("utf8", "replace")


def read_double(data: bytes, part: Field) -> float:
    """Return a number; 0 for one that is none."""
    value: float = struct.unpack("<d", data[part.start : part.end])[0]
    return value if math.isfinite(value) else 0.0


def _decode(text: str) -> Any:
    """Return what JSON says; a text that is none is itself."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return text
