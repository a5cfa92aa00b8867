"""Sparse columns made without the compiled core: events in, batch by batch, columns out.

msgspec decodes the events of a batch, and then their arguments, category by category: events of
one category have much the same keys, so a struct learned from them decodes fast. What it refuses
goes through `scan`, which reads as the compiled core does.
"""

import json
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain, count
from operator import itemgetter
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
from msgspec import Raw, structs
from numpy.typing import NDArray

from htk.base.schema import INT32, STRING
from htk.parsers.kineto import scan
from htk.parsers.kineto.columns import COLUMNS, EVENT, NAMES, REST, SPELLED
from htk.parsers.kineto.raw import KEPT_ISSUES, Issue, Rows, Values

NO_VALUE = Raw(b"")
DECODE_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

_REST = NAMES.index(REST)
_CAT = NAMES.index("cat")
_PH = NAMES.index("ph")
_FREE_KEYS = ("C", "M")  # kinds of events whose arguments bear any names
_ARGS = {c.key: i for i, c in enumerate(COLUMNS) if c.scope == "args" and i != _REST}
_EVENT_TYPES: dict[str, Any] = {"text": str | int | None, "ids": str | int | None, "nanos": Raw}
_ARGS_TYPES: dict[str, Any] = {"ints": int | str | None, "floats": float | str | None}
_PLAIN_TYPES: dict[str, set[type]] = {"ints": {int}, "floats": {int, float}}
_MOST_KEYS = 150  # a category with more (counters) is read with all columns, and no others
_UNFIT_KEY = re.compile(r'["\\\x00-\x1f]')  # msgspec names no field so
_NANOS_BATCH = 1 << 20
_NANOS_TYPE = pa.decimal128(22, 3)
_DTYPES: dict[str, Any] = dict.fromkeys(("ints", "nanos", "ids"), np.int64) | {"floats": np.float64}
_SPELLED = {NAMES.index(column.key): NAMES.index(column.name) for column in SPELLED}
_KEYS = msgspec.json.Decoder(list[dict[str, Raw]])

Places = Sequence[int] | NDArray[Any]  # of values, in a batch
_Part = tuple[range | Rows, NDArray[Any]]

Event: Any = msgspec.defstruct(
    "Event",
    [
        *((c.name, _EVENT_TYPES[c.kind], NO_VALUE if c.kind == "nanos" else None) for c in EVENT),
        ("args", Raw, NO_VALUE),
    ],
    gc=False,
)


