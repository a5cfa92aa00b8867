"""What a trimmed file tells of its cut: read as it was written, and nothing believed."""

import json

import pytest

from htk.quantities.derived.cut_header import KEY, RECORDED, cut_headers, header_of
from tests.tables import make

WINDOWS = [
    {"of": "host", "process": "1", "thread": "a", "start_ns": 5, "end_ns": 9},
    {"of": "steps", "device": 0, "step": 3, "start_ns": 6, "end_ns": 12, "complete": True},
]
PASSING = [{"device": 0, "stream": 7, "name": "k", "kind": "compute", "start_ns": 1, "end_ns": 7}]


def written() -> dict[str, object]:
    tables = {"cut_windows": make("cut_windows", WINDOWS), "passing": make("passing", PASSING)}
    return header_of(tables, {RECORDED: ["kernels"], "start_ns": 5, "end_ns": 12})


def test_a_header_is_read_as_it_was_written() -> None:
    (read,) = cut_headers(json.loads(json.dumps({KEY: [written()]})))
    rows = read.tables["cut_windows"].to_pylist()
    assert [{k: row[k] for k in w} for row, w in zip(rows, WINDOWS, strict=True)] == WINDOWS
    assert read.tables["passing"].to_pylist() == PASSING
    assert read.facts == {RECORDED: ["kernels"], "start_ns": 5, "end_ns": 12}


@pytest.mark.parametrize(
    "change",
    [
        {"facts": {}},
        {"facts": None},
        {"passing": 7},
        {"passing": [[0], [7], ["k"], ["compute"], [1 << 63], [7]]},
        {"passing": [[0], [7], ["k"], ["compute"], [None], [7]]},
        {"passing": [["gpu"], [7], ["k"], ["compute"], [1], [7]]},
        {"passing": [[0, 1], [7], ["k"], ["compute"], [1], [7]]},
    ],
)
def test_a_header_that_makes_no_sense_tells_nothing(change: dict[str, object]) -> None:
    assert cut_headers({KEY: [{**written(), **change}]}) == []
    assert cut_headers({KEY: "cut"}) == []
    assert cut_headers({}) == []
