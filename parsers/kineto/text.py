"""A Kineto file as text: each event as it stands there, to be copied, changed or left out.

What is copied is copied byte for byte, so that times keep every digit. Rows are counted as the
reading engines count them; what they cannot read is left out. Many events are divided at once;
where they are no valid JSON, or at an end of the file, a walk goes token by token (some 10 MB/s).
"""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import msgspec

from htk.parsers.kineto import scan
from htk.parsers.kineto.raw import ByteStream, Progress, read_blocks

_LONGEST = 64 << 20  # a longer event is taken for damage

Entry = Callable[[str, bytes], bytes | None]  # key and value of the header -> new value, or none
Event = Callable[[int, bytes], bytes | None]  # row and text of an event -> new text, or none
Run = Callable[[bytes], bytes]  # events, valid JSON with commas between -> what stands for them

_RUN_BYTES = 2 << 20  # with all that is made of it in the processor's cache
_BORDER_BYTES = 256 << 10  # in which a border between two events is looked for
_BORDER = re.compile(rb',[\x00-\x20]*\{[\x00-\x20]*"(?:ph|name|cat|pid|tid|ts|args|bp|dur|id)"')


class _AnyObject(msgspec.Struct):
    """Checked to be valid JSON, and not kept."""


@dataclass
class Copied:
    """What a copy holds of its original."""

    events: int = 0
    kept: int = 0
    broken: int = 0
    truncated: bool = False


def copy_changed(
    stream: ByteStream,
    write: Callable[[bytes], object],
    entry: Entry,
    event: Event,
    added: bytes = b"",
) -> Copied:
    """Write what `entry` and `event` make of a file's header and events; `added` is a member more,
    which a bare list of events has no place for."""
    walk = _Walk(write, entry, event, added=added)
    for block in read_blocks(stream, None):
        walk.feed(bytes(block))
    return walk.finish()


def copy_runs(
    stream: ByteStream,
    write: Callable[[bytes], object],
    entry: Entry,
    run: Run,
    progress: Progress | None = None,
) -> Copied:
    """Write a file many events at a time; events that are no strict JSON are made so."""

    def rewrite_alone(_: int, event: bytes) -> bytes | None:
        strict = event if _split_events(event) else _strict_event(event)
        return run(strict) if strict is not None else None

    walk = _Walk(write, entry, rewrite_alone, run=run)
    for block in read_blocks(stream, progress):
        walk.feed(bytes(block))
    return walk.finish()


