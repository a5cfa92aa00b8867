"""NCCL Inspector's lines of JSON."""

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from htk.base.core.parser import Head
from htk.parsers import inspector
from tests.parsers.log_files import SAMPLES, parsed, rows, sample, values


def test_inspector_line() -> None:
    first, gather, *_, send = rows(sample("inspector/nccl-inspector-12345/node-a-pid1001.log"))
    assert values(first, "comm_hash", "comm_rank", "seq", "seq_kind") == (
        0x7F8C496AE9F661,
        0,
        0,
        "function",
    )
    assert values(first, "type", "in_bytes", "duration_ns") == ("all_reduce", 64 << 20, 620_000)
    assert values(gather, "in_bytes", "out_bytes") == (8 << 20, 16 << 20)  # one rank's, of two
    assert values(send, "type", "peer", "seq_kind", "in_bytes") == ("send", 1, "p2p", 4 << 20)
    assert first["start_ns"] is None  # a line is stamped when it is written


def test_inspector_verbose_has_times_and_channels() -> None:
    found = sample("inspector/verbose/node-a-pid1001.log")
    scatter = rows(found)[0]
    assert values(scatter, "in_bytes", "out_bytes") == (16 << 20, 8 << 20)
    assert values(scatter, "start_ns", "end_ns", "group") == (
        1784999999999799000,
        1784999999999900000,
        None,
    )
    assert values(rows(found, "comm_channels")[0], "channel", "timing") == (0, "cpu")


@pytest.mark.parametrize(
    "printed",
    [
        lambda records: "\n".join(map(json.dumps, records)),
        lambda records: "\n".join(json.dumps(r, indent=2) for r in records),
        lambda records: json.dumps(records, indent=1),
        lambda records: json.dumps(records),
    ],
    ids=["blanks", "over lines", "a list over lines", "a list"],
)
def test_inspector_printed_anew(printed: Callable[[list[Any]], str]) -> None:
    path = SAMPLES / "inspector/nccl-inspector-12345/node-a-pid1001.log"
    records = [json.loads(line) for line in path.read_text().splitlines()]
    data = printed(records).encode()
    assert inspector.sniff(Head("x", data, True))
    assert rows(parsed(inspector, data)) == rows(parsed(inspector, path.read_bytes()))


def test_inspector_truncated() -> None:
    found = sample("inspector/truncated/node-a-pid78.log")
    assert len(rows(found)) == 1 and rows(found, "parse_issues")[0]["kind"] == "truncated"


def test_inspector_prints_infinity_bare() -> None:
    line = (SAMPLES / "inspector/v2.28_no_comm_name/node-a-pid77.log").read_bytes()
    changed = re.sub(rb'"coll_algobw_gbs":[\d.]+', b'"coll_algobw_gbs":inf', line)
    assert changed != line
    assert rows(parsed(inspector, changed))[0]["seq"] == 1407


def record(sort: str, header: dict[str, Any], **perf: Any) -> str:
    plain = {"id": "0xff", "rank": 3, "n_ranks": 8, "nnodes": 2, "comm_name": "tp"}
    return json.dumps({"header": plain | header, f"{sort}_perf": perf}) + "\n"


def test_every_field_of_a_call() -> None:
    """Two channels that the host saw: the call lasts from the first to the last; 0 was not seen."""
    events = [
        {"channel_id": 4, "kernel_start_ts": 700, "kernel_stop_ts": 0},
        {"channel_id": 1, "kernel_start_ts": 600, "kernel_stop_ts": 900},
        "odd",
        {"channel_id": 2, "kernel_start_ts": 0, "kernel_stop_ts": 800},
    ]
    plain = {"coll": "ReduceScatter", "coll_sn": 7, "coll_msg_size_bytes": 10}
    plain |= {"coll_exec_time_us": 25, "coll_timing_source": "kernel_gpu"}
    message = {"p2p": "Send", "p2p_sn": 9, "p2p_msg_size_bytes": 6, "p2p_peer": 5}
    log = parsed(
        inspector,
        record("coll", {}, **plain)
        + record(
            "coll", {"comm_name": "unknown"}, **plain, event_trace_ts={"kernel_events": events}
        )
        + record("p2p", {"id": "0x1", "n_ranks": 2}, **message),
    )
    told = ("comm_hash", "comm_rank", "group", "group_size", "seq", "seq_kind", "type", "peer")
    sized = ("in_bytes", "out_bytes", "channels", "start_ns", "end_ns", "duration_ns", "timing")
    assert [values(c, *told) for c in rows(log)] == [
        (255, 3, "tp", 8, 7, "function", "reduce_scatter", None),
        (255, 3, None, 8, 7, "function", "reduce_scatter", None),
        (1, 3, "tp", 2, 9, "p2p", "send", 5),
    ]
    assert [values(c, *sized) for c in rows(log)] == [
        (80, 10, None, None, None, 25_000, "gpu"),
        (80, 10, 3, 600_000, 900_000, 25_000, "cpu"),
        (6, None, None, None, None, None, "cpu"),
    ]
    channels = ("type", "seq", "channel", "start_ns", "end_ns")
    assert [values(c, *channels) for c in rows(log, "comm_channels")] == [
        ("reduce_scatter", 7, 4, 700_000, None),
        ("reduce_scatter", 7, 1, 600_000, 900_000),
        ("reduce_scatter", 7, 2, None, 800_000),
    ]
    groups = ("comm_hash", "group", "group_size", "nodes")
    assert [values(g, *groups) for g in rows(log, "comm_groups")] == [
        (255, "tp", 8, 2), (1, "tp", 2, 2),
    ]  # fmt: skip


def test_lines_that_are_no_record_are_counted_where_they_lie() -> None:
    good = record("coll", {}, coll="AllReduce", coll_sn=1)
    log = parsed(inspector, good + '{"header": {}}\n' + good + good[:50])
    assert len(rows(log)) == 2
    issues = [(i["kind"], i["offset"]) for i in rows(log, "parse_issues")]
    assert issues == [("broken_line", len(good)), ("truncated", 2 * len(good) + 15)]
