"""Calls of jobs in which much goes wrong."""

import json
import random

import pyarrow as pa

from htk.base.schema import DERIVED, TABLES
from tests.htk.quantities.derived.collective_rows import Row, call, collectives

TYPES = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "all_to_all")


def random_job(seed: int) -> tuple[list[pa.Table], pa.Table, pa.Table]:
    """Ranks of several groups on clocks that are apart; some hang, some are not recorded, calls are
    lost, start at once with others, or are of groups that nobody named."""
    dice = random.Random(seed)
    world = dice.choice((4, 6, 8))
    groups = [_group(dice, k, world) for k in range(dice.randint(2, 6))]
    shift = [dice.choice((0, dice.randint(-2000, 2000))) for _ in range(world)]
    hangs = {r: dice.randint(5, 30) for r in range(world) if dice.random() < 0.2}
    rows: list[list[Row]] = [[] for _ in range(world)]
    calls = [(k, *group) for k in range(40) for group in dice.sample(groups, dice.choice((1, 2)))]
    for k, members, named, by in calls:
        kind, size = dice.choice(TYPES), 8 << dice.randint(0, 6)
        for rank in members:
            if dice.random() < 0.05 or k > hangs.get(rank, 40):
                continue
            start = 1000 * k + dice.choice((0, dice.randint(0, 300))) + shift[rank]
            more = dict(named)
            if dice.random() < 0.1:
                more.pop("group_ranks", None)
            if by == "seq":
                more |= {"seq": k, "seq_kind": dice.choice(("collective", "function"))}
            elif by == "comms_id":
                more["comms_id"] = str(k)
            if kind in ("broadcast", "reduce"):
                more["root"] = dice.choice((0, 1))
            end = 1000 * k + 500 + shift[rank]
            timing = "watchdog" if dice.random() < 0.03 else "gpu"
            stream = 7 + groups.index((members, named, by)) + (rank if seed % 3 == 0 else 0)
            rows[rank].append(
                call(rank, start, end, type=kind, in_bytes=size, out_bytes=size, timing=timing,
                     stream=stream, library="nccl", cycle=k // 25, **more)
            )  # fmt: skip
        if dice.random() < 0.3:
            a, b = dice.sample(range(world), 2)
            for rank, kind, peer in ((a, "send", b), (b, "recv", a)):
                several = {"type": kind, "peer": peer}
                if dice.random() < 0.4:
                    several = {"type": "send_recv", "messages": json.dumps([[kind, peer]])}
                if dice.random() < 0.95:
                    start = 1000 * k + 700 + shift[rank]
                    rows[rank].append(call(rank, start, start + 90, group="pp", **several))
    recorded = [r for r in range(world) if dice.random() < 0.9] or [0, 1]
    windows = [
        {"rank": r, "cycle": 0, "start_ns": dice.randint(-500, 9000) + shift[r]} for r in recorded
    ]
    facts = [
        {"rank": r, "world_size": world, "device_name": "NVIDIA H100 80GB HBM3"} for r in recorded
    ]
    return (
        [collectives(*rows[r]) for r in recorded],
        pa.Table.from_pylist(windows, schema=DERIVED["rank_windows"]),
        pa.Table.from_pylist(facts, schema=TABLES["ranks"]),
    )


def _group(dice: random.Random, k: int, world: int) -> tuple[list[int], Row, str]:
    members = sorted(dice.sample(range(world), dice.randint(2, world)))
    named: Row = {"group": dice.choice(("tp", "dp", str(k))), "group_size": len(members)}
    named["group_ranks"] = json.dumps(members, separators=(",", ":"))
    if dice.random() < 0.2:
        named = {"group": None, "comm_hash": 2**63 + k, "group_size": len(members)}
    if dice.random() < 0.3:
        named = {"group": None, "group_size": dice.choice((len(members), None))}
    return members, named, dice.choice(("seq", "order", "order", "comms_id"))
