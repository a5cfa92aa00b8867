"""Copies of Kineto files, event by event: the same events as the engines read, byte for byte."""

import io
import json
import random
from pathlib import Path

import pytest

from htk.base.io.decompress import open_stream
from htk.parsers.kineto.read import read_events
from htk.parsers.kineto.text import Copied, copy_changed
from tests.thinned import thinned

SAMPLES = Path(__file__).parents[3] / "sample_traces"
DAMAGED = sorted((SAMPLES / "damaged").glob("*.json*"))
WHOLE = sorted((SAMPLES / "recorded").glob("**/*.json.gz"))


def _copied(data: bytes) -> tuple[bytes, Copied, list[bytes]]:
    out, events = io.BytesIO(), []

    def event(row: int, text: bytes) -> bytes:
        assert row == len(events)
        events.append(text)
        return text

    with open_stream(io.BytesIO(data)) as stream:
        made = copy_changed(stream, out.write, lambda _, value: value, event)
    return out.getvalue(), made, events


@pytest.mark.parametrize("path", [*DAMAGED, *WHOLE], ids=lambda p: p.name)
def test_rows_are_counted_as_the_engine_counts_them(path: Path) -> None:
    with path.open("rb") as file, open_stream(file) as stream:
        raw = read_events(stream)
    _, made, events = _copied(path.read_bytes())
    assert made.events == raw.rows
    names = raw.dense("name").to_pylist() if raw.rows else []
    for name, text in zip(names, events, strict=True):
        if name is not None:
            assert json.dumps(name)[1:-1] in text.decode("utf8", "replace") or "\\" in str(text)


@pytest.mark.parametrize("path", thinned(WHOLE), ids=lambda p: p.name)
def test_a_copy_reads_the_same(path: Path) -> None:
    with path.open("rb") as file, open_stream(file) as stream:
        before = json.loads(stream.read(1 << 30))
    out, made, _ = _copied(path.read_bytes())
    assert json.loads(out) == before
    assert made.kept == made.events == len(before["traceEvents"]) and not made.broken


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        (b'[{"ph":"X","ts":1.50},{"ph":"X","ts":2}]', 2),
        (b'{"a":1,"traceEvents":[{"ph":"X"},{"ph": X x},{"ph":"X"}],"b":2}', 2),
        (b'{"a":1,"traceEvents":[{"ph":"X"},{"ph":"X","na', 1),
        (b'{"a":1,"traceEvents":[', 0),
        (b'{"traceEvents":[],"b":{"c":[1,2]}}', 0),
    ],
)
def test_what_is_written_is_json_whatever_was_read(text: bytes, rows: int) -> None:
    out, made, _ = _copied(text)
    document = json.loads(out)
    events = document if isinstance(document, list) else document["traceEvents"]
    assert len(events) == made.kept == rows


def _random_file(draw: random.Random) -> bytes:
    """Return events whose strings look like borders between events, and in half of the files a
    byte that is damaged."""
    names = ["a", 'b, {"ph"', '"}]', "\\", "\u00e9", ', { "name"']
    events = [
        {"ph": "X", "name": draw.choice(names), "ts": k, "args": {"of": [k, {"id": k}]}}
        for k in range(draw.randint(0, 60))
    ]
    indent = draw.choice([None, 0, 1])
    text = json.dumps({"a": 1, "traceEvents": events, "b": [2]}, indent=indent).encode()
    if draw.random() < 0.5:
        at = draw.randrange(len(text))
        text = text[:at] + draw.choice([b"", b'"', b"}", b"\xff", b"x"]) + text[at + 1 :]
    return text


@pytest.mark.parametrize("seed", range(60))
def test_events_divided_at_once_are_those_of_a_walk(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = random.Random(seed)
    text = _random_file(draw)
    monkeypatch.setattr("htk.parsers.kineto.text._RUN_BYTES", draw.choice([50, 400, 5000]))
    at_once = _copied(text)
    monkeypatch.setattr("htk.parsers.kineto.text._split_events", lambda _: [])
    assert at_once == _copied(text)
