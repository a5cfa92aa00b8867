"""Stages, replicas and collectives of two pipelines of two stages, two tensor ranks each: by hand.

Rank = 4 · stage + 2 · replica + tensor rank, but for the stages' order, which messages tell.
"""

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from htk.answers.export.worker_groups import WorkerGroups
from htk.base.errors import MissingTable
from htk.base.schema import TABLES
from htk.base.schema.operation_types import NAMES

TENSOR = ([0, 1], [2, 3], [4, 5], [6, 7])
LATE, EARLY = range(4), range(4, 8)  # ranks of the last and of the first stage
Row = dict[str, Any]


def call(type_: str, members: list[int], elements: int, *, forward: bool = False) -> list[Row]:
    return [
        {
            "rank": rank, "type": type_, "group_ranks": json.dumps(members),
            "in_elements": elements, "group_size": len(members), "group": str(members),
            "forward": forward,
        }
        for rank in members
    ]  # fmt: skip


def message(sender: int, receiver: int, end: int) -> list[Row]:
    members = json.dumps([sender, receiver])
    shared = {"group_ranks": members, "group_size": 2, "timing": "gpu", "start_ns": end - 5}
    shared |= {"end_ns": end, "forward": False}
    return [
        {"rank": sender, "type": "send", "peer": receiver, **shared},
        {"rank": receiver, "type": "recv", "peer": sender, **shared},
    ]


def job(*more: list[Row]) -> list[Row]:
    rows = [row for group in TENSOR for row in call("all_reduce", group, 4096, forward=True)]
    for late, early in zip(LATE, EARLY, strict=True):
        rows += message(early, late, 100) + message(late, early, 300) + message(early, late, 400)
    return rows + [row for rows in more for row in rows]


def groups(rows: list[Row]) -> WorkerGroups:
    forward = np.array([row["forward"] for row in rows])
    after_backward = np.array([row["type"] == "send" and row["rank"] in LATE for row in rows])
    table = pa.Table.from_pylist(rows, schema=TABLES["collectives"])
    step = np.zeros(len(rows), np.int64)
    return WorkerGroups.from_collectives(table, forward, after_backward, step, list(range(8)))


def test_the_first_message_tells_the_stages() -> None:
    workers = groups(job())
    assert workers.workers.tolist() == [0, 2, 4, 6]
    assert workers.stage.tolist() == [1, 1, 0, 0]
    assert workers.replica.tolist() == [0, 1, 0, 1]
    rows = [row for row in job() if row["rank"] in (0, 4) and "peer" in row]
    types = [
        NAMES[code]
        for row, code in zip(job(), workers.type.tolist(), strict=True)
        if row["rank"] in (0, 4) and "peer" in row
    ]
    assert [row["rank"] for row in rows] == [4, 0, 0, 4, 4, 0]
    assert types == [
        "forward_send", "forward_recv", "backward_send", "backward_recv", "forward_send",
        "forward_recv",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("rows", "type_"),
    [
        (call("all_reduce", [4, 6], 4096), "grads_all_reduce"),
        (call("reduce_scatter", [0, 2], 4096), "grads_reduce_scatter"),
        (call("all_gather", [0, 2], 4096), "params_all_gather"),
        (call("all_reduce", [0, 4], 4096), "embedding_grads_all_reduce"),
        (call("all_reduce", list(range(8)), 1), "clip_grads"),
        (call("all_reduce", [0, 4], 1), "clip_grads"),
        (call("all_reduce", [0, 2], 1, forward=True), None),  # the loss
        (call("all_reduce", [4, 5], 4096), None),  # within layers
        (call("all_reduce", [1, 3], 4096), None),  # of ranks that others stand for
        (call("broadcast", [4, 6], 4096), None),
    ],
)
def test_what_a_collective_reduces_follows_from_its_ranks(
    rows: list[Row], type_: str | None
) -> None:
    codes = groups(job(rows)).type[-len(rows) :].tolist()
    spoken = [code for row, code in zip(rows, codes, strict=True) if row["rank"] in (0, 2, 4, 6)]
    assert {NAMES[code] if code >= 0 else None for code in spoken} <= {type_}
    assert all(code < 0 for row, code in zip(rows, codes, strict=True) if row["rank"] % 2)


@pytest.mark.parametrize(
    "rows",
    [
        call("all_to_all", [0, 2], 4096),
        call("all_reduce", list(range(8)), 4096),
        call("reduce_scatter", [0, 4], 4096),
    ],
)
def test_other_collectives_are_refused(rows: list[Row]) -> None:
    with pytest.raises(MissingTable, match="not the 2 replicas of one of its 2 pipeline stages"):
        groups(job(rows))


def test_neighbours_that_both_send_first_are_refused() -> None:
    rows = job()
    for row in rows:
        if (row["rank"], row["type"]) == (0, "send"):
            row |= {"start_ns": 45, "end_ns": 50}
    with pytest.raises(MissingTable, match="a stage before and one after"):
        groups(rows)
