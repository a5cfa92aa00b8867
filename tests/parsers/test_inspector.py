"""NCCL Inspector's lines of JSON."""

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from htk.core.parser import Head
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
