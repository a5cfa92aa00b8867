"""Random jobs on simulated networks: no link is slow where none is, and one that is slow is found.

python -m bench.links [--jobs 100] [--seed 0] [--world 8 64 256]

Collectives are made, no traces, so that a thousand ranks cost a second. Their times come from the
simulator's network, whose steps, protocols, trees and rates are drawn anew by each seed. Prints how
many are judged wrong by world size; exits with 1 where a healthy job is blamed, or a slow link
missed.
"""

import argparse
import random
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from htk.base.schema import DERIVED, TABLES
from htk.quantities.derived.match import collective_matches
from htk.quantities.measures.collective_calls import CollectiveCalls
from htk.quantities.measures.link_paces import link_paces
from htk.quantities.measures.slow_links import Alike, find_slow_links
from htk.quantities.measures.transfer_times import LinkRates
from htk.recording.simulate.config import Config
from htk.recording.simulate.network import ClusterNetwork

KIB, MIB = 1 << 10, 1 << 20
PER_NODE = 8
WORLDS = (8, 16, 32, 64, 128, 256, 512, 1024)
LAYOUTS = ("full", "hybrid", "pairs", "stages")
LEAST_FACTOR = 1.3
_CALLS = 6  # of each size
_SHARDED = ("all_gather", "reduce_scatter")
_DEVICE = "NVIDIA H100 80GB HBM3"
Row = dict[str, Any]


@dataclass(frozen=True)
class Slow:
    """What is slow: the links of a rank, by this factor."""

    rank: int
    factor: float
    across: bool  # its way to other nodes; else its links within the node


