"""The line of a program that a cause comes from: its innermost function that ran then."""

import pytest

from htk.verdicts.causes.cause import Example
from htk.verdicts.causes.source_lines import SourceLines
from tests.tables import make

_LIBRARY = "/opt/lib/python3.12/site-packages/a.py(3): f"
CALLS = [
    {"rank": 0, "name": "train.py(9): main", "start_ns": 0, "end_ns": 100},
    {"rank": 0, "name": "my/loader.py(4): next_item", "start_ns": 10, "end_ns": 60},
    {"rank": 0, "name": "torch/nn/functional.py(2): pad", "start_ns": 20, "end_ns": 50},
    {"rank": 0, "name": "json/decoder.py(1): decode", "start_ns": 20, "end_ns": 50},
    {"rank": 0, "name": "<frozen importlib._bootstrap>(2): find", "start_ns": 20, "end_ns": 50},
    {"rank": 0, "name": _LIBRARY, "start_ns": 20, "end_ns": 50},
    {"rank": 0, "name": "<built-in method sleep>", "start_ns": 20, "end_ns": 50},
    {"rank": 1, "name": "/home/me/eval.py(7): main", "start_ns": 0, "end_ns": 100},
]


@pytest.mark.parametrize(
    ("rank", "start", "end", "line"),
    [
        (0, 30, 40, "my/loader.py(4): next_item"),
        (0, 59, 70, "train.py(9): main"),  # in the middle of it loading is done
        (1, 30, 40, "/home/me/eval.py(7): main"),
        (0, 100, 110, None),
    ],
)
def test_the_innermost_function_of_the_program(
    rank: int, start: int, end: int, line: str | None
) -> None:
    lines = SourceLines(make("python_calls", CALLS))
    assert lines.line_of(Example(rank, start, end), None) == line


def test_without_stacks_no_line_is_named() -> None:
    assert SourceLines(make("python_calls", [])).line_of(Example(0, 0, 9), None) is None
