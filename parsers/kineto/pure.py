"""The engine without compiled code: the same columns from the same bytes, by msgspec and NumPy.

It walks the document as native/kineto/ does, with the same states and the same rules after
damage. Where it can it decodes many events at once: up to the last sure border between events,
which is `}`, `,`, `{` and a usual first key in bare quotes (within a string they would be escaped).

On valid JSON both engines give equal cells, and on damage they keep the same events: what msgspec
refuses (control characters, invalid UTF-8, stray backslashes, a bare nan or inf, wrong types, deep
nesting) goes through `scan`, which reads as the core does. What differs is only what is said:

- The offset of a mistyped value is known to the core alone.
- Which of more than a thousand mistyped values are told one by one.
"""

import gc
import re
from collections import Counter, deque
from enum import Enum, auto
from typing import Any

import msgspec
import numpy as np

from htk.parsers.kineto import scan
from htk.parsers.kineto.raw import (
    KEPT_ISSUES,
    ByteStream,
    Issue,
    Progress,
    RawEvents,
    all_issues,
    parse_header,
    read_blocks,
)
from htk.parsers.kineto.sparse import DECODE_ERRORS, Builder, Event

_BATCH = 1 << 19  # longer batches spill the cache
_LONGEST = 64 << 20  # a longer event, or header entry, is taken for damage
_MOST_RUNAWAYS = 20  # a file with more of them is given up
_BORDER = re.compile(rb'\}\s*,\s*(?=\{\s*"(?:ph|name|cat|pid|tid|ts|args|bp|dur|id)"\s*:)')
_BETWEEN = re.compile(rb"[,\x00-\x20]*")
_MINUS_ZERO = re.compile(rb":\s*-0\s*[,}]")
_EVENTS = msgspec.json.Decoder(list[Event])
_EVENT = msgspec.json.Decoder(Event)


def parse_events(
    stream: ByteStream, *, rest: bool = False, progress: Progress | None = None
) -> RawEvents:
    """Return the events of a decompressed stream."""
    document = _Document(rest)
    collecting = gc.isenabled()
    gc.disable()  # millions of small tuples, and no cycles
    try:
        for block in read_blocks(stream, progress):
            document.feed(block)
        document.finish()
    finally:
        if collecting:
            gc.enable()
    return document.result(stream)


class _State(Enum):
    START = auto()
    HEADER = auto()
    EVENTS = auto()
    DONE = auto()


_BROKEN = {
    _State.START: "not_a_trace",
    _State.HEADER: "broken_header",
    _State.EVENTS: "broken_event",
}