@dataclass(frozen=True)
class MadeJob:
    """A job on nodes of eight GPUs.

    layout: full, all ranks shard; hybrid, nodes shard and ranks of one place reduce; pairs, two
    ranks share each layer; stages, each rank sends to the next one, or the next node's.
    """

    world: int
    layout: str
    buckets: tuple[int, ...]  # bytes of a call
    seed: int
    slow: Slow | None = None

    def groups(self) -> Iterator[tuple[tuple[int, ...], tuple[str, ...]]]:
        """Yield the members of each group, and what it calls."""
        ranks = range(self.world)
        if self.layout == "full":
            yield tuple(ranks), _SHARDED
        elif self.layout == "pairs":
            yield from (((rank, rank + 1), ("all_reduce",)) for rank in ranks[::2])
        elif self.layout == "stages":
            apart = 1 if self.world == PER_NODE else PER_NODE
            yield from (((rank, rank + apart), ("send",)) for rank in ranks[:-apart])
        else:
            yield from ((tuple(ranks[k : k + PER_NODE]), _SHARDED) for k in ranks[::PER_NODE])
            rails = [tuple(ranks[gpu::PER_NODE]) for gpu in range(PER_NODE)]
            yield from ((rail, ("all_reduce",)) for rail in rails if len(rail) > 1)


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
        is_slow = slow is not None and slow.rank in members and slow.across == (nodes > 1)
        network = self._slow if is_slow else self._usual
        count = len(members)
        if kind == "send":
            usual = network.message(size, far=nodes > 1)
        else:
            wire = size * (2 if kind == "all_reduce" else 1) * (count - 1) // count
            usual = network.transfer(kind, wire, count, nodes, count // nodes).ns
        return round(usual * self._dice.lognormal(0, 0.02) + self._dice.uniform(0, 5_000))


def made_calls(job: MadeJob) -> CollectiveCalls:
    """Return the calls of a job, group by group, one after another."""
    clock, rows, begin = _Clock(job), list[Row](), 0
    for members, kinds in job.groups():
        called = [(kind, size) for kind in kinds for size in job.buckets] * _CALLS
        for number, (kind, size) in enumerate(called):
            end = begin + 2_000 + clock.transfer_ns(kind, size, members)
            for index, rank in enumerate(members):
                start = begin + 2_000 * index // len(members)
                times = {"rank": rank, "start_ns": start, "end_ns": end}
                rows.append(_facts(members, kind, size, number, index) | times)
            begin = end + 1_000
    hosts = [
        {"rank": rank, "host": f"h{rank // PER_NODE}", "device_name": _DEVICE}
        for rank in range(job.world)
    ]
    collectives, ranks = _table("collectives", rows), _table("ranks", hosts)
    matches = collective_matches(collectives, _table("rank_windows", []), ranks)
    return CollectiveCalls.from_tables(collectives, matches, ranks)


def _facts(members: tuple[int, ...], kind: str, size: int, number: int, index: int) -> Row:
    share = size // len(members)
    facts = {
        "cycle": 0, "device": 0, "source": "kineto", "timing": "gpu", "seq": number,
        "group": f"{members[0]}-{members[-1]}-{len(members)}", "group_size": len(members),
        "group_ranks": str(list(members)).replace(" ", ""), "type": kind,
    }  # fmt: skip
    if kind == "send":
        way = {"type": ("send", "recv")[index], "peer": members[1 - index]}
        return facts | way | {"seq_kind": "p2p", "in_bytes": size, "out_bytes": size}
    small, large = (share, size) if kind == "all_gather" else (size, share)
    result = size if kind == "all_reduce" else large
    return facts | {"seq_kind": "collective", "in_bytes": small, "out_bytes": result}


def _table(name: str, rows: list[Row]) -> pa.Table:
    schema = {**TABLES, **DERIVED}[name]
    return pa.Table.from_pylist(rows, schema=schema)


def judged(job: MadeJob) -> tuple[list[Alike], float]:
    """Return what may be slow in a job, the likeliest first, and the probability of nothing."""
    calls = made_calls(job)
    return find_slow_links(
        link_paces(calls, LinkRates.from_calls(calls, None, None)), calls.hosts.of_rank
    )


def healthy_job(seed: int, world: int) -> MadeJob:
    """Return a random job of buckets of 64 KiB to 256 MiB."""
    dice = random.Random(seed)
    sizes = {64 * KIB << dice.randint(0, 12) for _ in range(dice.randint(1, 3))}
    return MadeJob(world, dice.choice(LAYOUTS), tuple(sorted(sizes)), seed)


def slow_job(seed: int, world: int) -> MadeJob:
    """Return a random job of large buckets with a slow link that its groups tell apart."""
    dice = random.Random(seed)
    sizes = {MIB << dice.randint(4, 8) for _ in range(dice.randint(1, 2))}
    layouts = ("pairs", "stages") if world == PER_NODE else LAYOUTS[1:]
    layout = dice.choice(layouts)
    across = world > PER_NODE and {"pairs": False, "stages": True}.get(layout, dice.random() < 0.5)
    factor = LEAST_FACTOR * dice.uniform(1.0, 3.0)
    slow = Slow(dice.randrange(world), factor, across)
    return MadeJob(world, layout, tuple(sorted(sizes)), seed, slow)


def names_slow(job: MadeJob, classes: list[Alike], nothing: float) -> bool:
    """Return whether what is slow in a job is named first."""
    if job.slow is None or nothing >= 0.5:
        return False
    named = {rank for suspect in classes[0].suspects for rank in suspect.ranks}
    return job.slow.rank in named


def judge_jobs(world: int, seeds: range) -> tuple[int, list[float]]:
    """Return how many healthy jobs are blamed and slow links missed, and by what part the slowdown
    of the others is off."""
    wrong, off = 0, []
    for seed in seeds:
        healthy, slow = healthy_job(seed, world), slow_job(seed, world)
        _, nothing = judged(healthy)
        if nothing < 0.5:
            wrong += 1
            print(f"blamed: {healthy} {nothing:.2f}")
        classes, nothing = judged(slow)
        if not names_slow(slow, classes, nothing):
            wrong += 1
            print(f"missed: {slow} {nothing:.2f}")
        elif slow.slow:
            off.append(abs(classes[0].slowdown / slow.slow.factor - 1))
    return wrong, off


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=100, help="healthy ones, and as many slow")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--world", type=int, nargs="*", default=WORLDS)
    arguments = parser.parse_args()
    wrong = 0
    for world in arguments.world:
        blamed, off = judge_jobs(world, range(arguments.seed, arguments.seed + arguments.jobs))
        middle, ninth = 100 * np.quantile(off or [np.nan], [0.5, 0.9])
        print(f"{world:5} ranks: {blamed} of {2 * arguments.jobs} jobs judged wrong; "
              f"slowdown {middle:.1f} % off, 90th {ninth:.1f} %", flush=True)  # fmt: skip
        wrong += blamed
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
