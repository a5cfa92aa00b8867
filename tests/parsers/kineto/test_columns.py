"""Each column of events stands for one key, and both engines read it under its name."""

import json
from collections import Counter
from typing import Any

import pytest

from htk.parsers.kineto.columns import COLUMNS, NAMES, REST, EventColumn

ALL = [column for column in COLUMNS if column.name != REST]
VALUES = [c for c in ALL if c.name != "ph"]  # "M" would make all arguments one more column


def test_no_name_and_no_key_stands_twice() -> None:
    assert len(set(NAMES)) == len(NAMES) == len(COLUMNS)
    assert max(Counter((c.scope, c.key) for c in COLUMNS).values()) == 1
    assert all(c.key == c.key.strip() and c.key for c in ALL)


def written(column: EventColumn, number: int) -> tuple[Any, Any]:
    """A value of its kind as a file has it, and as it is read."""
    if column.kind == "nanos":
        return number + 0.5, 1000 * number + 500
    if column.kind == "floats":
        return number + 0.25, number + 0.25
    if column.kind == "ints":
        return number, number
    if column.kind == "json":
        return [[number, 2], []], f"[[{number},2],[]]"
    return f"text {number}", f"text {number}"


def test_every_key_is_read_into_its_own_column(read, truth) -> None:
    """An event has all keys, each with a value of its own; the next one has none."""
    event: dict[str, Any] = {"ph": "X", "args": {}}
    expected = {}
    for number, column in enumerate(VALUES, 100):
        value, cell = written(column, number)
        (event if column.scope == "event" else event["args"])[column.key] = value
        expected[column.name] = {1: cell}
    raw = read(json.dumps({"traceEvents": [{"ph": "X"}, event, {"ph": "X"}]}).encode())
    assert not raw.issues
    assert {name: truth.sparse(raw, name) for name in raw.names if name != "ph"} == expected


@pytest.mark.parametrize("scope", ["event", "args"])
def test_a_key_counts_only_where_it_belongs(read, scope: str) -> None:
    """Keys of arguments beside ts and dur, and those of events among arguments, are not read."""
    keys = {c.key: 7 for c in VALUES if c.scope == scope and c.kind == "ints"}
    keys |= {c.key: "7" for c in VALUES if c.scope == scope and c.kind == "text"}
    both = {c.key for c in VALUES if c.scope != scope}
    keys = {key: value for key, value in keys.items() if key not in both}
    event = {"ph": "X", **(keys if scope == "args" else {"args": keys})}
    raw = read(json.dumps({"traceEvents": [event]}).encode())
    assert set(raw.names) == {"ph"} and len(keys) > 4
