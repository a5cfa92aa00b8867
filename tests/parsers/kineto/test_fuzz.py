"""Hostile documents: on valid JSON both engines read what plain json reads; on damage, the same."""

import json
import re
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from htk.parsers.kineto import pure
from htk.parsers.kineto.columns import COLUMNS

NUMBERS = re.findall(
    r"\S+",
    """
    0 1 -1 -0 12 1.0 0.5 0.0005 0.0015 -7.25 2.5e3 1E-3 1e30 0e0 0.00000 123456789.1 1e400 -1e-400
    1751410836123456 1751410836123456.789 4203669604595.407 7854398475983.9995 5e-324
    9223372036854775807 9223372036854775808 -9223372036854775808 99999999999999999999
    0.1234567890123456789 1.7976931348623157e308 1e-5000 1e5000
    """,
)
QUOTED = re.findall(
    r"\S+",
    r"""
    "12" "-3.5" "+5" "1." ".5" "." "1e2" "1e+5" "1e+-5" "NaN" "-inf" "Infinity" "N/A" "" "0x0" "0x"
    "0x7fffffffffffffff" "0x8000000000000000" "-0x1" "1_0" "\u0031" "٣" "x1"
    "ınf" "1e0000000000002" "12e-0000000000003"
    """,
)
LETTERS = [*'ab"\\\n é😀{[]0/', "\u2028", "\x7f", '}, {"ph": "X"', "traceEvents", "x" * 20]
ESCAPED = ["\\ud800", "\\udc00", "\\ud83d\\ude00", "\\u0000", "\\/", "\\b"]
DAMAGE = [
    b'"',
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
    b"\\",
    b"nan",
    b"\xff",
    b"\x01",
    b"inf",
    b"null",
]
KEYS = sorted({c.key for c in COLUMNS if c.scope == "args"} | {"unread", 'x"y', "ph", "é", "\\"})
FUZZ = settings(max_examples=3 * settings.default.max_examples)


class Writer:
    """Writes one document, as unlike the last one as the dice say."""

    def __init__(self, dice: Random) -> None:
        self.dice = dice
        self.indent = dice.choice(["", "", "\n    ", " ", "\r\n\t"])

    def document(self) -> bytes:
        events = self.several("[]", [self.event() for _ in range(self.dice.randrange(12))])
        if self.dice.random() < 0.1:
            return events.encode()
        before = [("schemaVersion", "1"), ("x", '{"traceEvents": [{"ph":"X"}]}')]
        after = [("traceName", self.text()), ("y", self.number()), ("z", self.value())]
        members = [*self.some(before), ("traceEvents", events), *self.some(after)]
        return (self.space() + self.object(members) + self.space()).encode()

    def event(self) -> str:
        members = [("ph", self.dice.choice(['"X"', '"M"', '"i"', '"C"']))]
        members += [(k, self.scalar()) for k in ("cat", "name", "pid", "tid")]
        members += [(k, self.dice.choice([self.number(), self.value()])) for k in ("ts", "dur")]
        members += [(k, self.value()) for k in self.some(["id", "bp", "s", "unknown"])]
        if self.dice.random() < 0.7:
            members.append(("args", self.args()))
        if self.dice.random() < 0.2:
            self.dice.shuffle(members)
            members.pop()
        return self.object(members)

    def args(self) -> str:
        if self.dice.random() < 0.05:
            return self.dice.choice(["null", "[]", "3"])
        keys = self.dice.sample(KEYS, self.dice.randrange(6))
        return self.object([(k, self.dice.choice([self.number(), self.value()])) for k in keys])

    def value(self, depth: int = 0) -> str:
        kind = self.dice.randrange(9 if depth < 3 else 6)
        if kind < 6:
            return self.scalar()
        if kind == 6:
            members = [(self.dice.choice(KEYS), self.value(depth + 1)) for _ in range(2)]
            return self.object(dict(members).items())
        return self.several("[]", [self.value(depth + 1) for _ in range(self.dice.randrange(4))])

    def scalar(self) -> str:
        odd = self.dice.choice([*QUOTED, "null", "true", "false"])
        return self.dice.choice([self.text(), self.text(), self.number(), odd])

    def number(self) -> str:
        return self.dice.choice(NUMBERS)

    def text(self) -> str:
        letters = [self.dice.choice(LETTERS) for _ in range(self.dice.randrange(9))]
        ascii_only = self.dice.random() < 0.5
        parts = [json.dumps(letter, ensure_ascii=ascii_only)[1:-1] for letter in letters]
        return '"' + "".join([*parts, *self.some(ESCAPED)]) + '"'

    def object(self, members) -> str:
        return self.several(
            "{}", [self.key(k) + self.space() + ":" + self.space() + v for k, v in members]
        )

    def key(self, key: str) -> str:
        if key and self.dice.random() < 0.03:
            return f'"\\u{ord(key[0]):04x}' + json.dumps(key[1:])[1:]
        return json.dumps(key, ensure_ascii=self.dice.random() < 0.5)

    def several(self, ends: str, parts: list[str]) -> str:
        inside = (self.space() + "," + self.space()).join(parts)
        return ends[0] + self.space() + inside + self.space() + ends[1]

    def some(self, things: list) -> list:
        return [thing for thing in things if self.dice.random() < 0.3]

    def space(self) -> str:
        return self.dice.choice([self.indent, self.indent, self.indent, " ", ""])


