"""Events as text, rewritten without a loop over them: what stands between quotes has a code.

A run of whole events is cut at its quotes into pieces: what is outside of a string (punctuation,
numbers, and the quotes), what is inside of one, and so on in turns. Equal pieces are looked at
once, and Arrow puts all of them together again.
"""

from collections.abc import Callable
from functools import cached_property

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

_QUOTE, _BACKSLASH, _COLON, _CLOSING, _SPACE = b'"\\:} '
_COMMA, _BRACKET, _MINUS, _ZERO, _NINE = b",]-09"
_MOST_PUNCTUATION = 32
_MOST_LETTERS = 64  # of a number, or of white space before one; more are passed over otherwise
_SHORTEST_NUMBER = 5  # bytes of a piece that holds a number: ":5,"

Codes = NDArray[np.int32]
Chosen = NDArray[np.bool_]  # of the strings
Positions = NDArray[np.int64]
Rewrite = Callable[[bytes], bytes]

_STEP = np.zeros(256, np.int8)
_STEP[list(b"{[")] = 1
_STEP[list(b"}]")] = -1
_IS_BRACKET = _STEP != 0
_BEFORE_VALUE = np.zeros(256, bool)
_BEFORE_VALUE[: _SPACE + 1] = _BEFORE_VALUE[_COLON] = True
_WITHIN_SCALAR = np.ones(256, bool)
_WITHIN_SCALAR[: _SPACE + 1] = False
_WITHIN_SCALAR[list(b",}]")] = False


