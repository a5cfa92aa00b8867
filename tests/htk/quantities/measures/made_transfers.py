"""Jobs whose transfers take what a simulated cluster's take, some slowed, as `CollectiveCalls`.

Only collectives are made, no traces, so that a thousand ranks cost a second. Their times come from
the simulator's network, whose steps, protocols, trees and rates are drawn anew by each seed.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from htk.quantities.derived.match import collective_matches
from htk.quantities.measures.collective_calls import CollectiveCalls
from htk.recording.simulate.config import Config
from htk.recording.simulate.network import ClusterNetwork
from tests.tables import make

PER_NODE = 8
_CALLS = 6  # of each size
_SHARDED = ("all_gather", "reduce_scatter")
KIB, MIB = 1 << 10, 1 << 20


@dataclass(frozen=True)
class Slow:
    """What is slow: the links of some ranks, by this factor."""

    ranks: frozenset[int]
    factor: float
    across: bool  # their way to other nodes; else the links within the node


@dataclass(frozen=True)
class MadeJob:
    """A job on nodes of eight GPUs."""

    world: int
    layout: str  # full: all ranks shard; hybrid: nodes shard, ranks of one place reduce
    buckets: tuple[int, ...]  # bytes of a call
    seed: int
    slow: Slow | None = None

    def groups(self) -> list[tuple[tuple[int, ...], tuple[str, ...]]]:
        """Return the members of each group, and the collectives that it calls."""
        if self.layout == "full":
            return [(tuple(range(self.world)), _SHARDED)]
        grid = np.arange(self.world).reshape(-1, PER_NODE)
        shards = [(tuple(row), _SHARDED) for row in grid.tolist()]
        if len(grid) == 1:
            return shards
        return shards + [(tuple(row), ("all_reduce",)) for row in grid.T.tolist()]


class _Clock:
    """Times transfers of a job on its cluster."""

    def __init__(self, job: MadeJob) -> None:
        config = Config(gpu="h100", gpus_per_node=PER_NODE, nodes=1, seed=job.seed)
        device = config.device
        self._usual = ClusterNetwork(config)
        factor = job.slow.factor if job.slow else 1.0
        slower = replace(
            config,
            intra_gbps=device.scale_up_gbps / factor,
            inter_gbps=device.scale_out_gbps * PER_NODE / factor,
        )
        self._slow = ClusterNetwork(slower)
        self._job = job
        self._dice = np.random.default_rng([job.seed, 7])

    def transfer_ns(self, kind: str, size: int, members: tuple[int, ...]) -> int:
        nodes = len({rank // PER_NODE for rank in members})
        slow = self._job.slow
        uses_slow = slow is not None and bool(slow.ranks & set(members))
        is_slow = uses_slow and slow is not None and slow.across == (nodes > 1)
        network = self._slow if is_slow else self._usual
        count = len(members)
        wire = size * (2 if kind == "all_reduce" else 1) * (count - 1) // count
        way = network.transfer(kind, wire, count, nodes, count // nodes)
        return round(way.ns * self._dice.lognormal(0, 0.02) + self._dice.uniform(0, 5_000))


def made_calls(job: MadeJob) -> CollectiveCalls:
    """Return the calls of a job, group by group, one after another."""
    clock, rows, begin = _Clock(job), [], 0
    for members, kinds in job.groups():
        called = [(kind, size) for kind in kinds for size in job.buckets] * _CALLS
        for number, (kind, size) in enumerate(called):
            end = begin + 2_000 + clock.transfer_ns(kind, size, members)
            shared = _facts(members, kind, size, number)
            for index, rank in enumerate(members):
                start = begin + 2_000 * index // len(members)
                rows.append(shared | {"rank": rank, "start_ns": start, "end_ns": end})
            begin = end + 1_000
    collectives = make("collectives", rows)
    ranks = make(
        "ranks",
        [
            {"rank": r, "host": f"h{r // PER_NODE}", "device_name": "NVIDIA H100 80GB HBM3"}
            for r in range(job.world)
        ],
    )
    matches = collective_matches(collectives, make("rank_windows", []), ranks)
    return CollectiveCalls.of(collectives, matches, ranks)


def _facts(members: tuple[int, ...], kind: str, size: int, number: int) -> dict[str, Any]:
    share = size // len(members)
    small, large = (share, size) if kind == "all_gather" else (size, share)
    return {
        "source": "kineto", "timing": "gpu", "group": f"{members[0]}-{len(members)}",
        "group_ranks": str(list(members)).replace(" ", ""), "group_size": len(members),
        "type": kind, "in_bytes": small, "out_bytes": size if kind == "all_reduce" else large,
        "seq": number, "seq_kind": "collective",
    }  # fmt: skip
