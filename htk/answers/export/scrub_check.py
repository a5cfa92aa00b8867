"""Reads what scrubbing wrote, and looks in it for every text that should be gone.

It trusts nothing of how the file was made: each string of the file is compared with each text that
was removed, as a whole, and searched for texts of eight characters and more.
"""

from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from htk.answers.export.pieces import EventPieces
from htk.answers.export.scrub import (
    Holds,
    find_value_keys,
    is_replacement,
    list_vocabulary,
    number_as_text,
    unescape_json,
)
from htk.base.errors import HtkError
from htk.base.io.decompress import Stream, open_stream

_BLOCK_BYTES = 2 << 20
PART_LENGTH = 8  # bytes from which a removed text is looked for within others too


class Leak(HtkError):
    """A text that should be gone is in what was written."""


def check_removed_texts(files: Iterable[Path], removed: Collection[str]) -> None:
    """Raise Leak if any file holds a text that should be gone."""
    strings = set[str]()
    numbers = set[str]()
    for file in files:
        _collect_strings(file, strings, numbers)
    gone = {text for text in removed if text and not is_replacement(text)}
    leaked = next((text for text in gone if text in strings), None) or _find_part(strings, gone)
    if leaked is not None:
        raise Leak(
            f"scrub: {leaked!r} was replaced and is still in what was written, which is removed;"
            " please report it"
        )


def _collect_strings(file: Path, strings: set[str], numbers: set[str]) -> None:
    """Gather each distinct string of a file: numbers behind keys that hold numbers apart."""
    with file.open("rb") as stored, open_stream(stored) as stream:
        for text in _read_lines(stream):
            pieces = EventPieces(text)
            behind_numeric = (find_value_keys(pieces) == Holds.NUMBERS) & ~pieces.is_key
            numbers.update(map(unescape_json, pieces.strings(behind_numeric)))
            strings.update(map(unescape_json, pieces.strings(~behind_numeric)))
    strings.update(number for number in numbers if not number_as_text(number))


def _read_lines(stream: Stream) -> Iterator[bytes]:
    """Whole lines of a file, many at a time: no string of valid JSON goes over the end of one."""
    blocks = [b""]
    length = 0
    while block := stream.read(_BLOCK_BYTES):
        end = block.rfind(b"\n") + 1
        length += len(block)
        if not end or length < _BLOCK_BYTES:
            blocks.append(block)
            continue
        yield b"".join((*blocks, block[:end]))
        blocks = [block[end:]]
        length = len(block) - end
    yield b"".join(blocks)


def _find_part(strings: Collection[str], gone: Collection[str]) -> str | None:
    """Return a text of eight bytes or more that is a part of any string; None: there is none."""
    written = "\n".join(sorted(strings))
    blob = written.encode("utf-8", "surrogatepass")
    windows = np.unique(_list_windows(blob))
    texts = [text for text in gone if len(text.encode("utf-8", "surrogatepass")) >= PART_LENGTH]
    texts = [text for text in texts if not number_as_text(text)]
    encoded = [text.encode("utf-8", "surrogatepass") for text in texts]
    ends = b"".join(text[:PART_LENGTH] + text[-PART_LENGTH:] for text in encoded)
    there = np.isin(np.frombuffer(ends, np.uint64), windows, assume_unique=False)
    suspects = np.flatnonzero(there[0::2] & there[1::2])
    public = list_vocabulary()
    for index in suspects.tolist():
        if texts[index] in written and texts[index] not in public:
            return texts[index]
    return None


def _list_windows(blob: bytes) -> NDArray[np.uint64]:
    """Return every eight bytes in a row, as numbers."""
    if len(blob) < PART_LENGTH:
        return np.zeros(0, np.uint64)
    views: list[NDArray[Any]] = []
    for shift in range(PART_LENGTH):
        count = (len(blob) - shift) // PART_LENGTH
        views.append(np.frombuffer(blob, np.uint64, count, shift))
    return np.concatenate(views)
