"""Rings and trees in NCCL's log, as hops."""

import io
from pathlib import Path
from typing import Any

from htk.base.core.parser import ParseOptions, Source
from htk.parsers import nccl_debug
from htk.parsers.nccl_debug.message import Message
from htk.parsers.nccl_debug.orders import ChannelOrders

LOG = Path(__file__).parents[3] / "sample_traces/nccl_debug/two_ranks_interleaved.log"


def hops_of(data: bytes) -> list[dict[str, Any]]:
    source = Source("a.log", lambda: io.BytesIO(data))
    table: Any = nccl_debug.parse(source, ParseOptions()).tables["comm_transports"]
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows


def test_log_of_rings_and_trees() -> None:
    """Hops of each rank's line, and of the ring that the first rank writes whole."""
    hops = hops_of(LOG.read_bytes())
    rings = {(r["channel"], r["from_rank"], r["to_rank"]) for r in hops if r["algorithm"] == "RING"}
    assert rings == {(0, 0, 1), (0, 1, 0), (1, 0, 1), (1, 1, 0)}
    trees = {(r["channel"], r["from_rank"], r["to_rank"]) for r in hops if r["algorithm"] == "TREE"}
    assert trees == {(0, 1, 0), (1, 1, 0)}  # rank 0 is the root of both
    assert {r["algorithm"] for r in hops if r["transport"]} == {None}


def test_a_ring_over_several_lines_and_an_older_tree() -> None:
    head = b"h:1:2 [0] NCCL INFO "
    init = head + b"comm 0xa rank 0 nranks 4 cudaDev 0 busId 1 commId 0xb - Init START\n"
    text = init + head + b"Channel 00/02 :    0   3\n" + head + b"Channel 00/02 :    1   2\n"
    text += head + b"Trees [0] 1/2/-1->0->-1|-1->0->1/2/-1 [1] -1/-1/-1->0->3|3->0->-1/-1/-1\n"
    text += head + b"Channel 01/02 : 0 1 1 2\n" + head + b"Channel 02/02 : 99999999999 0 1 2\n"
    hops = hops_of(text)
    edges = [(r["algorithm"], r["channel"], r["from_rank"], r["to_rank"]) for r in hops]
    ring = [(0, 3), (1, 2), (2, 0), (3, 1)]
    assert edges == [
        *(("RING", 0, a, b) for a, b in ring), ("TREE", 0, 1, 0), ("TREE", 0, 2, 0),
        ("TREE", 1, 0, 3),
    ]  # fmt: skip


def test_lines_of_other_things_are_not_orders() -> None:
    assert [
        ChannelOrders().read(Message("h", "1", "2", 0, "INFO", text, 0, None, None), 4)
        for text in ("Channel 00/0 : 0[0] -> 1[1] via SHM", "Ring 00 : x", "threadThresholds 8/8")
    ] == [None] * 3
