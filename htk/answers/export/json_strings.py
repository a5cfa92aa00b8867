"""The strings of JSON text, where they stand and what each is: found in the compiled core, or here.

Text is cut at its quotes: what is outside of a string (punctuation, numbers, and the quotes), what
is inside of one, and so on in turns. The other way round, pieces of texts are put together.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from htk.base.core.engine import choose_engine, load_core

_QUOTE, _BACKSLASH, _COLON, _CLOSING, _SPACE = b'"\\:} '
_COMMA, _BRACKET, _MINUS, _ZERO, _NINE = b",]-09"
_MOST_PUNCTUATION = 32
_IS_KEY, _IS_OWN_KEY, _BEFORE_UNKEYED = 1, 2, 4  # StringFlag of the core

Codes = NDArray[np.int32]
Flags = NDArray[np.bool_]
_Letters = NDArray[np.uint8]
_Positions = NDArray[np.int64]

_STEP = np.zeros(256, np.int8)
_STEP[list(b"{[")] = 1
_STEP[list(b"}]")] = -1
_IS_BRACKET = _STEP != 0


@dataclass(frozen=True)
class JsonStrings:
    """The strings of a text, in order."""

    cuts: Codes  # where each piece begins, and the last one ends; strings are the odd pieces
    codes: Codes  # equal strings, escapes as they stand, have equal codes
    keys: Codes  # the code of the last key up to a string; -1 where an object ended in between
    firsts: Codes  # by code: the first string of it
    is_key: Flags
    is_own_key: Flags  # of an object of the outermost list, not of what is in it
    before_unkeyed: Flags  # an object ends behind it, and perhaps a number follows in that list
    starts: Codes  # of the outermost objects
    ends: Codes


def json_strings(text: bytes) -> JsonStrings:
    """Return the strings of a text, which does not end within one."""
    compiled: Any = load_core() if choose_engine() == "compiled" else None
    if compiled is None:
        return json_strings_pure(text)
    *columns, flags, starts, ends = compiled.json_strings(text)
    cuts, codes, keys, firsts = (np.frombuffer(column, np.int32) for column in columns)
    flag = np.frombuffer(flags, np.uint8)
    each = (flag & bit != 0 for bit in (_IS_KEY, _IS_OWN_KEY, _BEFORE_UNKEYED))
    spans = (np.frombuffer(column, np.int32) for column in (starts, ends))
    return JsonStrings(cuts, codes, keys, firsts, *each, *spans)


def json_strings_pure(text: bytes) -> JsonStrings:
    """Return the strings of a text as `json_strings` does, without the compiled core."""
    letters = np.frombuffer(text, np.uint8)
    quotes = _find_quotes(letters)
    cuts = np.empty(len(quotes) + 2, np.int32)
    cuts[0], cuts[-1] = 0, len(text)
    cuts[1:-1] = quotes
    cuts[1:-1:2] += 1  # an opening quote belongs to what is before it
    pieces = take_between_cuts(text, cuts)
    inside = np.arange(1, len(pieces), 2, dtype=np.int32)
    codes = pieces.take(pa.array(inside)).dictionary_encode().indices.to_numpy()
    is_key = _before_colon(letters, quotes[1::2], pieces)
    closes = np.zeros(len(codes) + 1, bool)  # of pieces outside of strings
    before_unkeyed = closes.copy()
    closing = np.flatnonzero(letters == _CLOSING)
    before = np.searchsorted(quotes, closing)
    outside = before % 2 == 0
    closes[before[outside] // 2] = True
    before_unkeyed[before[outside][_number_follows(letters, closing[outside])] // 2] = True
    positions = np.flatnonzero(_IS_BRACKET[letters])
    positions = positions[np.searchsorted(quotes, positions) % 2 == 0]
    depths = np.cumsum(_STEP[letters[positions]], dtype=np.int64)
    opening = np.append(0, depths[:-1])[: len(positions)] == 0
    return JsonStrings(
        cuts,
        codes,
        _find_keys(codes, is_key, closes),
        np.unique(codes, return_index=True)[1].astype(np.int32),
        is_key,
        is_key & (np.append(0, depths)[np.searchsorted(positions, quotes[::2])] == 1),
        before_unkeyed[1:],
        positions[opening].astype(np.int32),
        positions[depths == 0].astype(np.int32) + 1,
    )


def take_between_cuts(text: bytes, cuts: Codes) -> pa.BinaryArray:
    """Return what stands from each cut to the next."""
    buffers = [None, pa.py_buffer(np.ascontiguousarray(cuts)), pa.py_buffer(text)]
    return pa.BinaryArray.from_buffers(pa.binary(), len(cuts) - 1, buffers)


def join_text_pieces(text: bytes, cuts: Codes, added: pa.BinaryArray, numbers: Codes) -> bytes:
    """Return pieces put together: number n is what stands from cut n to the next, numbers behind
    the last of them are those of what is added."""
    compiled: Any = load_core() if choose_engine() == "compiled" else None
    if compiled is not None:
        offsets, data = added.buffers()[1:]
        begin = added.offset
        end = added.offset + len(added) + 1
        within = np.frombuffer(offsets, np.int32)[begin:end] if offsets else np.zeros(1, np.int32)
        new: bytes = compiled.join(text, cuts, data or b"", within, numbers)
        return new
    chosen = pa.concat_arrays([take_between_cuts(text, cuts), added]).take(pa.array(numbers))
    ends = np.frombuffer(chosen.buffers()[1], np.int32)[: len(chosen) + 1]
    return bytes(memoryview(chosen.buffers()[2])[: ends[-1]])


def _find_keys(codes: Codes, is_key: Flags, closes: Flags) -> Codes:
    numbers = np.arange(len(codes), dtype=np.int32)
    unkeyed = closes[:-1] & ~is_key  # in a list, behind an object of that list
    last = np.maximum.accumulate(np.where(is_key | unkeyed, numbers, 0))
    keys = codes[last]
    keys[~is_key[last]] = -1
    return np.asarray(keys)


def _before_colon(letters: _Letters, ends: _Positions, pieces: pa.BinaryArray) -> Flags:
    """Return which strings are keys: a colon follows, perhaps behind white space."""
    following = letters[np.minimum(ends + 1, len(letters) - 1)]
    is_key = following == _COLON
    blank = np.flatnonzero(following <= _SPACE)
    if len(blank):
        after = pieces.take(pa.array((2 * blank + 2).astype(np.int32))).dictionary_encode()
        colon = [piece[1:].lstrip().startswith(b":") for piece in after.dictionary.to_pylist()]
        is_key[blank] = np.array(colon, bool)[after.indices.to_numpy()]
    return np.asarray(is_key)


def _number_follows(letters: _Letters, closing: _Positions) -> Flags:
    """Return whether a number may come next after each closing brace, punctuation aside."""
    following = closing + 1
    for _ in range(_MOST_PUNCTUATION):
        letter = letters[np.minimum(following, len(letters) - 1)]
        skipped = (letter <= _SPACE) | (letter == _COMMA) | (letter == _BRACKET)
        skipped &= following < len(letters)
        if not skipped.any():
            return np.asarray((letter == _MINUS) | ((letter >= _ZERO) & (letter <= _NINE)))
        following = following + skipped
    return np.ones(len(closing), bool)


def _find_quotes(letters: _Letters) -> _Positions:
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
