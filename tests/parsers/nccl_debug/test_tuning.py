"""Lines in which NCCL says what it chose."""

import pytest

from htk.parsers.nccl_debug.message import Message
from htk.parsers.nccl_debug.tuning import (
    CHOICE,
    SPECIAL,
    TuningTables,
    is_for,
    parse_choice,
    parse_special,
)


def chosen(text: str) -> dict[str, object]:
    match = CHOICE.search(text)
    assert match is not None
    return parse_choice(text, match)


def test_a_choice_by_names() -> None:
    text = "AllReduce: 4194304 Bytes -> Algo RING proto LL128 channel{Lo..Hi}={2..9} time 41.5"
    assert chosen(text) == {
        "type": "all_reduce", "size_bytes": 4194304, "algorithm": "RING", "protocol": "LL128",
        "channels": 8, "time_us": 41.5,
    }  # fmt: skip


def test_a_choice_by_numbers_as_older_logs_have_it() -> None:
    row = chosen("33554432 Bytes -> Algo 1 proto 2 time 500.0")
    assert (row["type"], row["algorithm"], row["protocol"]) == (None, "RING", "SIMPLE")
    assert row["channels"] is None


@pytest.mark.parametrize(
    ("call", "fits"),
    [
        ({"type": "all_gather", "in_bytes": 8, "out_bytes": 64}, True),
        ({"type": "all_gather", "in_bytes": 64, "out_bytes": 512}, True),
        ({"type": "all_gather", "in_bytes": 9, "out_bytes": 72}, False),
        ({"type": "all_reduce", "in_bytes": 64, "out_bytes": 64}, False),
        ({"type": "all_gather", "in_bytes": 64, "algorithm": "TREE"}, False),  # it has its choice
    ],
)
def test_whose_choice_it_is(call: dict[str, object], fits: bool) -> None:
    assert is_for(call, {"type": "all_gather", "size_bytes": 64}) is fits


def test_calls_without_rings_and_trees() -> None:
    match = SPECIAL.search(
        "AllReduce [Symmetric]: 1024 Bytes -> Kernel AllReduce_RSxLD nchannels 4"
    )
    assert match is not None
    assert parse_special(match) == {
        "type": "all_reduce", "size_bytes": 1024, "algorithm": "AllReduce_RSxLD", "channels": 4,
    }  # fmt: skip


def test_a_table_of_each_process_by_itself() -> None:
    tables = TuningTables()

    def read(pid: str, text: str) -> list[dict[str, object]] | None:
        return tables.read(Message("a", pid, "1", 0, "INFO", text, 0, None, None))

    assert read("1", " Algorithm   |  Tree     |  Ring    |") == []
    assert read("1", " Protocol    |  LL  LL128  Simple |  LL  LL128  Simple |") == []
    line = " AllReduce   | 5.0/ 1.0  6.0/ 2.0  7.0/ 0.0 | 4.6/ 3.0  12.5/ 4.0  14.1/ 5.0 |"
    rows = read("1", line)
    assert rows is not None
    cells = [(r["algorithm"], r["protocol"], r["time_us"], r["bandwidth_gbps"]) for r in rows]
    assert cells == [
        ("TREE", "LL", 5.0, 1.0), ("TREE", "LL128", 6.0, 2.0),  # without bandwidth: not possible
        ("RING", "LL", 4.6, 3.0), ("RING", "LL128", 12.5, 4.0), ("RING", "SIMPLE", 14.1, 5.0),
    ]  # fmt: skip
    assert read("2", line) is None, "process 2 has printed no head"
