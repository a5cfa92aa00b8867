"""What each share of `htk map` has to store, noted beside the entries before it begins.

A share that is cut short leaves its note, so that who opens the store learns which files it lacks:
the entries alone, named by content, tell only what is there.
"""

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field

from htk.base.core.humanize import format_int_ranges

AGAIN = "run htk map again"
NO_TRACE = "no trace"
MOST_SHARES = 999_999


@dataclass(frozen=True)
class ShareNote:
    """The files of one share of a run, and what became of those without an entry."""

    inputs: str
    number: int
    count: int
    written: float  # seconds since 1970
    keys: Mapping[str, str | None]  # of each file; None: it could not be read
    left: Mapping[str, str] = field(default_factory=dict)  # why files have no entry

    @property
    def name(self) -> str:
        """Its name in the store: a share that is run again writes its note anew."""
        inputs = hashlib.sha256(self.inputs.encode()).hexdigest()[:16]
        return f"share-{inputs}-{self.number}-of-{self.count}.json"

    def packed(self) -> bytes:
        return json.dumps(asdict(self)).encode()


def notes_of(contents: Iterable[bytes | Exception]) -> list[ShareNote]:
    """Return what notes hold, the oldest first; what is no note says nothing."""
    notes = [_parse_note(content) for content in contents if isinstance(content, bytes)]
    return sorted((note for note in notes if note), key=lambda note: note.written)


def _parse_note(content: bytes) -> ShareNote | None:
    try:
        note = ShareNote(**json.loads(content))
        numbered = 1 <= int(note.number) <= int(note.count) <= MOST_SHARES
        texts = [note.inputs, *note.keys, *note.left.values(), *filter(None, note.keys.values())]
        sound = numbered and float(note.written) >= 0 and all(isinstance(t, str) for t in texts)
    except (ValueError, TypeError, AttributeError):
        return None
    return note if sound else None


def not_stored(
    notes: Sequence[ShareNote], stored: Iterable[str]
) -> tuple[list[str], list[tuple[str, str]]]:
    """Return the files that are no traces; those that shares have not stored, and why, with shares
    of which there is no sign."""
    there = set(stored)
    last = {file: note for note in notes for file in note.keys}  # who was last to begin it
    without = {file: note for file, note in last.items() if note.keys[file] not in there}
    why = {file: note.left.get(file) or _cut_short(note) for file, note in without.items()}
    unread = [file for file, reason in why.items() if reason == NO_TRACE]
    lacking = [(file, reason) for file, reason in why.items() if reason != NO_TRACE]
    return unread, lacking + _not_begun(notes)


def _cut_short(note: ShareNote) -> str:
    return f"share {note.number}/{note.count} has not stored it: cut short or at work; {AGAIN}"


def _not_begun(notes: Sequence[ShareNote]) -> list[tuple[str, str]]:
    """Return the inputs of which shares are missing, however they were divided last."""
    begun: dict[str, dict[int, set[int]]] = defaultdict(dict)
    for note in notes:
        begun[note.inputs].setdefault(note.count, set()).add(note.number)
    lacking = []
    for inputs, by_count in begun.items():
        missing = {n: set(range(1, n + 1)) - numbers for n, numbers in by_count.items()}
        if all(missing.values()):
            count, numbers = next(reversed(missing.items()))
            shares = f"shares {format_int_ranges(sorted(numbers))} of {count}"
            lacking.append((inputs, f"{shares} have not begun; {AGAIN} for them"))
    return lacking