class Builder:
    """Columns that grow by batches of events."""

    def __init__(self, keep_rest: bool) -> None:
        self.rows = 0
        self.mistyped = 0
        self.issues: list[Issue] = []
        self._keep_rest = keep_rest
        self._parts: dict[int, list[_Part]] = defaultdict(list)
        self._codes: dict[int, dict[Any, int]] = {
            i: defaultdict(count().__next__)
            for i, column in enumerate(COLUMNS)
            if column.kind in ("text", "json")
        }
        self._nanos = {i: _Pending() for i, c in enumerate(COLUMNS) if c.kind == "nanos"}
        self._learned: dict[Any, _Learned] = {}

    # -- events

    def add(self, events: Sequence[Any]) -> None:
        """Events that msgspec has decoded."""
        if not events:
            return
        columns = _list_fields(events)
        args: list[Raw] = columns.pop()
        everyone = range(len(events))
        for i, values in enumerate(columns):
            if i in self._nanos:
                self._add_nanos(i, values)
            elif values[0] is not None or values.count(None) < len(values):  # counting is slow
                (self._put_ids if i in _SPELLED else self._put_codes)(i, everyone, values)
        groups: dict[Any, list[int]] = defaultdict(list)
        for k, category in enumerate(columns[_CAT]):
            if args[k] is not NO_VALUE:
                groups[category].append(k)
        for category, places in groups.items():
            texts = list(itemgetter(*places)(args)) if len(places) > 1 else [args[places[0]]]
            self._add_args(category, np.array(places, np.uint32), texts)
        if self._keep_rest or not {*_FREE_KEYS}.isdisjoint(columns[_PH]):
            for k, ph in enumerate(columns[_PH]):
                if self._keep_rest or ph in _FREE_KEYS:
                    self._put_rest(k, ph, bytes(args[k]))
        self.rows += len(events)

    def add_one(self, event: dict[str, bytes]) -> None:
        """An event that msgspec refuses, by the JSON text of its members."""
        for i, column in enumerate(EVENT):
            if i in self._nanos:
                self._add_nanos(i, [event.get(column.key, b"")])
            elif column.key in event:
                self._put_text(i, 0, event[column.key])
        args = event.get("args", b"")
        self._add_args_text(0, args)
        self._put_rest(0, scan.convert_value("text", event.get("ph", b"null")), args)
        self.rows += 1

    # -- arguments

    def _add_args(self, category: Any, places: Rows, args: list[Raw]) -> None:
        """The arguments of one category's events, at their places in the batch."""
        try:
            learned = self._learned[category]
            records = learned.decode(args)
        except (KeyError, *DECODE_ERRORS):
            try:
                learned = _Learned(args, self._learned.get(category))
                records = learned.decode(args)
            except DECODE_ERRORS:
                for position, text in zip(places.tolist(), args, strict=True):
                    self._add_args_text(position, bytes(text))
                return
            self._learned[category] = learned
        for i, values in zip(learned.columns, _list_fields(records), strict=True):
            if i < 0:
                continue
            if COLUMNS[i].kind in ("text", "json"):
                self._put_codes(i, places, _encode_texts(values))
            else:
                self._put_numbers(i, places, values)

    def _add_args_text(self, position: int, text: bytes) -> None:
        if text[:1] != b"{":
            return
        for member in scan.by_key(scan.scan_members(text, 0)[0]).items():
            if (i := _ARGS.get(member[0])) is not None:
                self._put_text(i, position, member[1])

    def _put_rest(self, position: int, ph: object, args: bytes) -> None:
        if args[:1] != b"{":
            return
        if ph in _FREE_KEYS:
            self._put_text(_REST, position, args)
        elif self._keep_rest:
            members = scan.scan_members(args, 0)[0]
            unread = [m for m in members if scan.unquote_string(m.key) not in _ARGS]
            if unread:
                text = b",".join(m.key + b":" + m.value for m in unread)
                self._put_text(_REST, position, b"{" + text + b"}")

    # -- values

    def _put(self, i: int, places: Places, values: NDArray[Any]) -> None:
        if not len(values):
            return
        if isinstance(places, range):
            self._parts[i].append((range(self.rows, self.rows + len(places)), values))
        else:
            rows = np.asarray(places, np.uint32) + np.uint32(self.rows)
            self._parts[i].append((rows, values))

    def _put_codes(self, i: int, places: Places, texts: Sequence[Any]) -> None:
        """Texts by their codes: decoded, or as they stand in the file (bytes)."""
        code_of = self._codes[i]
        looked_up = itemgetter(*texts)(code_of) if len(texts) > 1 else [code_of[texts[0]]]
        codes = np.fromiter(looked_up, np.int32, len(texts))
        there = np.ones(len(codes), bool)
        for nothing in (None, b"", b"null"):
            if (code := code_of.get(nothing)) is not None:
                there &= codes != code
        if there.all():
            self._put(i, places, codes)
        else:
            self._put(i, np.asarray(places)[there], codes[there])

    def _put_ids(self, i: int, places: Places, values: Sequence[str | int | None]) -> None:
        """Ids as numbers where that is their only spelling, else as text."""
        present = [(k, v) for k, v in zip(places, values, strict=True) if v is not None]
        plain = [(k, int(v)) for k, v in present if scan.is_plain_id(v)]
        self._put(i, [k for k, _ in plain], np.array([v for _, v in plain], np.int64))
        if len(plain) < len(present):
            spelled = [(k, v) for k, v in present if not scan.is_plain_id(v)]
            self._put_codes(_SPELLED[i], [k for k, _ in spelled], [v for _, v in spelled])

    def _put_numbers(self, i: int, places: Rows, values: Sequence[Any]) -> None:
        kind = COLUMNS[i].kind
        types = set(map(type, values))
        if type(None) in types:
            places = places[[value is not None for value in values]]
            values = [value for value in values if value is not None]
            types.discard(type(None))
        if types <= _PLAIN_TYPES[kind]:
            try:
                self._put(i, places, np.fromiter(values, _DTYPES[kind], len(values)))
                return
            except OverflowError:  # one is too large
                pass
        for position, value in zip(places.tolist(), values, strict=True):
            self._put_text(i, position, json.dumps(value).encode())

    def _put_text(self, i: int, position: int, text: bytes) -> None:
        """One value, from its JSON text."""
        kind = COLUMNS[i].kind
        if kind == "ids":
            value = None if scan.lacks_quote(text) else scan.convert_value("text", text)
            if value is None or not scan.is_plain_id(value):
                self._put_text(_SPELLED[i], position, text)
            else:
                self._put_ids(i, [position], [str(value)])
            return
        if kind in ("text", "json") and not scan.lacks_quote(text):
            self._put_codes(i, [position], [text])
            return
        value = self._convert(i, self.rows + position, text)
        if value is not None:
            self._put(i, [position], np.array([value], _DTYPES[kind]))

    def _convert(self, i: int, row: int, text: bytes) -> int | float | str | None:
        try:
            if scan.lacks_quote(text):
                raise scan.Mistyped
            return scan.convert_value(COLUMNS[i].kind, text)
        except scan.Mistyped:
            self.mistyped += 1
            if self.mistyped <= KEPT_ISSUES:
                message = f"{NAMES[i]}: {text[:80].decode('utf8', 'replace')}"
                self.issues.append(Issue("mistyped_value", message, row=row))
            return None

    # -- times: kept as text, one line per row, and parsed many at a time

    def _add_nanos(self, i: int, texts: Sequence[Raw] | Sequence[bytes]) -> None:
        lines = b"\n".join(texts) + b"\n"
        if b'"' in lines or lines.count(b"\n") != len(texts):  # quoted, or white space in a list
            values = [
                self._convert(i, self.rows + k, bytes(t) or b"null") for k, t in enumerate(texts)
            ]
            lines = b"".join(map(scan.nanos_line, values))
        pending = self._nanos[i]
        pending.lines += lines
        pending.rows += len(texts)
        if len(pending.lines) > _NANOS_BATCH:
            self._parse_nanos(i)

    def _parse_nanos(self, i: int) -> None:
        pending = self._nanos[i]
        first = pending.first
        count = pending.rows
        lines = bytes(pending.lines)
        self._nanos[i] = _Pending(first + count)
        try:
            values, valid = _parse_lines(lines, count)
        except pa.ArrowInvalid:  # more digits than nanoseconds have, an exponent, no number
            converted = [
                self._convert(i, first + k, line or b"null")
                for k, line in enumerate(lines.split(b"\n")[:count])
            ]
            valid = np.array([value is not None for value in converted], bool)
            values = np.array([value or 0 for value in converted], np.int64)
        if valid is None:
            self._parts[i].append((range(first, first + count), values))
        elif valid.any():
            rows = np.flatnonzero(valid).astype(np.uint32) + np.uint32(first)
            self._parts[i].append((rows, values[valid]))

    # -- the result

    def finish(self) -> dict[str, int]:
        """Return how many values each column has."""
        for i, pending in list(self._nanos.items()):
            if pending.rows:
                self._parse_nanos(i)
        sizes = {
            NAMES[i]: sum(len(part[1]) for part in self._parts.get(i, ()))
            for i in range(len(NAMES))
        }
        return {name: size for name, size in sizes.items() if size}

    def load(self, name: str) -> tuple[Rows | None, Values]:
        """Return a column's rows and values."""
        i = NAMES.index(name)
        parts = self._parts.pop(i)
        values = np.concatenate([part[1] for part in parts])
        rows: Rows | None = None
        if len(values) < self.rows or not all(isinstance(part[0], range) for part in parts):
            rows = np.concatenate([np.asarray(part[0], np.uint32) for part in parts])
            if (rows[1:] < rows[:-1]).any():  # the categories of a batch interleave
                order = np.argsort(rows, kind="stable")
                rows = rows[order]
                values = values[order]
            if len(values) == self.rows:
                rows = None
        if COLUMNS[i].kind in ("text", "json"):
            return rows, self._build_dictionary(i, values)
        return rows, values

    def _build_dictionary(self, i: int, codes: NDArray[np.int32]) -> pa.DictionaryArray:
        texts: dict[str, int] = {}
        spelled = [scan.text_of(COLUMNS[i].kind, key) for key in self._codes[i]]
        same = np.array([texts.setdefault(text, len(texts)) for text in spelled], np.int32)
        indices = same[codes] if len(texts) < len(spelled) else codes
        size = len(indices)
        array = pa.Array.from_buffers(INT32, size, [None, pa.py_buffer(indices)])
        return pa.DictionaryArray.from_arrays(array, _build_strings(list(texts)))


