"""What readers of Perfetto's traces share: packets, and arguments with interned keys and texts.

Fields of trace_packet.proto and debug_annotation.proto.
"""

import math
import struct
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec

from htk.parsers.common.log_records import Issues
from htk.parsers.common.wire import BYTES, EIGHT_BYTES, VARINT, Cut, Field, read_fields, read_signed

_PACKET, _TIME, _SEQUENCE, _FLAGS = 1, 8, 10, 13
_CLEARED = 1

KEYS = 3  # of interned_data.proto: names of arguments
TEXTS = 29
_KEY_ID, _BOOL, _UINT, _INT, _DOUBLE, _TEXT, _POINTER, _JSON, _KEY = 1, 2, 3, 4, 5, 6, 7, 9, 10
_ENTRIES, _ITEMS, _TEXT_ID = 11, 12, 17
_DEEPEST = 8  # of arguments in arguments
_Interned = Mapping[int, Mapping[int, Any]]


class Packet(NamedTuple):
    """A packet's time, whose interned text it uses, and its messages by their numbers."""

    time: int
    sequence: int
    flags: int
    parts: dict[int, Field]

    @property
    def clears_text(self) -> bool:
        """What was interned before is no longer meant."""
        return bool(self.flags & _CLEARED)


def read_packets(data: bytes, issues: Issues, take: Callable[[Packet], None]) -> None:
    """Give each packet to who takes it; what is damaged is an issue."""
    try:
        for packet in read_fields(data, 0, len(data)):
            if packet.number != _PACKET or packet.kind != BYTES:
                continue
            try:
                take(_read_packet(data, packet))
            except Cut:
                issues.add("broken_event", "a packet that is not a message")
    except Cut:
        issues.add("truncated", "the file ends within a packet")


def _read_packet(data: bytes, packet: Field) -> Packet:
    numbers = {_TIME: 0, _SEQUENCE: 0, _FLAGS: 0}
    parts: dict[int, Field] = {}
    for part in read_fields(data, packet.start, packet.end):
        if part.kind == BYTES:
            parts[part.number] = part
        elif part.kind == VARINT and part.number in numbers:
            numbers[part.number] = part.value
    return Packet(numbers[_TIME], numbers[_SEQUENCE], numbers[_FLAGS], parts)


def read_argument(
    data: bytes, annotation: Field, interned: _Interned, depth: int = 0
) -> tuple[str, Any]:
    """Return the name of an argument and its value; without a value it is an empty list."""
    key = ""
    entries: dict[str, Any] = {}
    items: list[Any] = []
    value: Any = None
    for part in read_fields(data, annotation.start, annotation.end):
        if part.kind == VARINT:
            if part.number == _KEY_ID:
                key = interned[KEYS].get(part.value, "")
            elif part.number == _TEXT_ID:
                value = interned[TEXTS].get(part.value, "")
            elif part.number == _BOOL:
                value = bool(part.value)
            elif part.number in (_UINT, _INT, _POINTER):
                value = read_signed(part.value)
        elif part.kind == EIGHT_BYTES and part.number == _DOUBLE:
            value = read_double(data, part)
        elif part.kind == BYTES:
            if part.number == _KEY:
                key = read_text(data, part)
            elif part.number == _TEXT:
                value = read_text(data, part)
            elif part.number == _JSON:
                value = _decode_json(read_text(data, part))
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


def _decode_json(text: str) -> Any:
    """Return what JSON says; a text that is none is itself."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return text
