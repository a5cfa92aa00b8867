"""Events as pieces: against a reader that goes letter by letter."""

import json
import re
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from htk.answers.export.pieces import EventPieces, cut_pieces, splice_text

_TEXT = st.text('ab "\\{}[],:1é\n', max_size=5)
_NUMBER = st.integers(-3, 1000) | st.floats(0, 9, allow_nan=False)
_VALUE = st.recursive(
    _TEXT | _NUMBER | st.booleans() | st.none(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_TEXT, inner, max_size=3),
    max_leaves=12,
)
_EVENTS = st.lists(st.dictionaries(_TEXT, _VALUE, min_size=1, max_size=4), min_size=1, max_size=4)
_WRITTEN: Any = st.sampled_from(
    [{}, {"indent": 2}, {"separators": (",", ":")}, {"separators": (" ,\n", " : ")}]
)


def _text(events: list[Any], written: dict[str, Any]) -> bytes:
    text = json.dumps(events, ensure_ascii=False, **written).strip()
    return text[1:-1].encode()


def _by_hand(text: bytes) -> list[tuple[bytes, bool, bytes | None]]:
    """Each string, whether it is a key, and the key it belongs to."""
    strings: list[tuple[bytes, bool, bytes | None]] = []
    key: bytes | None = None
    closed, position = False, 0
    while position < len(text):
        if text[position : position + 1] == b"}":
            closed = True
        if text[position : position + 1] != b'"':
            position += 1
            continue
        end = position + 1
        while text[end : end + 1] != b'"':
            end += 2 if text[end : end + 1] == b"\\" else 1
        inside = text[position + 1 : end]
        is_key = text[end + 1 :].lstrip().startswith(b":")
        if is_key:
            key, closed = inside, False
        strings.append((inside, is_key, None if closed else key))
        position = end + 1
    return strings


@given(_EVENTS, _WRITTEN)
def test_strings_and_their_keys(events: list[Any], written: dict[str, Any]) -> None:
    text = _text(events, written)
    pieces = EventPieces(text)
    distinct = pieces.distinct.to_pylist()
    keys = [None if code < 0 else distinct[code] for code in pieces.keys.tolist()]
    strings = [distinct[code] for code in pieces.codes.tolist()]
    assert list(zip(strings, pieces.is_key.tolist(), keys, strict=True)) == _by_hand(text)
    assert pieces.joined() == text


@given(_EVENTS, _WRITTEN)
def test_what_is_replaced_stands_in_its_place(events: list[Any], written: dict[str, Any]) -> None:
    text = _text(events, written)
    pieces = EventPieces(text)
    pieces.replace_strings(
        ~pieces.is_key, lambda piece: b"<" + piece[::-1].replace(b"\\", b"") + b">"
    )
    pieces.replace_after(
        pieces.is_key & pieces.may_precede_number, lambda p: re.sub(rb"\d", b"#", p)
    )
    expected, position, hashed = b"", 0, False
    for inside, is_key, _ in _by_hand(text):
        start = text.index(b'"' + inside + b'"', position)
        outside = text[position:start]
        expected += re.sub(rb"\d", b"#", outside) if hashed else outside
        new = inside if is_key else b"<" + inside[::-1].replace(b"\\", b"") + b">"
        expected += b'"' + new + b'"'
        position, hashed = start + len(inside) + 2, is_key
    rest = text[position:]
    expected += re.sub(rb"\d", b"#", rest) if hashed else rest
    assert pieces.joined() == expected


@given(_EVENTS, _WRITTEN)
def test_a_number_behind_an_object_of_a_list_is_noticed(
    events: list[Any], written: dict[str, Any]
) -> None:
    text = _text(events, written)
    noticed = EventPieces(text).before_unkeyed_number
    strings = [(m.end(), m.group()) for m in re.finditer(rb'"(?:[^"\\]|\\.)*"', text, re.DOTALL)]
    for number, (end, _) in enumerate(strings):
        following = text[end:]
        outside = following[: following.find(b'"')] if b'"' in following else following
        if re.search(rb"\}[\s,\]]*-?\d", outside):
            assert noticed[number]


_KEYS = st.sampled_from(["ts", "id", "args", "ph"])
_OWN = st.lists(
    st.dictionaries(_KEYS, _VALUE | st.dictionaries(_KEYS, _VALUE, max_size=3), min_size=1),
    min_size=1,
    max_size=5,
)


@given(_OWN, _WRITTEN)
def test_values_of_events_own_keys(events: list[Any], written: dict[str, Any]) -> None:
    text = _text(events, written)
    pieces = EventPieces(text)
    starts, ends = pieces.events()
    spans = zip(starts.tolist(), ends.tolist(), strict=True)
    assert [json.loads(text[start:end]) for start, end in spans] == events
    plain = [n for n, e in enumerate(events) if "ts" in e and not isinstance(e["ts"], list | dict)]
    chosen = pieces.is_own_key & pieces.equal("ts")
    begin, end = pieces.values(chosen)
    values = [json.loads(value) for value in cut_pieces(text, begin, end).to_pylist()]
    assert values == [events[n]["ts"] for n in plain]
    assert pieces.event_of(chosen).tolist() == [n for n, e in enumerate(events) if "ts" in e]
    numbers = pa.array([str(n).encode() for n in range(len(plain))], pa.binary())
    order = np.arange(len(plain))[::-1]
    whole = splice_text(text, begin[order], end[order], numbers.take(pa.array(order)))
    expected = [{**e, "ts": plain.index(n)} if n in plain else e for n, e in enumerate(events)]
    assert json.loads(b"[" + whole + b"]") == expected
