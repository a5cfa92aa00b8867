"""The compiled core's reading of JSON, byte for byte, in Python: tokens, members, values.

Slow, and therefore used only where msgspec will not go: the header, damaged events, and values of
an unusual type. Strict about structure (keys, colons, commas), lenient about what lies within a
value, as the core is.
"""

import re
from typing import Any, NamedTuple

from htk.parsers.kineto.columns import Kind

_SPACE = re.compile(rb"[\x00-\x20]*")
_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.S)
_BRACKET = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|["\[\]{}]', re.S)
_SCALAR = re.compile(rb"[^,}\]\x00-\x20]*")
_SCALAR_START = re.compile(rb"[-0-9A-Za-z]")
_LOOSE_SPACE = re.compile(rb'("[^"\\]*(?:\\.[^"\\]*)*"?)|[\x00-\x20]+', re.S)
_EVENT_START = re.compile(rb'\{[\x00-\x20]*"(?:ph|name|cat|pid|tid|ts|args|bp|dur|id)"')
_EVENT_CUT = re.compile(rb'\{[\x00-\x20]*(?:"[a-z]{0,4})?\Z')
SPACES = bytes(range(0x21))  # what the core takes for white space
_BORDERS = (b",", b"[", b"}")
_HEADER_KEY = re.compile(rb',[\x00-\x20]*("[A-Za-z0-9_ ]*"[\x00-\x20]*:)')
_HEADER_KEY_CUT = re.compile(rb',[\x00-\x20]*(?:"[A-Za-z0-9_ ]*(?:"[\x00-\x20]*)?)?\Z')
_ESCAPE = re.compile(r'\\(?:u([0-9A-Fa-f]{4})|(["\\/bfnrt]))')
_MEANT = dict(zip('"\\/bfnrt', '"\\/\b\f\n\r\t', strict=True))
_SURROGATE = re.compile("([\ud800-\udbff])([\udc00-\udfff])|[\ud800-\udfff]")
_NUMBER = re.compile(r"([+-]?)(?:(\d+)\.?(\d*)|\.(\d+))(?:[eE]([+-]?)0*(\d+))?", re.A)
_HEXADECIMAL = re.compile(r"0[xX][0-9A-Fa-f]+")
_NO_NUMBER = re.compile(r"[+-]?(nan|inf|infinity)", re.I | re.A)  # without re.A also "ınf"
_PLAIN_ID = re.compile(r"0|[1-9][0-9]{0,17}", re.A)
_INT64 = range(-(2**63), 2**63)


class NeedMore(Exception):
    """The input ends inside a token."""


class Broken(Exception):
    """Not JSON, or not an event."""

    def __init__(self, why: str, offset: int) -> None:
        super().__init__(why)
        self.why = why
        self.at = offset


class Mistyped(Exception):
    """A value of another type than its column's."""


class Member(NamedTuple):
    """A member of an object: its key and value as they stand in the file."""

    key: bytes  # with its quotes
    value: bytes


def skip_space(text: bytes, offset: int) -> int:
    """Return where the next token begins."""
    match = _SPACE.match(text, offset)
    assert match is not None  # it may be empty
    if match.end() >= len(text):
        raise NeedMore
    return match.end()


def value_end(text: bytes, offset: int) -> int:
    """Return where the value ends that begins here."""
    first = text[offset : offset + 1]
    if first == b'"':
        return _string_end(text, offset)
    if first in (b"[", b"{"):
        return _nested_end(text, offset)
    match = _SCALAR.match(text, offset)
    assert match is not None  # it may be empty
    if match.end() >= len(text):
        raise NeedMore
    if match.end() == offset or not _SCALAR_START.match(first):
        raise Broken("value expected", offset)
    return match.end()


def scan_members(text: bytes, offset: int, inner: str | None = None) -> tuple[list[Member], int]:
    """Return the members of the object that begins here, and where it ends.

    The value of the key `inner` must have the structure of an object too, if it begins like one.
    """
    parsed: list[Member] = []
    offset = skip_space(text, offset + 1)
    if text[offset] == ord("}"):
        return parsed, offset + 1
    while True:
        start = offset
        end = key_end(text, offset)
        key = text[start:end]
        offset = value_start(text, end)
        if text[offset] == ord("{") and inner is not None and unquote_string(key) == inner:
            end = scan_members(text, offset)[1]
        else:
            end = value_end(text, offset)
        parsed.append(Member(key, text[offset:end]))
        offset = skip_space(text, end)
        if text[offset] == ord(","):
            offset = skip_space(text, offset + 1)
            if text[offset] != ord("}"):
                continue
        if text[offset] == ord("}"):
            return parsed, offset + 1
        raise Broken("',' or '}' expected", offset)


def by_key(members: list[Member]) -> dict[str, bytes]:
    """Return the members by their key; the last of a repeated key counts."""
    return {unquote_string(member.key): member.value for member in members}


def is_plain_id(value: str | int | float) -> bool:
    """Return whether an id is a whole number in its only spelling."""
    return _PLAIN_ID.fullmatch(str(value)) is not None


def nanos_line(value: Any) -> bytes:
    """Return nanoseconds as a line of microseconds, an empty one for none."""
    if value is None:
        return b"\n"
    micros, thousandths = divmod(abs(value), 1000)
    return b"%s%d.%03d\n" % (b"-" if value < 0 else b"", micros, thousandths)


def text_of(kind: Kind, key: Any) -> str:
    """Return a text from what it was told apart by: decoded, or as it stands in the file."""
    if isinstance(key, bytes):
        return str(convert_value(kind, key)) if key else ""
    return "" if key is None else str(key)


def key_end(text: bytes, offset: int) -> int:
    if text[offset] != ord('"'):
        raise Broken("key expected", offset)
    return _string_end(text, offset)


def value_start(text: bytes, offset: int) -> int:
    """Behind a key: where its value begins."""
    offset = skip_space(text, offset)
    if text[offset] != ord(":"):
        raise Broken("':' expected", offset)
    return skip_space(text, offset + 1)


def find_event(text: bytes, offset: int, before: bytes) -> int | None:
    """After damage: where something begins that looks like an event behind a border. `before` is
    the last character before the text that is no white space."""
    for match in _EVENT_START.finditer(text, offset):
        if last_solid(text, match.start(), before) in _BORDERS:
            return match.start()
    return None


def event_cut(text: bytes) -> int:
    """Return where the beginning of an event stands that the text's end cuts, or the end."""
    opening = text.rfind(b"{")
    return opening if opening >= 0 and _EVENT_CUT.match(text, opening) else len(text)


def header_key_cut(text: bytes) -> int:
    """Return where the beginning of a key stands that the text's end cuts, or the end."""
    comma = text.rfind(b",")
    return comma if comma >= 0 and _HEADER_KEY_CUT.match(text, comma) else len(text)


def last_solid(text: bytes | bytearray, end: int, before: bytes) -> bytes:
    """Return the last character before `end` that is no white space, `before` if there is none."""
    width = 1
    while width < 16 * end:
        if piece := bytes(text[max(end - width, 0) : end]).rstrip(SPACES):
            return piece[-1:]
        width *= 16
    return before


def find_header_key(text: bytes, offset: int) -> int | None:
    """After damage: where something begins that looks like a key behind a comma."""
    match = _HEADER_KEY.search(text, offset)
    return match.start(1) if match else None


def strip_white_space(text: bytes) -> bytes:
    """JSON without the white space outside its strings."""
    return _LOOSE_SPACE.sub(rb"\1", text)


def unquote_string(text: bytes) -> str:
    """Return what a JSON string, given with its quotes, says."""
    content = text[1:-1].decode("utf8", "replace")
    return _unescape_text(content) if "\\" in content else content


def convert_value(kind: Kind, text: bytes) -> int | float | str | None:
    """Return the value of a column of this kind; Mistyped if it is none."""
    if text == b"null":
        return None
    quoted = text[:1] == b'"'
    if kind == "json" or (kind == "text" and not quoted):
        return strip_white_space(text).decode("utf8", "replace")
    content = unquote_string(text) if quoted else text.decode("utf8", "replace")
    if kind == "text":
        return content
    return convert_number(kind, content, quoted)


def lacks_quote(text: bytes) -> bool:
    """Return whether a value holds a quote, and none that opens it."""
    return text[:1] not in (b'"', b"[", b"{") and b'"' in text


def convert_number(kind: Kind, literal: str, quoted: bool) -> int | float | None:
    """Return a number from its text, in quotes or not."""
    if kind == "floats":
        return _parse_float(literal, quoted)
    if kind == "ints" and quoted and _HEXADECIMAL.fullmatch(literal):
        value: int | None = int(literal, 16)
    else:
        value = (
            scale_decimal(literal, 3) if kind == "nanos" else scale_decimal(literal, 0, exact=True)
        )
    if value is None or value not in _INT64:
        raise Mistyped
    return value


def scale_decimal(literal: str, places: int, *, exact: bool = False) -> int | None:
    """Return a decimal number times 10 ** places as an integer, half to even; None if it is none.

    Also None if digits are lost that must be exact, or if it is far beyond 64 bits.
    """
    match = _NUMBER.fullmatch(literal)
    if match is None:
        return None
    sign, integer, fraction, bare_fraction, exponent_sign, exponent = match.groups("")
    fraction = fraction or bare_fraction
    digits = (integer + fraction).lstrip("0")
    if not digits:
        return 0
    power = int(exponent or 0) if len(exponent) < 10 else 10**9
    power = -power if exponent_sign == "-" else power
    keep = len(digits) - len(fraction) + power + places  # digits left of the unit
    if keep > 19:
        return None
    value = int(digits[:keep].ljust(keep, "0")) if keep > 0 else 0
    lost = digits[keep:] if keep >= 0 else "0" + digits
    if lost.strip("0"):
        if exact:
            return None
        half = lost[0] == "5" and not lost[1:].strip("0")
        value += (value & 1) if half else lost[0] >= "5"
    return -value if sign == "-" else value


def _parse_float(literal: str, quoted: bool) -> float | None:
    if quoted and literal == "N/A":
        return None  # Kineto's bandwidth of a copy of no length
    if _NUMBER.fullmatch(literal) or _NO_NUMBER.fullmatch(literal):
        return float(literal)
    raise Mistyped


def _string_end(text: bytes, offset: int) -> int:
    match = _STRING.match(text, offset)
    if match is None:
        raise NeedMore
    return match.end()


def _nested_end(text: bytes, offset: int) -> int:
    depth = 0
    for match in _BRACKET.finditer(text, offset):
        token = match.group()
        if token in (b"[", b"{"):
            depth += 1
        elif token in (b"]", b"}"):
            depth -= 1
            if depth <= 0:
                return match.end()
        elif token == b'"':  # a string without end
            break
    raise NeedMore


def _unescape_text(escaped: str) -> str:
    def decode_escape(match: re.Match[str]) -> str:
        code, letter = match.groups()
        return chr(int(code, 16)) if code else _MEANT[letter]

    return _SURROGATE.sub(_join_surrogates, _ESCAPE.sub(decode_escape, escaped))


def _join_surrogates(match: re.Match[str]) -> str:
    high, low = match.groups()
    if not high:
        return "\ufffd"
    return chr(0x10000 + ((ord(high) - 0xD800) << 10) + (ord(low) - 0xDC00))
