"""Bytes within and between nodes, against every hop of each algorithm counted one by one."""

from typing import Any

import numpy as np
import pytest

from htk.quantities.derived.match import collective_matches
from htk.quantities.measures.collective_calls import CollectiveCalls
from htk.quantities.measures.node_traffic import node_traffic
from tests.tables import make

SIZE = 12_000
HOSTS = {0: "a", 1: "a", 2: "b", 3: "b", 4: "b", 5: "c"}  # uneven on purpose


def split_of(rows: list[dict[str, Any]], hosts: dict[int, str]) -> list[tuple[int, int]]:
    collectives = make("collectives", [{"source": "kineto", "timing": "gpu"} | r for r in rows])
    ranks = make("ranks", [{"rank": r, "host": h} for r, h in hosts.items()])
    windows = make("rank_windows", [])
    calls = CollectiveCalls.from_tables(
        collectives, collective_matches(collectives, windows, ranks), ranks
    )
    within, across = node_traffic(calls)
    return list(zip(within.tolist(), across.tolist(), strict=True))


def rows(kind: str, members: range, **more: Any) -> list[dict[str, Any]]:
    listed = str(list(members)).replace(" ", "")
    return [
        {"rank": r, "group": "0", "type": kind, "start_ns": 0, "end_ns": 9, "group_ranks": listed,
         "group_size": len(members)} | more
        for r in members
    ]  # fmt: skip


def counted(hops: list[tuple[int, int]], sent: float, ranks: int) -> tuple[int, int]:
    """Mean bytes of a rank, within and between nodes, of hops that carry `sent` each."""
    far = sum(HOSTS[a] != HOSTS[b] for a, b in hops)
    return round(sent * (len(hops) - far) / ranks), round(sent * far / ranks)


RING = [(k, (k + 1) % 6) for k in range(6)]
CHAIN = RING[:-1]


@pytest.mark.parametrize(
    ("kind", "sizes", "hops", "sent"),
    [
        ("all_reduce", {"in_bytes": SIZE}, RING, 2 * SIZE * 5 / 6),
        ("all_gather", {"in_bytes": SIZE // 6, "out_bytes": SIZE}, RING, SIZE * 5 / 6),
        ("reduce_scatter", {"in_bytes": SIZE, "out_bytes": SIZE // 6}, RING, SIZE * 5 / 6),
        ("all_reduce", {"in_bytes": SIZE, "algorithm": "TREE"}, CHAIN, 2 * SIZE),
        ("broadcast", {"in_bytes": SIZE, "root": 0}, CHAIN, SIZE),
        ("reduce", {"in_bytes": SIZE, "root": 3}, CHAIN, SIZE),
    ],
)
def test_hops_of_rings_trees_and_chains(
    kind: str, sizes: dict[str, Any], hops: list[tuple[int, int]], sent: float
) -> None:
    expected = counted(hops, sent, 6)
    for split in split_of(rows(kind, range(6), **sizes), HOSTS):
        assert split == pytest.approx(expected, abs=1)


def test_all_to_all_by_whom_each_rank_sends_to() -> None:
    """Rank 5 is alone on its node, 2 to 4 share one: each sends a sixth to every rank."""
    part = SIZE // 6
    sizes = {"in_bytes": SIZE, "out_bytes": SIZE}
    expected = [
        (part * sum(HOSTS[r] == HOSTS[p] and r != p for p in HOSTS),
         part * sum(HOSTS[r] != HOSTS[p] for p in HOSTS))
        for r in HOSTS
    ]  # fmt: skip
    assert split_of(rows("all_to_all", range(6), **sizes), HOSTS) == expected


def test_all_to_all_with_splits_by_what_each_rank_sends() -> None:
    split = [10, 20, 30, 40, 50, 60]
    sizes = {"in_bytes": 840, "out_bytes": 840, "dtype": "Float", "in_split": str(split)}
    expected = [
        (4 * sum(n for p, n in enumerate(split) if HOSTS[r] == HOSTS[p] and r != p),
         4 * sum(n for p, n in enumerate(split) if HOSTS[r] != HOSTS[p]))
        for r in HOSTS
    ]  # fmt: skip
    assert split_of(rows("all_to_all", range(6), **sizes), HOSTS) == expected


def test_messages_are_sent_once() -> None:
    """1 to 0 on a node, 1 to 2 between two; who receives sends nothing."""
    pair = {"start_ns": 0, "end_ns": 9, "in_bytes": 70, "group": "0", "group_size": 6}
    calls = [
        pair | {"rank": rank, "type": kind, "peer": peer}
        for rank, kind, peer in ((1, "send", 0), (0, "recv", 1), (1, "send", 2), (2, "recv", 1))
    ]
    assert split_of(calls, HOSTS) == [(70, 0), (0, 0), (0, 70), (0, 0)]


def test_what_cannot_be_told_is_unknown_and_not_nothing() -> None:
    sizes = {"in_bytes": SIZE}
    unknown = (-1, -1)
    switched = rows("all_reduce", range(6), algorithm="NVLS", **sizes)
    assert split_of(switched, HOSTS) == [unknown] * 6
    on_a_node = rows("all_reduce", range(2), algorithm="NVLS", **sizes)
    assert split_of(on_a_node, HOSTS) == [(SIZE, 0)] * 2
    assert split_of(rows("all_reduce", range(6), **sizes), {0: "a"}) == [unknown] * 6
    assert split_of(rows("all_reduce", range(6)), HOSTS) == [unknown] * 6
    assert split_of(rows("gather", range(6), **sizes), HOSTS) == [unknown] * 6


def test_hosts_may_be_inferred_from_device_numbers() -> None:
    """Two devices a process, ranks on theirs: nodes of two, so that a pair does not leave one."""
    calls = [row | {"device": row["rank"] % 2} for row in rows("all_reduce", range(4), in_bytes=8)]
    collectives = make("collectives", [{"source": "kineto", "timing": "gpu"} | r for r in calls])
    ranks = make("ranks", [{"rank": r, "device_count": 2} for r in range(4)])
    matches = collective_matches(collectives, make("rank_windows", []), ranks)
    within, across = node_traffic(CollectiveCalls.from_tables(collectives, matches, ranks))
    assert np.array_equal(within, [6, 6, 6, 6])
    assert np.array_equal(across, [6, 6, 6, 6])
