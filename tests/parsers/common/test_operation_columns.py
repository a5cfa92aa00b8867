"""Columns of operation-level rows: names, units, types, ranks."""

from pathlib import Path

import pytest

import htk
from htk.base.errors import MalformedTrace
from htk.parsers import operation_rows
from tests.parsers.operation_files import ROW, lines, parsed, rows


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        ({"start_ns": 5_000_000_000, "duration_ns": 20}, (5_000_000_000, 5_000_000_020)),
        ({"start_us": 5, "duration_us": 2}, (5_000, 7_000)),
        ({"start_ms": 5.5, "end_ms": 6.25}, (5_500_000, 6_250_000)),
        ({"start_ts": 1.5, "duration": 0.25}, (1_500_000_000, 1_750_000_000)),
        ({"start": 1_700_000_000_123_456_789, "duration": 9}, (1_700_000_000_123_456_789, None)),
        ({"start": 1_700_000_000_123_456, "duration": 9}, (1_700_000_000_123_456_000, None)),
        ({"ts": 1_700_000_000_123, "dur": 2}, (1_700_000_000_123_000_000, None)),
        ({"start_ns": 4_000, "duration_us": 1.5}, (4_000, 5_500)),
        ({"start_s": 1_700_000_000.25, "duration_ms": 1}, (1_700_000_000_250_000_000, None)),
    ],
)
def test_units_are_those_of_the_names_else_of_the_numbers(
    times: dict[str, float], expected: tuple[int, int | None]
) -> None:
    (row,) = rows(parsed(operation_rows, lines(ROW | times)))
    assert row["start_ns"] == expected[0]
    if expected[1] is not None:
        assert row["end_ns"] == expected[1]
    assert row["end_ns"] > row["start_ns"]


def test_whole_numbers_that_tell_no_unit_are_refused() -> None:
    with pytest.raises(MalformedTrace, match="name it start_ns, start_us, start_ms or start_s"):
        parsed(operation_rows, lines(ROW | {"start": 12345, "duration": 9}))


def test_a_unit_that_is_asked_for_holds_where_no_name_says_it(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    for times in ({"start": 12345, "duration": 9}, {"start": 12345.0, "duration": 9.0}):
        path.write_bytes(lines(ROW | times))
        table = htk.open(path, time_unit="us").tables["job_operations"]
        assert (table["start_ns"].to_pylist(), table["end_ns"].to_pylist()) == (
            [12_345_000], [12_354_000],
        )  # fmt: skip
    path.write_bytes(lines(ROW | {"start_ms": 3, "duration_ms": 9}))
    table = htk.open(path, time_unit="us").tables["job_operations"]
    assert table["end_ns"].to_pylist() == [12_000_000], "a name that says its unit knows better"
    with pytest.raises(htk.HtkError, match="time_unit='hours': expected one of s, ms, us, ns"):
        htk.open(path, time_unit="hours")


@pytest.mark.parametrize("step", [7, 7.0, "7"])
def test_steps_are_whole_numbers_however_they_are_written(step: object) -> None:
    data = lines(ROW | {"start_ns": 4, "end_ns": 9, "step": step})
    assert [row["step"] for row in rows(parsed(operation_rows, data))] == [7]


def test_columns_go_by_many_names() -> None:
    csv = (
        "global_rank,dp,pp,mc,mb_id,iteration,optype,start_us,duration_us\n"
        "5,2,1,0,3,40,backward-send,10.5,2.25\n"
        "5,2,1,0,-1,40,optimizer-clip-main-grad,20,1\n"
    )
    first, second = rows(parsed(operation_rows, csv.encode()))
    assert first == {
        "rank": 5, "dp_rank": 2, "stage": 1, "chunk": 0, "micro_batch": 3, "step": 40,
        "index_in_type": None, "type": "backward_send", "start_ns": 10_500, "end_ns": 12_750,
    }  # fmt: skip
    assert (second["type"], second["micro_batch"]) == ("clip_grads", None)


def test_ranks_without_stages_are_replicas() -> None:
    plain = {"rank": 6, "step": 0, "type": "forward", "start_ns": 10, "end_ns": 30}
    (row,) = rows(parsed(operation_rows, lines(plain)))
    assert (row["dp_rank"], row["stage"], row["rank"]) == (6, 0, 6)