class _Learned:
    """The keys that the arguments of one category have, as a struct that knows no others."""

    def __init__(self, args: list[Raw], before: "_Learned | None") -> None:
        keys: set[str] = set().union(*_KEYS.decode(_as_list(args)))
        if before is not None:
            keys |= before.keys
        strict = len(keys) <= _MOST_KEYS and not any(map(_UNFIT_KEY.search, keys))
        self.keys: set[str] = keys if strict else set(_ARGS)
        ordered = sorted(self.keys)
        self.columns = [_ARGS.get(key, -1) for key in ordered]
        fields = [
            (f"f{j}", *self._build_field(key, i))
            for j, (key, i) in enumerate(zip(ordered, self.columns, strict=True))
        ]
        record = msgspec.defstruct("Arguments", fields, gc=False, forbid_unknown_fields=strict)
        self._decoder = msgspec.json.Decoder(list[record])  # type: ignore[valid-type]

    def decode(self, args: list[Raw]) -> list[Any]:
        return self._decoder.decode(_as_list(args))

    @staticmethod
    def _build_field(key: str, i: int) -> tuple[Any, Any]:
        kind = COLUMNS[i].kind if i >= 0 else "json"
        if kind in _ARGS_TYPES:
            return _ARGS_TYPES[kind], msgspec.field(name=key, default=None)
        return Raw, msgspec.field(name=key, default=NO_VALUE)