class _Walk:
    def __init__(
        self,
        write: Callable[[bytes], object],
        entry: Entry,
        event: Event,
        run: Run | None = None,
        added: bytes = b"",
    ) -> None:
        self._write = write
        self._entry = entry
        self._event = event
        self._whole_run = run
        self._added = added
        self._blocks: list[bytes] = []  # not looked at yet
        self._length = 0
        self._before = b""  # the last character before the buffer that is no white space
        self._enough = _RUN_BYTES
        self._step = self._open
        self._resync = self._bare = self._done = False
        self._first = True  # nothing precedes in this object or list
        self._copied = Copied()

    def feed(self, block: bytes) -> None:
        self._blocks.append(block)
        self._length += len(block)
        if self._done:
            self._blocks.clear()
        elif self._length >= self._enough:
            self._run()

    def finish(self) -> Copied:
        if not self._done:
            self._run()
            self._copied.truncated = not self._done
        if not self._done and self._step == self._one_event:
            self._write(b"\n]" if self._bare else b"\n]}")
        elif not self._done and self._step == self._take_member:
            self._write(b"}")
        return self._copied

    def _run(self) -> None:
        text = b"".join(self._blocks)
        offset = 0
        tried = False
        while not self._done:
            try:
                if not tried and self._step == self._one_event and not self._resync:
                    offset = self._run_of_events(text, offset)
                    tried = True
                offset = self._step(text, offset)
            except scan.NeedMore:
                if len(text) - offset <= _LONGEST:
                    break
                offset = self._note_lost(offset)
            except scan.Broken:
                offset = self._note_lost(offset)
        self._before = scan.last_solid(text, offset, self._before)
        self._blocks = [text[offset:]]
        self._length = len(text) - offset
        # What is long is not looked at block by block.
        self._enough = max(2 * self._length, _RUN_BYTES)

    def _note_lost(self, offset: int) -> int:
        self._copied.broken += not self._resync
        self._resync = True
        return offset + 1

    def _open(self, text: bytes, offset: int) -> int:
        offset = scan.skip_space(text, 3 if text.startswith(b"\xef\xbb\xbf") else 0)
        self._bare = text[offset] == ord("[")
        self._write(b"[" if self._bare else b"{")
        if self._added and not self._bare:
            self._put(self._added)
        self._step = self._one_event if self._bare else self._take_member
        return offset + 1

    def _take_member(self, text: bytes, offset: int) -> int:
        if self._resync:
            key_start = scan.find_header_key(text, offset)
            if key_start is None:
                raise scan.NeedMore
            offset = key_start
            self._resync = False
        offset = scan.skip_space(text, offset)
        if text[offset] == ord(","):
            return offset + 1
        if text[offset] == ord("}"):
            self._write(b"\n}\n")
            self._done = True
            return offset + 1
        end = scan.key_end(text, offset)
        key = text[offset:end]
        start = scan.value_start(text, end)
        if scan.unquote_string(key) == "traceEvents" and text[start] == ord("["):
            self._put(key + b": [")
            self._first, self._step = True, self._one_event
            return start + 1
        end = scan.value_end(text, start)
        value = self._entry(scan.unquote_string(key), text[start:end])
        if value is not None:
            self._put(key + b": " + value)
        return end

    def _run_of_events(self, text: bytes, offset: int) -> int:
        """Pass on all events up to the last border; none where they are not valid JSON."""
        offset = scan.skip_space(text, offset)
        if text[offset] == ord(","):
            offset = scan.skip_space(text, offset + 1)
        borders = [
            m.start() for m in _BORDER.finditer(text, max(offset, len(text) - _BORDER_BYTES))
        ]
        for end in borders[:-5:-1]:  # what looks like a border may lie within an event
            events = _split_events(text[offset:end])
            if not events:
                continue
            if self._whole_run is None:
                for event in events:
                    self._pass_on(bytes(event))
            else:
                self._put(self._whole_run(text[offset:end]))
                self._copied.events += len(events)
                self._copied.kept += len(events)
            return end
        return offset

    def _one_event(self, text: bytes, offset: int) -> int:
        suspect = self._resync
        if suspect:
            event_start = scan.find_event(text, offset, self._before)
            if event_start is None:
                raise scan.NeedMore
            offset = event_start
        offset = scan.skip_space(text, offset)
        if text[offset] == ord(","):
            return offset + 1
        if text[offset] == ord("]") and not suspect:
            self._write(b"\n]")
            self._first, self._step, self._done = False, self._take_member, self._bare
            return offset + 1
        if text[offset] != ord("{"):
            raise scan.Broken("event expected", offset)
        end = _event_end(text, offset)
        piece = text[offset:end]
        if suspect and b'"ph"' not in piece:  # a nested object that looks like an event
            return offset + 1
        self._resync = False
        self._pass_on(piece)
        return end

    def _pass_on(self, event: bytes) -> None:
        kept = self._event(self._copied.events, event)
        self._copied.events += 1
        if kept is not None:
            self._copied.kept += 1
            self._put(kept)

    def _put(self, text: bytes) -> None:
        self._write((b"\n" if self._first else b",\n") + text)
        self._first = False


def _split_events(text: bytes) -> list[msgspec.Raw]:
    """Return the events of a text as they stand there; none where it is not valid JSON."""
    try:
        text.decode()
        listed = b"[" + text + b"]"
        msgspec.json.decode(listed, type=list[_AnyObject])
        return msgspec.json.decode(listed, type=list[msgspec.Raw])
    except (msgspec.DecodeError, UnicodeDecodeError):
        return []


def _strict_event(event: bytes) -> bytes | None:
    """Return an event that the reading engines read as strict JSON; None where that fails."""
    try:
        strict = _make_strict(event)
    except (scan.Broken, scan.NeedMore, RecursionError):
        return None
    return strict if _split_events(strict) else None


def _make_strict(value: bytes) -> bytes:
    """Return a value as strict JSON: strings escaped anew, and what JSON has no word for (inf, nan)
    in quotes, as the engines read it too."""
    try:
        msgspec.json.decode(value, type=msgspec.Raw)
        value.decode()
    except (msgspec.DecodeError, UnicodeDecodeError):
        pass
    else:
        return value
    # the walk wants to see where a token ends
    first = value[:1]
    padded = value + b" "
    if first == b"{":
        members = scan.scan_members(padded, 0)[0]
        return b"{%s}" % b", ".join(
            _make_strict(m.key) + b": " + _make_strict(m.value) for m in members
        )
    if first == b"[":
        return b"[%s]" % b", ".join(map(_make_strict, _split_elements(padded)))
    return json.dumps(
        scan.unquote_string(value) if first == b'"' else value.decode("utf8", "replace")
    ).encode()


def _split_elements(text: bytes) -> Iterator[bytes]:
    """The values of the list that a text begins with."""
    offset = scan.skip_space(text, 1)
    while text[offset] != ord("]"):
        end = scan.value_end(text, offset)
        yield text[offset:end]
        offset = scan.skip_space(text, end)
        if text[offset] == ord(","):
            offset = scan.skip_space(text, offset + 1)


def _event_end(text: bytes, offset: int) -> int:
    """Return where the event ends that begins here; Broken as the reading engines would find it."""
    end = scan.value_end(text, offset)
    try:
        msgspec.json.decode(text[offset:end], type=msgspec.Raw)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return scan.scan_members(text, offset, inner="args")[1]
    return end
