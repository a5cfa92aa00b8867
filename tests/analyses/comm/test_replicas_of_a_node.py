"""Two tensor-parallel replicas on one node, whose all-reduces no record tells."""

import random

import pytest

import htk
from tests.kineto_file import Event, kernel, launch, of_rank, write

CALLS = 100
NAME = "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 4>(vllm::RankData*, int, int)"
TRANSFER_US = 9.25


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> htk.Session:
    folder = tmp_path_factory.mktemp("node")
    dice = random.Random(5)
    for first in (0, 4):
        ranks = range(first, first + 4)
        events: dict[int, list[Event]] = {rank: [] for rank in ranks}
        now = 100.0
        for number in range(CALLS):
            starts = {rank: now + dice.uniform(50, 60) + 30 * (rank == 6) for rank in ranks}
            now = max(starts.values()) + TRANSFER_US
            for rank, start in starts.items():
                events[rank].append(launch(number + 1, start - 20, 5))
                events[rank].append(kernel(NAME, start, now - start, number + 1))
        for rank in ranks:
            write(folder / f"rank{rank}.json", *events[rank], **of_rank(rank, 8), host_name="h")
    return htk.open(folder, cache=False)


def test_no_match_holds_calls_of_both(session: htk.Session) -> None:
    members: dict[int, set[int]] = {}
    for row in session.collective_times().to_pylist():
        assert row["group_size"] == 4
        members.setdefault(row["match"], set()).add(row["rank"])
    assert {tuple(sorted(ranks)) for ranks in members.values()} == {(0, 1, 2, 3), (4, 5, 6, 7)}
    assert len(members) == 2 * CALLS


def test_each_rank_transfers_as_long_as_it_did(session: htk.Session) -> None:
    rows = session.comm_wait().to_pylist()
    expected = [pytest.approx(1e3 * CALLS * TRANSFER_US, rel=0.01)] * 8
    assert [row["transfer_ns"] for row in rows] == expected
    late = {row["rank"]: row["times_blamed"] for row in rows}
    assert max(late, key=lambda rank: late[rank]) == 6