@dataclass
class _Pending:
    """Times not parsed yet: a line for each row from `first` on, an empty one for no value."""

    first: int = 0
    rows: int = 0
    lines: bytearray = field(default_factory=bytearray)


def _list_fields(records: Sequence[Any]) -> list[list[Any]]:
    """The fields of structs, one after the other: in half the time of zip over all of them."""
    flat = list(chain.from_iterable(map(structs.astuple, records)))
    width = len(flat) // len(records)
    return [flat[k::width] for k in range(width)]


def _as_list(texts: list[Raw]) -> bytes:
    return b"".join((b"[", b",".join(texts), b"]"))


def _encode_texts(texts: Sequence[Raw]) -> list[bytes]:
    """JSON texts as bytes; valid ones hold no NUL. A third of the time of bytes(text) for each."""
    spelled = b"\0".join(texts).split(b"\0")
    return spelled if len(spelled) == len(texts) else [bytes(text) for text in texts]


def _parse_lines(lines: bytes, count: int) -> tuple[NDArray[np.int64], NDArray[np.bool_] | None]:
    """Decimal lines as int64 thousandths, and which there are (None: all)."""
    table = pa_csv.read_csv(
        pa.BufferReader(lines),
        read_options=pa_csv.ReadOptions(
            column_names=["x"], use_threads=False, block_size=len(lines) + 1
        ),
        parse_options=pa_csv.ParseOptions(ignore_empty_lines=False),
        convert_options=pa_csv.ConvertOptions(
            column_types={"x": _NANOS_TYPE}, null_values=["", "null"]
        ),
    )
    column = table["x"].combine_chunks()
    words = np.frombuffer(column.buffers()[1], np.int64)  # low and high half of each
    first = 2 * column.offset
    low = words[first : first + 2 * count : 2]
    high = words[first + 1 : first + 2 * count : 2]
    valid = column.is_valid().to_numpy(zero_copy_only=False) if column.null_count else None
    fits = (low >> 63) == high
    if len(low) < count or not (fits if valid is None else fits[valid]).all():
        raise pa.ArrowInvalid("beyond 64 bits")
    return np.ascontiguousarray(low), valid


def _build_strings(texts: list[str]) -> pa.Array:
    """Not pa.array(texts): given a list, that imports pandas."""
    encoded = [text.encode() for text in texts]
    offsets = np.zeros(len(encoded) + 1, np.int32)
    np.cumsum([len(text) for text in encoded], out=offsets[1:])
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(encoded))]
    return pa.Array.from_buffers(STRING, len(encoded), buffers)
