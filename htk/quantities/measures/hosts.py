"""Which node each rank runs on: recorded, else inferred from device numbers."""

from collections import Counter
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import read_numbers
from htk.base.columns.types import NONE
from htk.quantities.derived.recorded import recorded_hosts


@dataclass(frozen=True)
class Hosts:
    """The host of each rank. Without names of hosts, neighbouring ranks whose devices count from 0
    to the last one that a process sees are taken to share one."""

    of_rank: dict[int, str]
    inferred: bool = False

    @classmethod
    def from_tables(cls, ranks: pa.Table, collectives: pa.Table) -> "Hosts":
        recorded = recorded_hosts(ranks)
        if recorded:
            return cls(recorded)
        per_node = _devices_of_a_node(ranks, collectives)
        everyone = {rank for rank in ranks["rank"].to_pylist() if rank is not None}
        sizes = [size for size in ranks["world_size"].to_pylist() if size]
        everyone |= set(range(max(sizes, default=0)))
        if per_node is None:
            return cls({})
        return cls({rank: f"node {rank // per_node}" for rank in sorted(everyone)}, True)

    @property
    def per_node(self) -> int:
        """Most ranks of a host."""
        return max(Counter(self.of_rank.values()).values(), default=0)

    @property
    def index_within(self) -> dict[int, int]:
        """Place of each rank among those of its host, from 0."""
        seen: Counter[str] = Counter()
        index = {}
        for rank, host in sorted(self.of_rank.items()):
            index[rank] = seen[host]
            seen[host] += 1
        return index

    def facts(self) -> dict[str, object]:
        """Return what the coverage of an answer says where hosts are a guess."""
        if not self.inferred:
            return {}
        return {"hosts": f"inferred from device numbers: {self.per_node} ranks a node"}


def _devices_of_a_node(ranks: pa.Table, collectives: pa.Table) -> int | None:
    """Devices that every process saw, where each rank used the one of its number; else None."""
    counts = set(ranks["device_count"].to_pylist())
    if len(counts) != 1:
        return None
    count = counts.pop()
    if not count or count < 2:
        return None
    rank = read_numbers(collectives["rank"], NONE)
    device = read_numbers(collectives["device"], NONE)
    used = (rank >= 0) & (device >= 0)
    agree = used.any() and np.array_equal(rank[used] % count, device[used])
    return int(count) if agree else None