def damaged(text: bytes, dice: Random) -> bytes:
    broken = bytearray(text)
    for _ in range(dice.choice([1, 1, 1, 2, 5])):
        at = dice.randrange(len(broken) + 1)
        what = dice.randrange(4)
        if what == 0:
            del broken[at : at + dice.choice([1, 1, 5, 40])]
        elif what == 1:
            broken[at:at] = dice.choice(DAMAGE)
        elif what == 2:
            broken[at : at + 1] = dice.choice(DAMAGE)[:1]
        else:
            del broken[at:]
    return bytes(broken)


@pytest.fixture(autouse=True, scope="module")
def batch_is_restored():
    size = pure._BATCH
    yield
    pure._BATCH = size


def in_pieces(truth, text: bytes, dice: Random):
    """The text in pieces of any size; the pure engine's batches are of any size too."""
    pure._BATCH = dice.choice([64, 300, 1 << 19])
    return truth.Pieces(text, lambda: dice.choice([1, 2, 7, 16, 50, 1000]))


@FUZZ
@given(seed=st.integers(0, 2**32))
def test_valid_json_is_read_as_plain_json_reads_it(truth, both, seed):
    text = Writer(Random(seed)).document()
    for read in both:
        dice = Random(seed)
        rest = dice.random() < 0.5
        raw = read(in_pieces(truth, text, dice), rest=rest)
        expected = truth.read(text, rest)
        assert truth.differences(expected, raw) == []
        assert repr(raw.header) == repr(expected.header)
        assert set(raw.issue_counts) <= {"mistyped_value"}
        assert not raw.truncated


@FUZZ
@given(seed=st.integers(0, 2**32))
def test_damage_is_read_alike(truth, both, seed):
    text = damaged(Writer(Random(seed)).document(), Random(seed))
    compiled, slow = (read(in_pieces(truth, text, Random(seed))) for read in both)
    assert compiled.rows == slow.rows
    assert truth.cells(compiled) == truth.cells(slow)
    assert repr(compiled.header) == repr(slow.header)
    assert compiled.truncated == slow.truncated
    assert compiled.issue_counts == slow.issue_counts


@pytest.mark.parametrize(
    "start",
    [
        b"\xef\xbb\xbf",
        b" \xef\xbb\xbf",
        b"\0\xef\xef",
        b"\n\xef\xbb\xbf\n",
        b"\0\0\xef",
        b"\xef\xbb ",
    ],
)
def test_a_byte_order_mark_stands_at_the_very_start(truth, both, start):
    """Behind blanks it is none, also where they were a piece of their own."""
    text = start + Writer(Random(1)).document()
    for read in both:
        pure._BATCH = 1 << 19
        whole = read(truth.Pieces(text))
        assert bool(whole.rows) == (start == b"\xef\xbb\xbf")
        for size in (1, 2, 3):
            pure._BATCH = 64
            pieces = read(truth.Pieces(text, lambda size=size: size))
            assert (pieces.rows, pieces.truncated) == (whole.rows, whole.truncated)
            assert pieces.issue_counts == whole.issue_counts


@pytest.mark.parametrize(
    "text", [b"\xef", b"\xef\xbb", b"\xef\xbb\xbf", b"\xef\xef", b"\xef\xef\xef"]
)
def test_a_mark_and_no_more_is_read_alike(truth, both, text):
    compiled, slow = (read(truth.Pieces(text)) for read in both)
    assert (compiled.rows, compiled.truncated) == (slow.rows, slow.truncated)
    assert compiled.issue_counts == slow.issue_counts


@FUZZ
@given(seed=st.integers(0, 2**32))
def test_pieces_are_read_as_the_whole(truth, both, seed):
    """Wherever a file is cut into pieces, also within damage and within long white space."""
    dice = Random(seed)
    text = damaged(Writer(dice).document(), dice)
    for _ in range(dice.randrange(3)):
        at = dice.randrange(len(text) + 1)
        text = text[:at] + dice.choice([b" ", b"\n", b"\0"]) * dice.choice([1, 70, 300]) + text[at:]
    for read in both:
        pure._BATCH = 1 << 19
        whole = read(truth.Pieces(text))
        pieces = read(in_pieces(truth, text, dice))
        assert truth.cells(pieces) == truth.cells(whole)
        assert repr(pieces.header) == repr(whole.header)
        assert (pieces.rows, pieces.truncated) == (whole.rows, whole.truncated)
        assert pieces.issue_counts == whole.issue_counts
        assert [i.offset for i in pieces.issues] == [i.offset for i in whole.issues]
