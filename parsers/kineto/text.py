"""A Kineto file as text: each event as it stands there, to be copied, changed or left out.

What is copied is copied byte for byte, so that times keep every digit. Rows are counted as the
reading engines count them; what they cannot read is left out. A walk token by token is slow (some
10 MB/s), which is enough for files that are made once.
"""

from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from htk.parsers.kineto import scan
from htk.parsers.kineto.raw import Progress, Stream, blocks

_LONGEST = 64 << 20  # a longer event is taken for damage

Entry = Callable[[str, bytes], bytes | None]  # key and value of the header -> new value, or none
Event = Callable[[int, bytes], bytes | None]  # row and text of an event -> new text, or none


@dataclass
class Copied:
    """What a copy holds of its original."""

    events: int = 0
    kept: int = 0
    broken: int = 0
    truncated: bool = False


def copy(
    stream: Stream,
    write: Callable[[bytes], object],
    entry: Entry,
    event: Event,
    progress: Progress | None = None,
) -> Copied:
    """Write what `entry` and `event` make of a file's header and events."""
    walk = _Walk(write, entry, event)
    for block in blocks(stream, progress):
        walk.feed(bytes(block))
    return walk.finish()


class _Walk:
    def __init__(self, write: Callable[[bytes], object], entry: Entry, event: Event) -> None:
        self._write, self._entry, self._event = write, entry, event
        self._buffer = b""
        self._enough = 0
        self._step = self._open
        self._resync = self._bare = self._done = False
        self._first = True  # nothing precedes in this object or list
        self._copied = Copied()

    def feed(self, block: bytes) -> None:
        self._buffer += block
        if not self._done and len(self._buffer) >= self._enough:
            self._run()

    def finish(self) -> Copied:
        if not self._done:
            self._run()
            self._copied.truncated = not self._done
        if not self._done and self._step == self._one_event:
            self._write(b"\n]" if self._bare else b"\n]}")
        elif not self._done and self._step == self._member:
            self._write(b"}")
        return self._copied

    def _run(self) -> None:
        text, at = self._buffer, 0
        while not self._done:
            try:
                at = self._step(text, at)
            except scan.NeedMore:
                if len(text) - at <= _LONGEST:
                    break
                at = self._lost(at)
            except scan.Broken:
                at = self._lost(at)
        self._buffer = text[at:]
        self._enough = 2 * len(self._buffer)  # what is long is not looked at block by block

    def _lost(self, at: int) -> int:
        self._copied.broken += not self._resync
        self._resync = True
        return at + 1

    def _open(self, text: bytes, at: int) -> int:
        at = scan.skip_space(text, 3 if text.startswith(b"\xef\xbb\xbf") else 0)
        self._bare = text[at] == ord("[")
        self._write(b"[" if self._bare else b"{")
        self._step = self._one_event if self._bare else self._member
        return at + 1

    def _member(self, text: bytes, at: int) -> int:
        if self._resync:
            found = scan.find_header_key(text, at)
            if found is None:
                raise scan.NeedMore
            at, self._resync = found, False
        at = scan.skip_space(text, at)
        if text[at] == ord(","):
            return at + 1
        if text[at] == ord("}"):
            self._write(b"\n}\n")
            self._done = True
            return at + 1
        end = scan.key_end(text, at)
        key = text[at:end]
        start = scan.value_start(text, end)
        if scan.plain(key) == "traceEvents" and text[start] == ord("["):
            self._put(key + b": [")
            self._first, self._step = True, self._one_event
            return start + 1
        end = scan.value_end(text, start)
        value = self._entry(scan.plain(key), text[start:end])
        if value is not None:
            self._put(key + b": " + value)
        return end

    def _one_event(self, text: bytes, at: int) -> int:
        suspect = self._resync
        if suspect:
            found = scan.find_event(text, at)
            if found is None:
                raise scan.NeedMore
            at = found
        at = scan.skip_space(text, at)
        if text[at] == ord(","):
            return at + 1
        if text[at] == ord("]") and not suspect:
            self._write(b"\n]")
            self._first, self._step, self._done = False, self._member, self._bare
            return at + 1
        if text[at] != ord("{"):
            raise scan.Broken("event expected", at)
        end = _event_end(text, at)
        piece = text[at:end]
        if suspect and b'"ph"' not in piece:  # a nested object that looks like an event
            return at + 1
        self._resync = False
        kept = self._event(self._copied.events, piece)
        self._copied.events += 1
        if kept is not None:
            self._copied.kept += 1
            self._put(kept)
        return end

    def _put(self, text: bytes) -> None:
        self._write((b"\n" if self._first else b",\n") + text)
        self._first = False


def _event_end(text: bytes, at: int) -> int:
    """Where the event ends that begins here; Broken as the reading engines would find it."""
    end = scan.value_end(text, at)
    try:
        msgspec.json.decode(text[at:end], type=msgspec.Raw)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return scan.members(text, at, inner="args")[1]
    return end
