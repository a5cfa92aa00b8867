"""Which node a rank runs on: what is recorded, else what device numbers tell, else nothing."""

from typing import Any

import pytest

from htk.quantities.measures.hosts import Hosts
from tests.tables import make


def hosts(ranks: list[dict[str, Any]], devices: dict[int, int | None]) -> Hosts:
    collectives = [{"rank": rank, "device": device} for rank, device in devices.items()]
    return Hosts.from_tables(make("ranks", ranks), make("collectives", collectives))


def seen(count: int | None, *ranks: int, **more: Any) -> list[dict[str, Any]]:
    return [{"rank": rank, "device_count": count, **more} for rank in ranks]


def test_what_is_recorded_counts() -> None:
    found = hosts(
        [{"rank": 3, "host": "b"}, {"rank": 0, "host": "a"}, {"rank": 2, "host": "a"}], {}
    )
    assert found.of_rank == {0: "a", 2: "a", 3: "b"}
    assert (found.per_node, found.inferred, found.facts()) == (2, False, {})
    assert found.index_within == {0: 0, 2: 1, 3: 0}


def test_neighbours_share_a_node_where_devices_count_so() -> None:
    """Four devices a process; ranks 1, 6 and 7 of eight were recorded."""
    found = hosts(seen(4, 1, 6, 7, world_size=8), {1: 1, 6: 2, 7: 3})
    assert found.of_rank == {rank: f"node {rank // 4}" for rank in range(8)}
    assert found.per_node == 4 and found.inferred
    assert "4 ranks a node" in str(found.facts()["hosts"])


def test_two_devices_are_enough() -> None:
    assert hosts(seen(2, 0, 1, 2), {0: 0, 1: 1, 2: 0}).of_rank == {
        0: "node 0", 1: "node 0", 2: "node 1"
    }  # fmt: skip


@pytest.mark.parametrize(
    ("ranks", "devices"),
    [
        ([*seen(4, 0), *seen(8, 1)], {0: 0, 1: 1}),  # processes see different numbers
        (seen(1, 0, 1), {0: 0, 1: 0}),  # each sees its own: it may lie anywhere
        (seen(None, 0, 1), {0: 0, 1: 1}),
        (seen(4, 0, 1), {0: 0, 1: 3}),  # rank 1 does not use the device of its number
        (seen(4, 0, 1), {0: 3, 1: 1}),  # nor rank 0
        (seen(4, 1, 2), {1: 0, 2: 2}),  # another's device may be the first
        (seen(4, 0, 1), {0: None, 1: None}),
        (seen(4, 0, 1), {}),
    ],
)
def test_else_nothing_is_said(ranks: list[dict[str, Any]], devices: dict[int, int | None]) -> None:
    found = hosts(ranks, devices)
    assert found.of_rank == {} and found.per_node == 0 and not found.inferred
