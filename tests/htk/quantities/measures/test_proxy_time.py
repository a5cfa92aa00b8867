"""What proxies wait for: by hand, and against every nanosecond counted alone."""

from collections import defaultdict
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from htk.base.columns.groups import Groups
from htk.base.schema import TABLES
from htk.quantities.measures.proxy_time import PARTS, ProxySteps, ProxyTime, proxy_time

HASH = 2**64 - 5


def steps_of(*rows: dict[str, Any]) -> ProxySteps:
    """`records` are those of events 7 and 8 of rank 1; a null one is no record of anything."""
    records = pa.table(
        {
            "comm_hash": pa.array([HASH, None, HASH], pa.uint64()),
            "comm_rank": pa.array([1, None, 1], pa.int32()),
            "event": pa.array([7, None, 8], pa.int64()),
        }
    )
    plain = {"comm_hash": HASH, "comm_rank": 1, "event": 7, "channel": 0, "peer": 2}
    table = pa.Table.from_pylist([plain | row for row in rows], schema=TABLES["proxy_steps"])
    return ProxySteps.from_records(table, records)


def state(name: str, start: int | None, end: int | None, **more: Any) -> dict[str, Any]:
    return {"name": name, "start_ns": start, "end_ns": end} | more


def spent(steps: ProxySteps) -> ProxyTime:
    return proxy_time(steps, Groups.by_keys(np.column_stack([steps.call, steps.direction])))


def parts(time: ProxyTime, row: int) -> dict[str, int]:
    return {p: int(ns) for p, ns in zip(PARTS, time.part_ns[row], strict=True) if ns}


def test_two_steps_share_the_time_in_which_both_are_open() -> None:
    """0-10 GPU alone, 10-30 GPU and network, 30-35 nothing, 35-40 network alone."""
    steps = steps_of(
        state("SendGpuWait", 0, 30), state("SendWait", 10, 30), state("SendWait", 35, 40)
    )
    time = spent(steps)
    assert time.open_ns.tolist() == [35]
    assert parts(time, 0) == {"gpu_wait": 20, "network": 15}
    assert time.steps.tolist() == [2]


def test_each_step_belongs_to_its_own_call_and_direction() -> None:
    steps = steps_of(
        state("SendWait", 0, 10),
        state("RecvWait", 5, 25, event=8),
        state("RecvFlushWait", 2, 9),
        state("SendWait", 0, 4, comm_rank=2),
        state("SendWait", 0, 4, comm_hash=HASH - 1),
        state("SendWait", 0, 4, event=None, comm_hash=None, comm_rank=None),
        state("ProgressSend", 0, 400),
        state("SendWait", 0, None),
    )
    assert steps.call.tolist() == [0, 2, 0, -1, -1, -1]
    assert steps.untimed == 1
    time = spent(steps.only(steps.call >= 0))
    assert [parts(time, k) for k in range(3)] == [
        {"network": 10},
        {"flush": 7},
        {"data_wait": 20},
    ]


@pytest.mark.parametrize("seed", range(5))
def test_as_every_nanosecond_counted_alone(seed: int) -> None:
    dice = np.random.default_rng(seed)
    names = ["SendGpuWait", "SendPeerWait", "SendWait", "RecvWait", "RecvFlushWait", "RecvGpuWait"]
    rows = []
    for _ in range(60):
        start = int(dice.integers(0, 200)) + (1 << 60)
        length = int(dice.integers(0, 60))
        event = int(dice.integers(7, 9))
        rows.append(state(str(dice.choice(names)), start, start + length, event=event))
    steps = steps_of(*rows)
    groups = Groups.by_keys(np.column_stack([steps.call, steps.direction]))
    time = proxy_time(steps, groups)
    for k in range(len(groups)):
        of_group = np.flatnonzero(groups.group_ids == k)
        truth: dict[int, Fraction] = defaultdict(Fraction)
        opened = 0
        for now in range(1 << 60, (1 << 60) + 260):
            active = [r for r in of_group if steps.start[r] <= now < steps.end[r]]
            opened += bool(active)
            for r in active:
                truth[int(steps.part[r])] += Fraction(1, len(active))
        assert time.open_ns[k] == opened == time.part_ns[k].sum()
        for part in range(len(PARTS)):
            assert abs(time.part_ns[k, part] - truth[part]) <= 2 * len(of_group) * len(PARTS)
