"""What people say of a run: its tags, and whether it was good. Notes are added, never changed.

Two that write at once write two notes, and both hold; of two that contradict each other, the newer.
"""

import re
import time
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from typing import Literal

import msgspec

from htk.base.errors import UsageError

SCHEMA = "htk.history.note/1"
Mark = Literal["good", "bad", ""]
NOTE_NAME = re.compile(r"([0-9a-f]{16})\.(\d{19})\.([0-9a-f]{8})\.json")
_KEY = re.compile(r"[A-Za-z_][\w.\-/]{0,63}")
_MOST_VALUE = 200  # characters


class Note(msgspec.Struct, frozen=True):
    """One note on a run."""

    schema: str
    run: str
    time_ns: int
    tags: dict[str, str] = {}
    mark: Mark = ""  # "": says nothing of it

    def encoded(self) -> tuple[str, bytes]:
        """Return the name and the content of the note's object."""
        name = f"{self.run}.{self.time_ns:019d}.{uuid.uuid4().hex[:8]}.json"
        return name, msgspec.json.encode(self)


def new_note(run: str, tags: Mapping[str, str], mark: Mark = "") -> Note:
    """Return a note that is written now."""
    return Note(SCHEMA, run, time.time_ns(), dict(tags), mark)


def read_note(content: bytes, run: str) -> Note:
    """Return a note that was written; ValueError if it is none of this run."""
    note = msgspec.json.decode(content, type=Note)
    if note.schema != SCHEMA or note.run != run:
        raise ValueError(f"a {note.schema!r} of run {note.run!r}")
    for name, value in note.tags.items():
        if not _KEY.fullmatch(name) or len(value) > _MOST_VALUE:
            raise ValueError(f"tag {name[:80]!r}")
    return note


@dataclass(frozen=True)
class Remarks:
    """All notes on a run, in order of their time."""

    added_at: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)
    mark: Mark = ""


def collect_remarks(notes: Iterable[tuple[str, Note]]) -> Remarks:
    """Return what notes, by the names of their objects, say in all."""
    ordered = [note for _, note in sorted(notes, key=lambda pair: (pair[1].time_ns, pair[0]))]
    if not ordered:
        return Remarks()
    tags: dict[str, str] = {}
    for note in ordered:
        tags |= note.tags
    marks: list[Mark] = [note.mark for note in ordered if note.mark]
    added = datetime.fromtimestamp(ordered[0].time_ns // 1_000_000_000, UTC)
    mark = marks[-1] if marks else ""
    return Remarks(f"{added:%Y-%m-%dT%H:%M:%SZ}", tags, mark)


def parse_tags(texts: Iterable[str]) -> dict[str, str]:
    """Return the tags of texts such as commit=1a2b,model=llama."""
    tags: dict[str, str] = {}
    for text in texts:
        for part in filter(None, (p.strip() for p in text.split(","))):
            name, equals, value = part.partition("=")
            if not (equals and value and _KEY.fullmatch(name)) or len(value) > _MOST_VALUE:
                raise UsageError(f"{part[:80]!r} is not a tag; write commit=1a2b,model=llama")
            tags[name] = value
    return tags


def has_tags(tags: Mapping[str, str], wanted: Mapping[str, str]) -> bool:
    """Return whether tags are as wanted; * in a wanted value stands for anything."""
    return all(fnmatchcase(tags.get(name, ""), value) for name, value in wanted.items())
