"""Each column of events stands for one key, and both engines read it under its name."""

import json
import re
from collections import Counter
from typing import Any

import pytest

from htk.parsers.kineto.columns import COLUMNS, NAMES, REST, SPELLED, EventColumn
from htk.parsers.kineto.tables import step_number

ALL = [column for column in COLUMNS if column.name != REST]
# "M" would make all arguments one more column
VALUES = [c for c in ALL if c.name != "ph" and c not in SPELLED]


def test_no_name_and_no_key_stands_twice() -> None:
    assert len(set(NAMES)) == len(NAMES) == len(COLUMNS)
    keys = Counter((c.scope, c.key) for c in COLUMNS if c not in SPELLED)
    assert max(keys.values()) == 1
    ids = {(c.scope, c.key) for c in COLUMNS if c.kind == "ids"}
    assert ids == {(c.scope, c.key) for c in SPELLED} and {c.kind for c in SPELLED} == {"text"}
    assert all(c.key == c.key.strip() and c.key for c in ALL)


def written(column: EventColumn, number: int) -> tuple[Any, Any]:
    """A value of its kind as a file has it, and as it is read."""
    if column.kind == "nanos":
        return number + 0.5, 1000 * number + 500
    if column.kind == "floats":
        return number + 0.25, number + 0.25
    if column.kind in ("ints", "ids"):
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


PLAIN = re.compile("0|[1-9][0-9]{0,17}")
WRITTEN = [
    *("0", "7", "10", "123456789012345678", "1234567890123456789", "18446744073709551615"),
    *("-1", "-0", "00", "07", "1.0", "1e3", "7a", "true", "[1, 2]", '{"a": 1}', "null"),
    *('"0"', '"7"', '"10"', '"07"', '"-1"', '"0x1f"', '"7 "', '" 7"', '"\u0663"', '""', '"a"'),
    *('"1234567890123456789"', '"\\u0037"', '"1\\u0030"', '"\\"7"', '"7\\n"', '"\u00b2"'),
]


def test_ids_are_numbers_where_that_is_their_only_spelling(read, truth) -> None:
    """Ids whose texts are equal are equal, those whose texts differ differ."""
    events = [f'{{"ph":"s","id":{value}}}' for value in WRITTEN]
    raw = read(f'{{"traceEvents":[{",".join(events)}]}}'.encode())
    numbers, spelled = {}, {}
    for row, value in enumerate(WRITTEN):
        text = json.loads(value) if value[0] == '"' else value.replace(" ", "")
        if PLAIN.fullmatch(text):
            numbers[row] = int(text)
        elif text != "null":
            spelled[row] = text
    assert truth.sparse(raw, "id") == numbers and len(numbers) == 9
    assert truth.sparse(raw, "id_text") == spelled
    assert not raw.issues


@pytest.mark.parametrize(
    ("first", "second", "number", "text"),
    [
        ("5", '"x"', {}, {0: "x"}),
        ('"x"', "5", {0: 5}, {}),
        ("5", "null", {}, {}),
        ('"x"', "null", {}, {}),
        ("5", "6", {0: 6}, {}),
        ('5"', "6", {0: 6}, {}),
        ('5"', '"x"', {}, {0: "x"}),
    ],
)
def test_the_last_of_repeated_ids_counts(
    read, truth, first: str, second: str, number: dict[int, int], text: dict[int, str]
) -> None:
    raw = read(f'[{{"ph":"s","id":{first},"id":{second}}}]'.encode())
    assert raw.rows == 1 and not raw.issue_counts["mistyped_value"]
    for name, expected in (("id", number), ("id_text", text)):
        assert (truth.sparse(raw, name) if raw.has(name) else {}) == expected


def test_an_id_without_its_opening_quote_is_counted(read) -> None:
    raw = read(b'[{"ph":"s","id":5"},{"ph":"s","id":6}]')
    assert raw.issue_counts["mistyped_value"] == 1
    assert raw.dense("id").to_pylist() == [None, 6] and not raw.has("id_text")


def test_an_argument_that_every_event_has_is_in_their_order(read, truth) -> None:
    """Categories take turns, and what the arguments of each look like differs."""
    kinds = [("kernel", {"stream": 7}), ("cpu_op", {"Sequence number": 3}), ("cuda_runtime", {})]
    events = [
        {
            "ph": "X",
            "cat": kinds[k * k % 3][0],
            "args": {"External id": 5 * k} | kinds[k * k % 3][1],
        }
        for k in range(60)
    ]
    raw = read(json.dumps({"traceEvents": events}).encode())
    assert truth.sparse(raw, "external_id") == {k: 5 * k for k in range(60)}


@pytest.mark.parametrize(
    ("name", "number"),
    [("ProfilerStep#0", 0), ("ProfilerStep#2147483647", 2**31 - 1), ("ProfilerStep#2147483648", -1),
     ("ProfilerStep#" + "9" * 400, -1), ("ProfilerStep#²", -1), ("ProfilerStep#", -1), ("7", -1)],
)  # fmt: skip
def test_steps_that_no_job_counts_have_no_number(name: str, number: int) -> None:
    assert step_number(name) == number
