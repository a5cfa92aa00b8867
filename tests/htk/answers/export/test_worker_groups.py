"""Which ranks share layers, of groups written by hand: two nodes, three tensor ranks each."""

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from htk.answers.export.worker_groups import WorkerGroups
from htk.base.errors import MissingTable
from htk.base.schema import TABLES
from htk.base.schema.operation_types import NAMES

TENSOR = ([3, 4, 5], [0, 1, 2])
DATA = ([0, 3], [1, 4], [2, 5])


def collectives(*calls: tuple[str, list[int]]) -> pa.Table:
    """A row for each rank that takes part."""
    rows = [
        {
            "rank": rank, "type": type_, "group_ranks": json.dumps(ranks),
            "group_size": len(ranks), "group": str(ranks), "source": "kineto",
        }
        for type_, ranks in calls
        for rank in ranks
    ]  # fmt: skip
    return pa.Table.from_pylist(rows, schema=TABLES["collectives"])


def groups(*calls: tuple[str, list[int], bool], ranks: int = 6) -> WorkerGroups:
    """Each call with whether it is launched in the forward pass."""
    forward = [in_forward for _, members, in_forward in calls for _ in members]
    table = collectives(*((type_, members) for type_, members, _ in calls))
    never, step = np.zeros(len(forward), bool), np.zeros(len(forward), np.int64)
    return WorkerGroups.from_collectives(table, np.array(forward), never, step, list(range(ranks)))


def test_ranks_that_reduce_activations_are_one_worker() -> None:
    calls: list[Any] = [("all_reduce", group, True) for group in TENSOR]
    calls += [("all_gather", group, True) for group in TENSOR]  # sequence parallel
    calls += [("all_gather", group, True) for group in DATA]
    calls += [("reduce_scatter", group, False) for group in DATA]
    found = groups(*calls)
    assert found.workers.tolist() == [0, 3]
    assert found.within.tolist() == [True] * 12 + [False] * 12
    types = [NAMES[code] for code in found.type[12:]]
    assert types == ["params_all_gather"] * 6 + ["grads_reduce_scatter"] * 6
    assert found.replica.tolist() == [0, 1] and found.stage.tolist() == [0, 0]


def test_gradients_and_a_loss_over_all_ranks_make_no_worker() -> None:
    everyone = list(range(6))
    found = groups(("all_reduce", everyone, True), ("all_reduce", everyone, False))
    assert found.workers.tolist() == everyone and not found.within.any()


@pytest.mark.parametrize(
    ("calls", "ranks", "said"),
    [
        ([("all_to_all", [0, 3], True)], 6, "all_to_all among 2 of 6 workers"),
        ([("send", [0, 3], True)], 6, "rank 0 has a send whose peer was not recorded"),
        ([("send_recv", [0, 3], True)], 6, "rank 0 has a kernel that sends and receives several"),
        ([("reduce_scatter", [0, 3], False)], 6, "reduce_scatter among 2 of 6 workers"),
        ([("all_reduce", list(range(8)), False)], 6, "have 8 ranks and 6 recorded"),
        ([("all_reduce", [0, 1], True), ("all_reduce", [1, 2], True)], 6, "several groups"),
        ([("all_reduce", [1, 2], True), ("all_reduce", [0, 3], False)], 6, "among 2 of 5"),
    ],
)
def test_other_jobs_are_refused_by_what_they_do(calls: Any, ranks: int, said: str) -> None:
    with pytest.raises(MissingTable, match=said):
        groups(*calls, ranks=ranks)
