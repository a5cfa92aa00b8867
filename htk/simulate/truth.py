"""What is true of a simulated job, from its schedule: nothing here reads a written file.

Times of a rank are by its own clock (its file tells the same); those of collectives are true ones.
"""

from collections import defaultdict
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from htk.models.wire import Sharding, ledger
from htk.simulate.clock import Clocks
from htk.simulate.config import Config
from htk.simulate.groups import Group
from htk.simulate.instructions import Activity, Do
from htk.simulate.plants import Plants
from htk.simulate.schedule import Timed

Ints = NDArray[np.int64]
_BITS = {"compute": 1, "comm": 2, "memory": 4}
_MOVING = 8  # a collective whose last member has come
_CAUSES = ("host", "stream", "dependency", "network")
_HOST = {"data": "host_data_loading", "sync": "host_sync"}
_LATENCY_NS = 3200  # what a launch takes to reach an empty stream


class Truth:
    """Adds up step after step; a step is closed once nothing launched later can begin in it."""

    def __init__(self, config: Config, groups: dict[str, Group]) -> None:
        self.config, self.groups = config, groups
        self._clocks = Clocks(config)
        self._ranks = {r: _Rank(config) for r in config.written}
        self._collectives: list[dict[str, Any]] = []
        self._used: defaultdict[str, int] = defaultdict(int)
        self._flops: tuple[int, int] = (0, 0)

    def add(self, timed: Timed, now: Ints) -> None:
        """A step; `now` is what the hosts' clocks have come to."""
        rows = [k for k, do in enumerate(timed.program.do) if do in (Do.LAUNCH, Do.NODE)]
        activities: list[Activity] = [timed.program.what[k][0] for k in rows]
        for rank, its in self._ranks.items():
            local = [
                self._clocks.local(rank, column[rows, rank])
                for column in (timed.gpu_start, timed.gpu_end, timed.common)
            ]
            its.add(timed, activities, local[0], local[1], timed.cause[rows, rank])
            its.add_moving(activities, np.clip(local[2], local[0], local[1]), local[1])
            if timed.recorded:
                its.add_host(timed, rank, self._clocks)
            its.close_until(int(self._clocks.local(rank, now[rank : rank + 1])[0]))
        if timed.recorded:
            self._flops = (timed.program.flops, timed.program.hardware_flops)
            self._add_collectives(timed, rows, activities)

    def told(self) -> dict[str, Any]:
        """All of it, as written."""
        for its in self._ranks.values():
            its.close_until(np.iinfo(np.int64).max)
        model, hardware = self._flops
        given = self.config
        return {
            "config": asdict(given),
            "planted": Plants(given).described(),
            "model_parameters": given.decoder.parameters,
            "model_flops_per_rank_and_step": model,
            "hardware_matrix_flops_per_rank_and_step": hardware,
            "ledger": self._ledger(),
            "ranks": [
                {
                    "rank": rank,
                    "clock_offset_ns": self._clocks.offset_ns(rank),
                    "clock_drift_ppm": self._clocks.drift_ppm(rank),
                    **its.told(),
                }
                for rank, its in self._ranks.items()
            ],
            "collectives": self._collectives,
        }

    def _ledger(self) -> dict[str, float]:
        given = self.config
        size = 4 if given.precision == "fp32" else 2
        shared = Sharding(given.strategy, given.shards, given.replicas, size, size)
        kept = given.decoder.root_parameters if given.strategy != "shard_grad_op" else 0
        split = given.tensor_parallel
        synced = 1 if given.strategy == "ddp" else given.accumulation
        found = ledger(
            given.decoder.parameters // split,
            shared,
            kept=kept // split,
            micro_batches=given.accumulation,
            syncs=synced,
        )
        return asdict(found)

    def _add_collectives(self, timed: Timed, rows: list[int], activities: list[Activity]) -> None:
        for k, activity in zip(rows, activities, strict=True):
            what = activity.collective
            if not what:
                continue
            group = self.groups[what.group]
            number = self._used[what.group] + what.sequence + 1
            for members, name in zip(group.members, group.names, strict=True):
                mine = [r for r in members if r in self._ranks]
                if not mine:
                    continue
                start, end = timed.gpu_start[k, mine], timed.gpu_end[k, mine]
                wait = np.minimum(timed.common[k, mine] - start, end - start)
                self._collectives.append(
                    {
                        "step": timed.step,
                        "group": name,
                        "group_size": group.size,
                        "type": what.kind,
                        "seq": number,
                        "wire_bytes": what.wire,
                        "ranks": mine,
                        "start_ns": start.tolist(),
                        "end_ns": end.tolist(),
                        "wait_ns": wait.tolist(),
                        "transfer_ns": (end - start - wait).tolist(),
                    }
                )
        for name, count in timed.program.collectives.items():
            self._used[name] += count


