"""Records of a flight recorder's dump, field by field."""

from typing import Any

import pytest

from htk.parsers.common.log_records import Issues
from htk.parsers.common.recorder_groups import ProcessGroups
from htk.parsers.common.recorder_records import rows_of

CONFIG = {"7": {"desc": "tp", "ranks": "[4, 6, 8]"}}


def entry(**changes: Any) -> dict[str, Any]:
    plain: dict[str, Any] = {
        "record_id": 31,
        "pg_id": 2,
        "process_group": ("7", "tp"),
        "collective_seq_id": 5,
        "p2p_seq_id": 9,
        "profiling_name": "nccl:all_reduce",
        "input_sizes": [[2, 3], [], [4]],
        "input_dtypes": ["Float", "BFloat16", "Float"],
        "output_sizes": [[0, 3]],
        "output_dtypes": ["Long"],
        "state": "completed",
        "time_created_ns": 1_000,
        "time_discovered_started_ns": 2_000,
        "time_discovered_completed_ns": 3_000,
        "duration_ms": 0.25,
        "timeout_ms": 600_000,
        "retired": True,
        "is_p2p": False,
        "frames": [{"name": "f", "filename": "a.py", "line": 3}, 7, {"name": "g", "line": 8}],
    }
    return plain | changes


def rows(*entries: dict[str, Any], issues: Issues | None = None) -> list[dict[str, Any]]:
    listed = list(entries)
    return rows_of(listed, ProcessGroups({"pg_config": CONFIG}, listed), issues or Issues())


def test_every_field_of_a_collective() -> None:
    """Six elements, one (a scalar) and four go in: 4 bytes each but for the one of two."""
    (row,) = rows(entry())
    wanted = {
        "event": 31, "group": "7", "group_desc": "tp", "group_ranks": "[4,6,8]", "group_size": 3,
        "seq": 5, "seq_kind": "collective", "type": "all_reduce", "raw_name": "nccl:all_reduce",
        "library": "nccl", "in_shapes": "[[2,3],[],[4]]", "in_elements": 11, "in_bytes": 42,
        "dtype": "BFloat16,Float", "out_shapes": "[[0,3]]", "out_elements": 0, "out_bytes": 0,
        "out_dtype": "Long", "enqueue_ns": 1_000, "start_ns": 2_000, "end_ns": 3_000,
        "duration_ns": 250_000, "timing": "watchdog", "state": "completed", "retired": True,
        "timeout_ns": 600_000_000_000, "frames": "f (a.py:3)\ng (None:8)",
    }  # fmt: skip
    assert {name: row.get(name) for name in wanted} == wanted
    assert row.get("peer") is None and row.get("comm_rank") is None


@pytest.mark.parametrize(
    ("name", "own", "peer"),
    [
        ("nccl:send 0->2", 0, 8),
        ("nccl:recv 2<-1", 2, 6),
        ("nccl:send 1->3", 1, None),  # the group has three members
    ],
)
def test_messages_name_members_of_their_group(name: str, own: int, peer: int | None) -> None:
    """The kind of number is told by the name too: dumps of some ages do not say it."""
    for is_p2p in (True, False):
        (row,) = rows(entry(profiling_name=name, is_p2p=is_p2p))
        assert (row["comm_rank"], row["peer"]) == (own, peer)
        assert (row["seq"], row["seq_kind"]) == (9, "p2p")


def test_older_dumps_number_and_time_otherwise() -> None:
    old = entry(time_created_us=44, seq_id=6, profiling_name="all_gather", retired=1)
    for name in ("time_created_ns", "collective_seq_id", "p2p_seq_id"):
        del old[name]
    (row,) = rows(old)
    assert (row["seq"], row["enqueue_ns"], row["library"]) == (6, 44_000, None)
    assert row["retired"] is None


@pytest.mark.parametrize("written", [None, 0])
def test_what_was_not_seen_has_no_time(written: int | None) -> None:
    times = dict.fromkeys(
        ("time_discovered_started_ns", "time_discovered_completed_ns", "timeout_ms"), written
    )
    (row,) = rows(entry(**times, duration_ms=None, frames=None, state=3))
    names = ("start_ns", "end_ns", "timeout_ns", "duration_ns", "frames")
    assert [row[name] for name in names] == [None] * 5


def test_sizes_without_the_type_of_each_tensor_are_elements_alone() -> None:
    first, second = rows(
        entry(input_dtypes=["Float"]), entry(input_dtypes=["Float", "Odd", "Float"])
    )
    for row in (first, second):
        assert row["in_elements"] == 11 and row.get("in_bytes") is None
    assert second["dtype"] == "Float,Odd"


@pytest.mark.parametrize(
    "wrong",
    [
        {"time_created_ns": 1 << 61},
        {"time_created_ns": -(1 << 61)},
        {"input_sizes": [[True]]},
        {"input_sizes": [[1 << 62]]},
        {"input_sizes": [[-(1 << 62)]]},
        {"input_sizes": [[1] * 65]},
        {"input_sizes": [[1]] * ((1 << 14) + 1)},
        {"profiling_name": 3},
    ],
)
def test_records_that_cannot_be_are_left_out_and_counted(wrong: dict[str, Any]) -> None:
    issues = Issues()
    kept = rows(entry(), entry(**wrong), entry(record_id=33), issues=issues)
    assert [row["event"] for row in kept] == [31, 33]
    (issue,) = issues.table().to_pylist()
    assert (issue["kind"], issue["count"]) == ("broken_entry", 1)


def test_sizes_and_times_at_their_bounds_are_kept() -> None:
    largest = (1 << 62) - 1
    (row,) = rows(
        entry(
            time_created_ns=(1 << 61) - 1,
            input_sizes=[[largest, 5], [-3, 2], [1] * 64],
            input_dtypes=["Byte"] * 3,
        )
    )
    assert row["enqueue_ns"] == (1 << 61) - 1
    assert row["in_elements"] == 2**62 + 1  # a product ends there; below zero is nothing


def test_the_end_of_a_batch_tells_of_its_members_alone() -> None:
    """Of three sends the second is of another number, the third comes behind the batch's end."""
    send = entry(profiling_name="nccl:send 0->1", state="scheduled", retired=False)
    end = entry(profiling_name="nccl:coalesced", is_p2p=True, input_sizes=[], state="completed")
    first, other, closing, after = rows(send, send | {"p2p_seq_id": 10}, end, send)
    assert (first["coalesced"], first["state"], first["retired"]) == (
        "nccl:coalesced", "completed", True,
    )  # fmt: skip
    assert first["inferred_columns"] == "state"
    for row in (other, after):
        assert row.get("coalesced") is None and row["state"] == "scheduled"
    assert closing.get("coalesced") is None
    same, _ = rows(send | {"state": "completed"}, end)
    assert same["coalesced"] == "nccl:coalesced" and same.get("inferred_columns") is None