class EventPieces:
    """The pieces of a run of valid JSON events, and what is to stand in their place."""

    def __init__(self, text: bytes) -> None:
        self._letters = letters = np.frombuffer(text, np.uint8)
        self._quotes = quotes = _quotes(letters)
        offsets = np.empty(len(quotes) + 2, np.int32)
        offsets[0], offsets[-1] = 0, len(text)
        offsets[1:-1] = quotes
        offsets[1:-1:2] += 1  # an opening quote belongs to what is before it
        self._pieces = _between(text, offsets)
        self._order = np.arange(len(offsets) - 1, dtype=np.int32)
        self._added: list[bytes] = []
        strings = self._pieces.take(pa.array(self._order[1::2])).dictionary_encode()
        self.codes: Codes = strings.indices.to_numpy()
        self.distinct: pa.BinaryArray = strings.dictionary
        self.is_key = self._before_colon(letters, quotes[1::2])
        # Which pieces outside of strings close an object: what follows belongs to no key before.
        self._closes = np.zeros(len(self.codes) + 1, bool)
        closing = np.flatnonzero(letters == _CLOSING)
        before = np.searchsorted(quotes, closing)
        outside = before % 2 == 0
        self._closes[before[outside] // 2] = True
        self._numbered = np.zeros(len(self._closes), bool)
        self._numbered[before[outside][_number_follows(letters, closing[outside])] // 2] = True
        lengths = offsets[3::2] - offsets[2:-1:2]
        self.may_precede_number: Chosen = lengths >= _SHORTEST_NUMBER
        self.may_precede_number[-1:] = True  # no quote ends the last piece

    def _before_colon(self, letters: NDArray[np.uint8], ends: NDArray[np.int64]) -> Chosen:
        """Return which strings are keys: a colon follows, perhaps behind white space."""
        following = letters[np.minimum(ends + 1, len(letters) - 1)]
        is_key = following == _COLON
        blank = np.flatnonzero(following <= _SPACE)
        if len(blank):
            codes, distinct = self._after(blank)
            colon = [piece[1:].lstrip().startswith(b":") for piece in distinct]
            is_key[blank] = np.array(colon, bool)[codes]
        return np.asarray(is_key)

    def keys(self) -> Codes:
        """Return the code of the key that each string, or what follows it, belongs to: the last key
        before it; -1 where an object ended in between."""
        numbers = np.arange(len(self.is_key), dtype=np.int32)
        unkeyed = self._closes[:-1] & ~self.is_key  # in a list, behind an object of that list
        last = np.maximum.accumulate(np.where(self.is_key | unkeyed, numbers, 0))
        codes = self.codes[last]
        codes[~self.is_key[last]] = -1
        return np.asarray(codes)

    def events(self) -> tuple[Positions, Positions]:
        """Return where each event begins and ends."""
        positions, depths = self._brackets
        opening = np.append(0, depths[:-1]) == 0
        return positions[opening], positions[depths == 0] + 1

    def own_keys(self) -> Chosen:
        """Return which strings are keys of events themselves, not of what is in them."""
        positions, depths = self._brackets
        before = np.searchsorted(positions, self._quotes[::2]) - 1
        return np.asarray(self.is_key & (depths[before] == 1))

    def event_of(self, chosen: Chosen) -> Positions:
        """Return the number of the event that each chosen string stands in."""
        starts, _ = self.events()
        return np.searchsorted(starts, self._quotes[::2][chosen], side="right") - 1

    def values(self, keys: Chosen) -> tuple[Positions, Positions]:
        """Return where the values of keys begin and end, but for lists and objects."""
        closing = self._quotes[1::2]
        start = _passed(self._letters, closing[keys] + 1, _BEFORE_VALUE)
        end = _passed(self._letters, start, _WITHIN_SCALAR)
        text = self._letters[start] == _QUOTE
        end[text] = closing[np.flatnonzero(keys)[text] + 1] + 1
        plain = ~np.isin(self._letters[start], np.frombuffer(b"[{", np.uint8))
        return start[plain], end[plain]

    @cached_property
    def _brackets(self) -> tuple[Positions, Positions]:
        """Where objects and lists begin or end, and how deep what follows lies."""
        positions = np.flatnonzero(_IS_BRACKET[self._letters])
        positions = positions[np.searchsorted(self._quotes, positions) % 2 == 0]
        return positions, np.cumsum(_STEP[self._letters[positions]], dtype=np.int64)

    def equal(self, text: str) -> Chosen:
        """Return which strings are this one, as it stands."""
        code = self.distinct.index(pa.scalar(text.encode(), pa.binary())).as_py()
        return np.asarray(self.codes == code)

    def text(self, code: int) -> bytes:
        """Return a distinct string, escapes as they stand."""
        return bytes(self.distinct[code].as_py())

    def strings(self, chosen: Chosen | None = None) -> list[bytes]:
        """Return each distinct string once, keys included, escapes as they stand."""
        codes = self.codes if chosen is None else self.codes[chosen]
        return self._texts(self._used(codes))

    def replace_strings(self, chosen: Chosen, to: Rewrite) -> None:
        """Put what `to` makes of each distinct string among the chosen in its place."""
        used = self._used(self.codes[chosen])
        new = np.full(len(self.distinct), -1, np.int32)
        for code, piece in zip(used.tolist(), self._texts(used), strict=True):
            new[code] = self._code(piece, to(piece))
        replaced = np.flatnonzero(chosen & (new[self.codes] >= 0))
        self._order[2 * replaced + 1] = new[self.codes[replaced]]

    def replace_after(self, chosen: Chosen, to: Rewrite) -> None:
        """Put what `to` makes of what follows the chosen strings, up to the next, in its place."""
        positions = np.flatnonzero(chosen)
        if len(positions):
            codes, distinct = self._after(positions)
            new = np.array([self._code(piece, to(piece)) for piece in distinct], np.int32)[codes]
            replaced = new >= 0
            self._order[2 * positions[replaced] + 2] = new[replaced]

    def before_unkeyed_number(self) -> Chosen:
        """Return which strings are followed by the end of an object and perhaps a number in the
        list that holds the object."""
        return np.asarray(self._numbered[1:])

    def joined(self) -> bytes:
        """Return the text with what was replaced."""
        pieces = pa.concat_arrays([self._pieces, pa.array(self._added, pa.binary())])
        return _joined(pieces, self._order)

    def _code(self, piece: bytes, replacement: bytes) -> int:
        """Return the code of a replacement, -1 where there is none."""
        if replacement == piece:
            return -1
        self._added.append(replacement)
        return len(self._pieces) + len(self._added) - 1

    def _after(self, positions: NDArray[np.int64]) -> tuple[Codes, list[bytes]]:
        """Return the codes and texts of what follows some strings."""
        numbers = pa.array((2 * positions + 2).astype(np.int32))
        encoded = self._pieces.take(numbers).dictionary_encode()
        return encoded.indices.to_numpy(), encoded.dictionary.to_pylist()

    def _used(self, codes: Codes) -> NDArray[np.int64]:
        flags = np.zeros(len(self.distinct), bool)
        flags[codes] = True
        return np.flatnonzero(flags)

    def _texts(self, codes: NDArray[np.int64]) -> list[bytes]:
        texts: list[bytes] = self.distinct.take(pa.array(codes)).to_pylist()
        return texts


def spliced(text: bytes, starts: Positions, ends: Positions, replacements: pa.Array) -> bytes:
    """Return a text with other bytes from each start to its end; the spans do not overlap."""
    order = np.argsort(starts)
    cuts = np.empty(2 * len(starts) + 2, np.int32)
    cuts[0], cuts[-1] = 0, len(text)
    cuts[1:-1:2], cuts[2:-1:2] = starts[order], ends[order]
    pieces = _between(text, cuts)
    numbers = np.arange(len(pieces), dtype=np.int32)
    numbers[1::2] = len(pieces) + order
    return _joined(pa.concat_arrays([pieces, replacements.cast(pa.binary())]), numbers)


def cut(text: bytes, starts: Positions, ends: Positions) -> pa.Array:
    """Return what stands from each start to its end; the spans are in order."""
    cuts = np.empty(2 * len(starts) + 2, np.int32)
    cuts[0], cuts[-1] = 0, len(text)
    cuts[1:-1:2], cuts[2:-1:2] = starts, ends
    pieces = _between(text, cuts)
    return pieces.take(pa.array(np.arange(1, len(pieces), 2, dtype=np.int32)))


def _between(text: bytes, cuts: NDArray[np.int32]) -> pa.BinaryArray:
    buffers = [None, pa.py_buffer(np.ascontiguousarray(cuts)), pa.py_buffer(text)]
    return pa.BinaryArray.from_buffers(pa.binary(), len(cuts) - 1, buffers)


def _joined(pieces: pa.Array, numbers: Codes) -> bytes:
    chosen = pieces.take(pa.array(numbers))
    offsets = np.frombuffer(chosen.buffers()[1], np.int32)[: len(chosen) + 1]
    return bytes(memoryview(chosen.buffers()[2])[: offsets[-1]])


def _passed(
    letters: NDArray[np.uint8], positions: Positions, skipped: NDArray[np.bool_]
) -> Positions:
    """Return where the first letter that is not skipped stands, from each position on."""
    positions = np.minimum(positions, len(letters) - 1)
    moving = np.flatnonzero(skipped[letters[positions]])
    for _ in range(_MOST_LETTERS):
        if not len(moving):
            return positions
        positions[moving] = np.minimum(positions[moving] + 1, len(letters) - 1)
        moving = moving[skipped[letters[positions[moving]]]]
    stops = np.append(np.flatnonzero(~skipped[letters]), len(letters) - 1)
    positions[moving] = stops[np.searchsorted(stops[:-1], positions[moving])]
    return positions


def _number_follows(letters: NDArray[np.uint8], closing: NDArray[np.int64]) -> Chosen:
    """Whether a number may be the next thing behind each closing brace, but for punctuation."""
    following = closing + 1
    for _ in range(_MOST_PUNCTUATION):
        letter = letters[np.minimum(following, len(letters) - 1)]
        skipped = (letter <= _SPACE) | (letter == _COMMA) | (letter == _BRACKET)
        skipped &= following < len(letters)
        if not skipped.any():
            return np.asarray((letter == _MINUS) | ((letter >= _ZERO) & (letter <= _NINE)))
        following = following + skipped
    return np.ones(len(closing), bool)


def _quotes(letters: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Return where strings begin and end: quotes that no backslash takes the meaning of."""
    quotes = np.flatnonzero(letters == _QUOTE)
    suspects = quotes[(quotes > 0) & (letters[quotes - 1] == _BACKSLASH)]
    if not len(suspects):
        return quotes
    slashes = np.flatnonzero(letters == _BACKSLASH)
    first = np.append(True, slashes[1:] != slashes[:-1] + 1)
    run_start = np.maximum.accumulate(np.where(first, slashes, 0))
    last = np.searchsorted(slashes, suspects - 1)
    escaped = (suspects - run_start[last]) % 2 == 1
    return np.setdiff1d(quotes, suspects[escaped], assume_unique=True)