class _Rank:
    """One rank: activities that may still reach into an open step, and steps that are closed."""

    def __init__(self, config: Config) -> None:
        held = config.memory
        self._allocated = self._peak = held.parameters + held.gradients + held.optimizer
        self._start, self._end, self._bits, self._cause = (np.empty(0, np.int64) for _ in range(4))
        self._host: list[tuple[int, int, str]] = []  # what the host did, where it matters
        self._open: list[tuple[int, int]] = []  # step and its end
        self._at: int | None = None  # end of the last closed step
        self._reach = 0
        self._steps: dict[int, dict[str, Any]] = {}
        self._carried = 0

    def add(
        self, timed: Timed, activities: list[Activity], start: Ints, end: Ints, cause: Ints
    ) -> None:
        bits = np.array([_BITS[a.kind] for a in activities], np.int64)
        self._start = np.append(self._start, start)
        self._end = np.append(self._end, end)
        self._bits = np.append(self._bits, bits)
        self._cause = np.append(self._cause, cause)
        if not timed.recorded:
            self._carried += int((end - start).sum())
            return
        self._reach = max(self._reach, int(end.max(initial=0)))
        self._open.append((timed.step, self._reach))
        self._remember(timed)
        kernels: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0])
        wire = 0
        for activity, length in zip(activities, (end - start).tolist(), strict=True):
            kernels[activity.name][0] += 1
            kernels[activity.name][1] += length
            wire += activity.collective.wire if activity.collective else 0
        self._steps[timed.step] = {
            "step": timed.step,
            "launched": len(activities),
            "wire_bytes": wire,
            "kernels": {k: {"count": n, "total_ns": ns} for k, (n, ns) in kernels.items()},
        }

    def add_moving(self, activities: list[Activity], common: Ints, end: Ints) -> None:
        """The part of each collective in which data moves."""
        moving = np.array([a.kind == "comm" for a in activities], bool) & (common < end)
        count = int(moving.sum())
        self._start = np.append(self._start, common[moving])
        self._end = np.append(self._end, end[moving])
        self._bits = np.append(self._bits, np.full(count, _MOVING))
        self._cause = np.append(self._cause, np.zeros(count, np.int64))

    def add_host(self, timed: Timed, rank: int, clocks: Clocks) -> None:
        """When the host loaded data or waited for the GPU."""
        doing = {
            k: "sync" if do == Do.SYNC else "data"
            for k, (do, what) in enumerate(zip(timed.program.do, timed.program.what, strict=True))
            if do == Do.SYNC or (do == Do.THINK and what == "data")
        }
        rows = list(doing)
        low, high = (clocks.local(rank, c[rows, rank]) for c in (timed.begin, timed.end))
        self._host += zip(low.tolist(), high.tolist(), doing.values(), strict=True)

    def _remember(self, timed: Timed) -> None:
        for do, what in zip(timed.program.do, timed.program.what, strict=True):
            if do == Do.MEMORY:
                self._allocated += what[0]
                self._peak = max(self._peak, self._allocated)

    def close_until(self, now: int) -> None:
        """Close the steps that end before anything launched from now on can begin."""
        if self._at is None and len(self._start):
            self._at = self._first = int(self._start.min())
        while self._open and self._open[0][1] <= now and self._at is not None:
            step, end = self._open.pop(0)
            self._steps[step].update(self._within(self._at, end))
            self._at = end
            self._host = [piece for piece in self._host if piece[1] > end]
            later = self._end > end
            self._start, self._end = self._start[later], self._end[later]
            self._bits, self._cause = self._bits[later], self._cause[later]

    def told(self) -> dict[str, Any]:
        return {
            "window_start_ns": self._first,
            "window_end_ns": self._at,
            "carry_in_ns": self._carried,
            "peak_allocated_bytes": self._peak,
            "steps": list(self._steps.values()),
        }

    def _within(self, low: int, high: int) -> dict[str, Any]:
        """A step: time of each combination of kinds, and idle time by what the GPU waited for."""
        start, end = np.clip(self._start, low, high), np.clip(self._end, low, high)
        edges = np.unique(np.concatenate([start, end, [low, high]]))
        on = np.zeros(len(edges) - 1, np.int64)
        active = {}
        for bit in (*_BITS.values(), _MOVING):
            mine = self._bits == bit
            change = np.zeros(len(edges), np.int64)
            np.add.at(change, np.searchsorted(edges, start[mine]), 1)
            np.add.at(change, np.searchsorted(edges, end[mine]), -1)
            active[bit] = np.cumsum(change)[:-1]
        for bit in _BITS.values():
            on += bit * (active[bit] > 0)
        length = np.diff(edges)
        times = np.zeros(8, np.int64)
        np.add.at(times, on, length)
        # An instant with k collectives is shared: m of them moving are m/k of it.
        exposed = (on & 3) == _BITS["comm"]
        moving = (length * active[_MOVING] // np.maximum(active[_BITS["comm"]], 1))[exposed].sum()
        return _figures(low, high, times, int(moving)) | {
            "idle_by_cause_ns": self._causes(edges, on)
        }

    def _causes(self, edges: Ints, on: Ints) -> dict[str, int]:
        every = (*_CAUSES, *_HOST.values(), "launch_latency")
        found: dict[str, int] = dict.fromkeys(every, 0)
        for k in np.flatnonzero(on == 0).tolist():  # gaps are few beside activities
            length, until = int(edges[k + 1] - edges[k]), edges[k + 1]
            then = np.flatnonzero(self._start == until)
            cause = int(self._cause[then[0]]) if len(then) else 0
            if cause == 0:
                latency = min(length, _LATENCY_NS)
                found["launch_latency"] += latency
                length -= latency
                for low, high, doing in self._host:
                    during = min(high, int(edges[k]) + length) - max(low, int(edges[k]))
                    found[_HOST[doing]] += max(0, during)
                    found["host"] -= max(0, during)
            found[_CAUSES[cause]] += length
        return found


def _figures(low: int, high: int, times: Ints, moving: int) -> dict[str, Any]:
    def total(*wanted: int) -> int:
        return int(times[list(wanted)].sum())

    return {
        "start_ns": low,
        "end_ns": high,
        "total_ns": high - low,
        "busy_ns": total(1, 2, 3, 4, 5, 6, 7),
        "idle_ns": total(0),
        "compute_ns": total(1, 3, 5, 7),
        "comm_ns": total(2, 3, 6, 7),
        "memory_ns": total(4, 5, 6, 7),
        "overlap_ns": total(3, 7),
        "exposed_comm_ns": total(2, 6),
        "exposed_wait_ns": total(2, 6) - moving,
        "exposed_transfer_ns": moving,
        "exposed_memory_ns": total(4),
    }