class _Document:
    """The core's Parser: states, and how far the input is done with."""

    def __init__(self, keep_rest: bool) -> None:
        self.state = _State.START
        self.builder = Builder(keep_rest)
        self.buffer = bytearray()
        self.base = 0  # offset of the buffer in the file
        self.safe = 0  # all of the buffer before it is done with
        self.enough = _BATCH  # do not try again with less
        self.bare_list = self.events_seen = self.truncated = False
        self.more_follows = False  # behind the end of the document
        self.solid = b""  # the last character before the buffer that is no white space
        self.resync = self.suspect = False  # look for the next event; it was found by looking
        self.runaways = 0
        self.header: list[tuple[int, bytes, bytes]] = []
        self.issues: list[Issue] = []
        self.broken: Counter[str] = Counter()
        self.ready: list[Any] = []  # decoded events that the builder does not have yet

    def feed(self, data: bytes | memoryview) -> None:
        if self.state is _State.DONE and self.more_follows:
            return
        self.buffer += data
        if self.state is _State.DONE:
            self._look_behind()
            return
        if len(self.buffer) >= self.enough:
            self._run(last=False)

    def finish(self) -> None:
        if self.state is not _State.DONE:
            self._run(last=True)
        self.truncated |= self.state is not _State.DONE

    def result(self, stream: ByteStream) -> RawEvents:
        sizes = self.builder.finish()
        header, header_issues = parse_header(self.header)
        counts = dict(self.broken, mistyped_value=self.builder.mistyped)
        kept = self.issues + self.builder.issues
        return RawEvents(
            rows=self.builder.rows,
            header=header,
            issues=all_issues(kept, counts, self.truncated, stream) + header_issues,
            truncated=self.truncated,
            events_seen=self.events_seen,
            sizes=sizes,
            load=self.builder.load,
        )

    # -- the walk

    def _run(self, last: bool) -> None:
        if self.state is not _State.EVENTS:
            self._walk(last)  # until the events begin
        sure = self.state is _State.EVENTS and not self.resync and not self.suspect
        read = sure and self._many_events()
        if last or not read:  # else what is left over waits for more
            self._walk(last)
        # What is longer than a batch is looked at again only when twice as much is there.
        self.enough = max(_BATCH, min(2 * len(self.buffer), _LONGEST + 1))

    def _walk(self, last: bool) -> None:
        """Read token by token to the end of the input; once, only to where the events begin."""
        text = bytes(self.buffer)
        self.safe = 0
        before = self.state
        while self.state is not _State.DONE:
            try:
                self.safe = self._take_step(text, self.safe)
                if self.state is _State.EVENTS and before is not _State.EVENTS:
                    break
            except scan.NeedMore:
                if not self._ran_out(text, last):
                    break
            except scan.Broken as error:
                self._handle_break(text, error)
        self._flush_ready()
        self._drop(self.safe)
        if self.state is _State.DONE:
            self._look_behind()

    def _look_behind(self) -> None:
        """Report anything but white space behind the document's end; it is left out."""
        data = bytes(self.buffer)
        start = len(data) - len(data.lstrip(scan.SPACES))
        if start < len(data) and not self.more_follows and not self.truncated:
            self.more_follows = True
            near = data[start : start + 40].decode("utf8", "replace")
            text = f"left out, near {near}"
            self.issues.append(Issue("data_after_end", text, self.base + start, self.builder.rows))
        self._drop(len(data))

    def _drop(self, size: int) -> None:
        self.solid = scan.last_solid(self.buffer, size, self.solid)
        del self.buffer[:size]
        self.base += size

    def _take_step(self, text: bytes, offset: int) -> int:
        if self.state is _State.EVENTS:
            return self._take_event(text, offset)
        return (
            self._header_entry(text, offset) if self.state is _State.HEADER else self._start(text)
        )

    def _start(self, text: bytes) -> int:
        offset = 0
        if not self.base and text.startswith(b"\xef"):  # a byte order mark
            if len(text) < 3:
                raise scan.NeedMore
            offset = 3 if text.startswith(b"\xef\xbb\xbf") else 0
        offset = self._outer_space(text, offset)
        self.bare_list = text[offset] == ord("[")
        if not self.bare_list and text[offset] != ord("{"):
            raise scan.Broken("not a JSON object or list", offset)
        self.state = _State.EVENTS if self.bare_list else _State.HEADER
        self.events_seen = self.bare_list
        return offset + 1

    def _header_entry(self, text: bytes, offset: int) -> int:
        """Return a member of the outer object, before or after the events."""
        if self.resync:
            offset = self._note_found(text, scan.find_header_key(text, offset))
        offset = self._outer_space(text, offset)
        if text[offset] == ord(","):
            return offset + 1
        if text[offset] == ord("}"):
            if self.events_seen or not self.broken["broken_header"]:
                self.state = _State.DONE
            else:
                self.resync = True  # damage before has unbalanced the brackets
            return offset + 1
        start = offset
        end = scan.key_end(text, offset)
        key = text[start:end]
        offset = scan.value_start(text, end)
        if text[offset] == ord("[") and scan.unquote_string(key) == "traceEvents":
            if self.events_seen:
                self.header.append((self.base + start, key, b"["))
            self.state = _State.EVENTS
            self.events_seen = True
            return offset + 1
        end = scan.value_end(text, offset)
        self.header.append((self.base + start, key, text[offset:end]))
        return end

    def _take_event(self, text: bytes, offset: int) -> int:
        """Return an event, or what stands between two."""
        if self.resync:
            offset = self._note_found(text, scan.find_event(text, offset, self.solid))
            self.suspect = True
        offset = self._outer_space(text, offset)
        if text[offset] == ord(","):
            return offset + 1
        if text[offset] == ord("]"):
            self.state = _State.DONE if self.bare_list else _State.HEADER
            return offset + 1
        if text[offset] != ord("{"):
            raise scan.Broken("event expected", offset)
        return self._one_event(text, offset)

    def _many_events(self) -> bool:
        """Return all events up to the last border, unless msgspec refuses any: False."""
        end = _last_border(self.buffer)
        first = _BETWEEN.match(self.buffer).end()  # type: ignore[union-attr]
        if end is None or end < first:
            return False
        with memoryview(self.buffer)[first:end] as view:
            events = b"".join((b"[", view, b"]"))
        if _has_minus_zero(events):
            return False
        try:
            decoded = _EVENTS.decode(events)
        except DECODE_ERRORS:
            return False
        self.builder.add(decoded)
        self._drop(end)
        return True

    def _one_event(self, text: bytes, offset: int) -> int:
        if border := _BORDER.search(text, offset):
            piece = text[offset : border.start() + 1]
            try:
                event = None if _has_minus_zero(piece) else _EVENT.decode(piece)
            except DECODE_ERRORS:
                event = None
            if event is not None and not (self.suspect and event.ph is None):
                self.suspect = False
                self.ready.append(event)
                return border.start() + 1
        members, end = scan.scan_members(text, offset, inner="args")
        value_of = scan.by_key(members)
        phase = value_of.get("ph", b"null")
        if self.suspect and (phase == b"null" or scan.lacks_quote(phase)):
            self.suspect = False  # a nested object may look like an event, but has no "ph"
            self.resync = True
            return offset + 1
        self.suspect = False
        self._flush_ready()
        self.builder.add_one(value_of)
        return end

    def _flush_ready(self) -> None:
        self.builder.add(self.ready)
        self.ready = []

    def _outer_space(self, text: bytes, offset: int) -> int:
        self.safe = len(text)  # between the outer tokens nothing need be kept
        self.safe = scan.skip_space(text, offset)
        return self.safe

    # -- damage

    def _note_found(self, text: bytes, offset: int | None) -> int:
        if offset is None:
            in_events = self.state is _State.EVENTS
            self.safe = max(self.safe, (scan.event_cut if in_events else scan.header_key_cut)(text))
            raise scan.NeedMore
        self.resync = False
        return offset

    def _note_break(self, text: bytes, offset: int, why: str) -> None:
        kind = _BROKEN[self.state]
        self.broken[kind] += 1
        if self.broken[kind] <= KEPT_ISSUES:
            near = text[offset : offset + 40].decode("utf8", "replace")
            row = self.builder.rows + len(self.ready)
            self.issues.append(Issue(kind, f"{why} near {near}", self.base + offset, row))

    def _handle_break(self, text: bytes, error: scan.Broken) -> None:
        if not self.resync:
            self._note_break(text, error.at, error.why)
        if self.state is _State.START:
            self.state = _State.DONE
            self.truncated = True
            return
        self.resync = True
        self.suspect = False
        self.safe = self.safe + 1 if self.safe < error.at else error.at

    def _ran_out(self, text: bytes, last: bool) -> bool:
        """Return whether the event that ran out of input is given up, to go on behind its
        beginning."""
        pending = len(text) - self.safe
        if self.state is _State.START or (not last and pending <= _LONGEST):
            return False
        if self.resync or not pending:
            return False
        self.runaways += 1
        if self.runaways > _MOST_RUNAWAYS:
            self.state = _State.DONE
            self.truncated = True
            return False
        if not last or self._event_follows(text):
            self._note_break(text, self.safe, "no end" if last else "no end within 64 MB")
        self.resync = True
        self.suspect = False
        self.safe += 1
        return True

    def _event_follows(self, text: bytes) -> bool:
        """Return whether other events follow in what ran on to the end: else it was just cut."""
        another = text.find(b"{", self.safe + 1)
        return self.state is _State.EVENTS and another >= 0 and text.find(b'"ph"', another) >= 0


def _has_minus_zero(text: bytes) -> bool:
    """Return whether the text holds a number "-0", whose sign an int would lose."""
    letters = np.frombuffer(text, np.uint8)
    minus = np.flatnonzero(letters[:-2] == ord("-"))  # a fraction of the time of text.find
    behind = letters[minus[letters[minus + 1] == ord("0")] + 2]
    ends = (behind <= ord(" ")) | (behind == ord(",")) | (behind == ord("}"))
    return bool(ends.any()) and _MINUS_ZERO.search(text) is not None


def _last_border(text: bytearray) -> int | None:
    """Return the last place that is surely the end of an event."""
    for size in (1 << 13, 1 << 17, len(text)):
        borders = deque(_BORDER.finditer(text, max(len(text) - size, 0)), maxlen=1)
        if borders:
            return borders[0].start() + 1
    return None
