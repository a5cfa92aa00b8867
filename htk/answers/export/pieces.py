"""Events as text, rewritten without a loop over them: what stands between quotes has a code.

A run of whole events is cut at its quotes into pieces. Equal pieces are looked at once, and the
compiled core or Arrow puts all of them together again.
"""

from collections.abc import Callable

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from htk.answers.export.json_strings import Codes, join_text_pieces, json_strings, take_between_cuts

_QUOTE, _COLON, _SPACE = b'": '
_MOST_LETTERS = 64  # of a number, or of white space before one; more are passed over otherwise
_SHORTEST_NUMBER = 5  # bytes of a piece that holds a number: ":5,"

Chosen = NDArray[np.bool_]  # of the strings
Positions = NDArray[np.int64]
Rewrite = Callable[[bytes], bytes]

_BEFORE_VALUE = np.zeros(256, bool)
_BEFORE_VALUE[: _SPACE + 1] = _BEFORE_VALUE[_COLON] = True
_WITHIN_SCALAR = np.ones(256, bool)
_WITHIN_SCALAR[: _SPACE + 1] = False
_WITHIN_SCALAR[list(b",}]")] = False


class EventPieces:
    """The pieces of a run of valid JSON events, and what is to stand in their place."""

    def __init__(self, text: bytes) -> None:
        self._text = text
        self._letters = np.frombuffer(text, np.uint8)
        self._strings = strings = json_strings(text)
        self._pieces = take_between_cuts(text, strings.cuts)
        self._order = np.arange(len(self._pieces), dtype=np.int32)
        self._added: list[bytes] = []
        self.codes = strings.codes
        self.distinct: pa.BinaryArray = self._pieces.take(pa.array(2 * strings.firsts + 1))
        self.is_key = strings.is_key
        self.is_own_key = strings.is_own_key  # of events themselves, not of what is in them
        # The code of the key that each string, or what follows it, belongs to: the last key
        # before it; -1 where an object ended in between.
        self.keys = strings.keys
        # An object ends behind them, and perhaps a number follows in the list that holds it.
        self.before_unkeyed_number = strings.before_unkeyed
        lengths = strings.cuts[3::2] - strings.cuts[2:-1:2]
        self.may_precede_number: Chosen = lengths >= _SHORTEST_NUMBER
        self.may_precede_number[-1:] = True  # no quote ends the last piece

    def events(self) -> tuple[Codes, Codes]:
        """Return where each event begins and ends."""
        return self._strings.starts, self._strings.ends

    def event_of(self, chosen: Chosen) -> Positions:
        """Return the number of the event that each chosen string stands in."""
        return self.event_at(self._strings.cuts[1:-1:2][chosen])

    def event_at(self, positions: Positions | Codes) -> Positions:
        """Return the number of the event that each position of the text lies in."""
        starts, _ = self.events()
        return np.searchsorted(starts, positions, side="right") - 1

    def values(self, keys: Chosen) -> tuple[Positions, Positions]:
        """Return where the values of keys begin and end, but for lists and objects."""
        closing = self._strings.cuts[2::2]
        numbers = np.flatnonzero(keys)
        start = _skip_letters(self._letters, closing[numbers].astype(np.int64) + 1, _BEFORE_VALUE)
        end = _skip_letters(self._letters, start, _WITHIN_SCALAR)
        text = self._letters[start] == _QUOTE
        end[text] = closing[numbers[text] + 1] + 1
        plain = ~np.isin(self._letters[start], np.frombuffer(b"[{", np.uint8))
        return start[plain], end[plain]

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
        return self._list_texts(self._find_used(codes))

    def replace_strings(self, chosen: Chosen, to: Rewrite) -> None:
        """Put what `to` makes of each distinct string among the chosen in its place."""
        used = self._find_used(self.codes[chosen])
        new = np.full(len(self.distinct), -1, np.int32)
        for code, piece in zip(used.tolist(), self._list_texts(used), strict=True):
            new[code] = self._code_replacement(piece, to(piece))
        replaced = np.flatnonzero(chosen & (new[self.codes] >= 0))
        self._order[2 * replaced + 1] = new[self.codes[replaced]]

    def replace_after(self, chosen: Chosen, to: Rewrite) -> None:
        """Put what `to` makes of what follows the chosen strings, up to the next, in its place."""
        positions = np.flatnonzero(chosen)
        if len(positions):
            codes, distinct = self._take_following(positions)
            new = np.array(
                [self._code_replacement(piece, to(piece)) for piece in distinct], np.int32
            )[codes]
            replaced = new >= 0
            self._order[2 * positions[replaced] + 2] = new[replaced]

    def joined(self) -> bytes:
        """Return the text with what was replaced."""
        added = pa.array(self._added, pa.binary())
        return join_text_pieces(self._text, self._strings.cuts, added, self._order)

    def _code_replacement(self, piece: bytes, replacement: bytes) -> int:
        """Return the code of a replacement, -1 where there is none."""
        if replacement == piece:
            return -1
        self._added.append(replacement)
        return len(self._pieces) + len(self._added) - 1

    def _take_following(self, positions: NDArray[np.int64]) -> tuple[Codes, list[bytes]]:
        """Return the codes and texts of what follows some strings."""
        numbers = pa.array((2 * positions + 2).astype(np.int32))
        encoded = self._pieces.take(numbers).dictionary_encode()
        return encoded.indices.to_numpy(), encoded.dictionary.to_pylist()

    def _find_used(self, codes: Codes) -> NDArray[np.int64]:
        flags = np.zeros(len(self.distinct), bool)
        flags[codes] = True
        return np.flatnonzero(flags)

    def _list_texts(self, codes: NDArray[np.int64]) -> list[bytes]:
        texts: list[bytes] = self.distinct.take(pa.array(codes)).to_pylist()
        return texts


def splice_text(text: bytes, starts: Positions, ends: Positions, replacements: pa.Array) -> bytes:
    """Return a text with other bytes from each start to its end; the spans do not overlap."""
    order = np.argsort(starts)
    cuts = np.empty(2 * len(starts) + 2, np.int32)
    cuts[0], cuts[-1] = 0, len(text)
    cuts[1:-1:2] = starts[order]
    cuts[2:-1:2] = ends[order]
    numbers = np.arange(len(cuts) - 1, dtype=np.int32)
    numbers[1::2] = len(numbers) + order
    return join_text_pieces(text, cuts, replacements.cast(pa.binary()), numbers)


def cut_pieces(text: bytes, starts: Positions, ends: Positions) -> pa.Array:
    """Return what stands from each start to its end; the spans are in order."""
    cuts = np.empty(2 * len(starts) + 2, np.int32)
    cuts[0], cuts[-1] = 0, len(text)
    cuts[1:-1:2] = starts
    cuts[2:-1:2] = ends
    pieces = take_between_cuts(text, cuts)
    return pieces.take(pa.array(np.arange(1, len(pieces), 2, dtype=np.int32)))


def _skip_letters(
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
