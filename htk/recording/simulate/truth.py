"""The truth about a simulated job, from its schedule: nothing here reads a written file.

Times of a rank are by its own clock (its file tells the same); those of collectives are true ones.
"""

import json
from collections import defaultdict
from dataclasses import asdict
from pathlib import Path
from typing import TextIO

import numpy as np

from htk.base.columns.types import Ints
from htk.base.mappings import Fields
from htk.physics.wire import Sharding, build_ledger
from htk.recording.simulate.clock import Clocks
from htk.recording.simulate.config import Config
from htk.recording.simulate.exchange_truth import ExchangeTruth
from htk.recording.simulate.groups import Group
from htk.recording.simulate.header import host_name
from htk.recording.simulate.instructions import Activity, Collective, Do, HostCall
from htk.recording.simulate.plants import Plants
from htk.recording.simulate.schedule import Timed
from htk.recording.simulate.stages import Stage, pipeline_stages, root_parameters

_BITS = {"compute": 1, "comm": 2, "memory": 4}
_MOVING = 8  # a collective whose last member has come
_CAUSES = ("host", "stream", "dependency", "network")
_HOST = {
    "data": "host_data_loading",
    "gc": "host_gc",
    "sync": "host_sync",
    "allocation": "host_allocation",
    "start_up": "host_start_up",
}
_LATENCY_NS = 3200  # what a launch takes to reach an empty stream


class Truth:
    """Adds up step after step; a step is closed once nothing launched later can begin in it."""

    def __init__(
        self, config: Config, groups: dict[str, Group], aside: TextIO, exchanges: TextIO
    ) -> None:
        """Keep collectives and calls with messages aside in files, one in each line."""
        self.config = config
        self.groups = groups
        self._collectives = aside
        self._clocks = Clocks(config)
        self._stages = pipeline_stages(config)
        self._ranks = {r: _Rank(stage, r) for stage in self._stages for r in stage.written}
        self._used: defaultdict[str, int] = defaultdict(int)
        self._exchanges = ExchangeTruth(groups, exchanges)
        self._flops = [(0, 0)] * len(self._stages)

    def add(self, stages: list[Timed], now: Ints) -> None:
        """Add a step; `now` is what the hosts' clocks have come to."""
        for number, timed in enumerate(stages):
            self._add_stage(number, timed, now)
        for name, count in stages[0].program.collectives.items():
            self._used[name] += count

    def _add_stage(self, number: int, timed: Timed, now: Ints) -> None:
        rows = np.array(sorted(timed.rows[Do.LAUNCH] + timed.rows[Do.NODE]), np.int64)
        for column, rank in enumerate(timed.ranks):
            rank_truth = self._ranks[rank]
            since = timed.since[column]
            seen = rows[timed.gpu_start[rows, column] >= since]
            activities: list[Activity] = [timed.program.what[k][0] for k in seen.tolist()]
            start = self._clocks.local(rank, timed.gpu_start[seen, column])
            end = self._clocks.local(rank, timed.gpu_end[seen, column])
            common = self._clocks.local(rank, timed.common[seen, column])
            rank_truth.add(timed, activities, start, end, timed.cause[seen, column])
            rank_truth.add_moving(activities, np.clip(common, start, end), end)
            rank_truth.carry(int((end - start)[timed.begin[seen, column] < since].sum()))
            rank_truth.add_host(timed, column, rank, self._clocks)
            rank_truth.remember(timed, column)
            rank_truth.close_until(int(self._clocks.local(rank, now[rank : rank + 1])[0]))
        if timed.recorded:
            self._flops[number] = (timed.program.flops, timed.program.hardware_flops)
        self._add_collectives(timed, rows.tolist())
        self._exchanges.add(timed, self._stages[number].ranks)

    def write(self, file: Path) -> None:
        """Write all of it, collectives last: they are many, and were kept aside."""
        with file.open("w", encoding="utf-8") as out:
            out.write(json.dumps(self._describe_truth())[:-1])
            _write_list(out, "exchanges", self._exchanges.lines)
            _write_list(out, "collectives", self._collectives)
            out.write("}\n")

    def _describe_truth(self) -> Fields:
        for rank_truth in self._ranks.values():
            rank_truth.close_until(np.iinfo(np.int64).max)
        config = self.config
        model, hardware = (
            sum(stage) // len(self._flops) for stage in zip(*self._flops, strict=True)
        )
        return {
            "config": asdict(config),
            "planted": Plants(config).described(self.groups),
            "model_parameters": config.decoder.parameters,
            "model_flops_per_rank_and_step": model,
            "hardware_matrix_flops_per_rank_and_step": hardware,
            "ledger": self._build_ledger(self._stages[0]),
            "ranks": [
                {
                    "rank": rank,
                    "host": host_name(config, rank),
                    "clock_offset_ns": self._clocks.offset_ns(rank),
                    "clock_drift_ppm": self._clocks.drift_ppm(rank),
                    **self._of_stage(rank),
                    **rank_truth.told(),
                }
                for rank, rank_truth in self._ranks.items()
            ],
        }

    def _of_stage(self, rank: int) -> Fields:
        """Return what differs between the stages of a pipeline, or servers side by side."""
        if self.config.ranks > self.config.job_ranks:
            replica, own = divmod(rank, self.config.job_ranks)
            return {"replica": replica, "recorded_rank": own}
        if len(self._stages) == 1:
            return {}
        number = rank // self.config.stage_ranks
        model, hardware = self._flops[number]
        return {
            "stage": number,
            "layers": [layer for chunk in self._stages[number].chunks for layer in chunk.layers],
            "model_flops_per_step": model,
            "hardware_matrix_flops_per_step": hardware,
            "ledger": self._build_ledger(self._stages[number]),
        }

    def _build_ledger(self, stage: Stage) -> dict[str, float]:
        """Return the bytes of parameters and gradients that a rank hands in and sends, per step.

        Gradients of experts are reduced by the ranks that hold them.
        """
        config = self.config
        size = config.element_bytes
        roots = sum(root_parameters(config, chunk) for chunk in stage.chunks)
        kept = roots if config.strategy != "shard_grad_op" else 0
        synced = 1 if config.strategy == "ddp" else config.accumulation
        experts = stage.own_expert_parameters if config.expert_parallel > 1 else 0
        copies = config.replicas // config.expert_parallel
        parts = (
            (stage.held_parameters - experts, config.replicas, kept),
            (experts, copies, 0),
        )
        amounts = [
            asdict(
                build_ledger(
                    parameters,
                    Sharding(config.strategy, config.shards, replicas, size, size),
                    kept=kept_here,
                    micro_batches=config.accumulation,
                    syncs=synced,
                )
            )
            for parameters, replicas, kept_here in parts
        ]
        return {name: sum(each[name] for each in amounts) for name in amounts[0]}

    def _add_collectives(self, timed: Timed, rows: list[int]) -> None:
        column_of = {rank: column for column, rank in enumerate(timed.ranks)}
        for k in rows:
            what: Collective | None = timed.program.what[k][0].collective
            if not what:
                continue
            group = self.groups[what.group]
            for members, name in zip(group.members, group.names, strict=True):
                recorded = [r for r in members if r in column_of]
                facts_of_call = self._describe_collective(
                    timed, k, [column_of[r] for r in recorded]
                )
                if not facts_of_call["start_ns"]:  # also of another stage's group
                    continue
                seq = self._used[what.group] + what.sequence + 1
                facts = {"step": timed.step, "group": name, "group_size": group.size}
                facts |= {"type": what.kind, "seq": seq, "wire_bytes": what.wire}
                facts |= {"algorithm": what.algorithm.lower()}
                ranks = {"ranks": [recorded[n] for n in facts_of_call.pop("recorded_by")]}
                ranks["group_ranks"] = list(members)
                if what.splits is not None:
                    ranks["sent_bytes"] = [what.sent_bytes(rank) for rank in ranks["ranks"]]
                self._collectives.write(json.dumps(facts | ranks | facts_of_call) + "\n")

    @staticmethod
    def _describe_collective(timed: Timed, k: int, columns: list[int]) -> Fields:
        """Return the times of the members that recorded it."""
        start = timed.gpu_start[k, columns]
        end = timed.gpu_end[k, columns]
        seen = start >= timed.since[columns]
        wait = np.minimum(timed.common[k, columns] - start, end - start)
        return {
            "recorded_by": np.flatnonzero(seen).tolist(),
            "before_window": not bool(seen.all()),
            "start_ns": start[seen].tolist(),
            "end_ns": end[seen].tolist(),
            "wait_ns": wait[seen].tolist(),
            "transfer_ns": (end - start - wait)[seen].tolist(),
        }


def _write_list(out: TextIO, name: str, lines: TextIO) -> None:
    """Write what was kept aside as a member of the object that is being written."""
    lines.seek(0)
    out.write(f', "{name}": [')
    for number, line in enumerate(lines):
        out.write((", " if number else "") + line.rstrip("\n"))
    out.write("]")


class _Rank:
    """One rank: activities that may still reach into an open step, and steps that are closed."""

    def __init__(self, stage: Stage, rank: int) -> None:
        self._rank = rank
        self._allocated = round(stage.memory.resident)
        self._peak = 0
        self._start = np.empty(0, np.int64)
        self._end = np.empty(0, np.int64)
        self._bits = np.empty(0, np.int64)
        self._cause = np.empty(0, np.int64)
        self._host: list[tuple[int, int, str]] = []  # what the host did, where it matters
        self._open: list[tuple[int, int]] = []  # step and its end
        self._at: int | None = None  # end of the last closed step
        self._reach = 0
        self._steps: dict[int, Fields] = {}
        self._carried = 0
        self._start_up = 0

    def add(
        self, timed: Timed, activities: list[Activity], start: Ints, end: Ints, cause: Ints
    ) -> None:
        bits = np.array([_BITS[a.kind] for a in activities], np.int64)
        self._start = np.append(self._start, start)
        self._end = np.append(self._end, end)
        self._bits = np.append(self._bits, bits)
        self._cause = np.append(self._cause, cause)
        if not timed.recorded:
            return
        self._reach = max(self._reach, int(end.max(initial=0)))
        self._open.append((timed.step, self._reach))
        kernels: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0])
        wire = 0
        for activity, length in zip(activities, (end - start).tolist(), strict=True):
            kernels[activity.name][0] += 1
            kernels[activity.name][1] += length
            wire += activity.collective.sent_bytes(self._rank) if activity.collective else 0
            wire += activity.exchange.sent_bytes if activity.exchange else 0
        self._steps[timed.step] = {
            "step": timed.step,
            "launched": len(activities),
            "wire_bytes": wire,
            "kernels": {k: {"count": n, "total_ns": ns} for k, (n, ns) in kernels.items()},
        }

    def add_moving(self, activities: list[Activity], common: Ints, end: Ints) -> None:
        """Add the part of each collective in which data moves."""
        moving = np.array([a.kind == "comm" for a in activities], bool) & (common < end)
        count = int(moving.sum())
        self._start = np.append(self._start, common[moving])
        self._end = np.append(self._end, end[moving])
        self._bits = np.append(self._bits, np.full(count, _MOVING))
        self._cause = np.append(self._cause, np.zeros(count, np.int64))

    def carry(self, ns: int) -> None:
        """Add GPU time in ns that was launched before the window."""
        self._carried += ns

    def add_host(self, timed: Timed, column: int, rank: int, clocks: Clocks) -> None:
        """Add when the host loaded data, collected garbage, waited, allocated or started up."""
        what = timed.program.what
        of_kind = timed.rows
        doing = {row: "sync" for row in of_kind[Do.SYNC]}
        doing |= {row: what[row] for row in of_kind[Do.THINK] if what[row] in _HOST}
        calls: dict[int, HostCall] = {row: what[row][0] for row in of_kind[Do.CALL]}
        doing |= {row: call.why for row, call in calls.items()}
        rows = list(doing)
        low = clocks.local(rank, timed.begin[rows, column])
        high = clocks.local(rank, timed.end[rows, column])
        # Where a launch takes longer, that is in the launch.
        longer = [0 if calls[row].name else calls[row].ns[rank] for row in calls]
        high = high + np.array([0] * (len(rows) - len(longer)) + longer, np.int64)
        self._host += zip(low.tolist(), high.tolist(), doing.values(), strict=True)
        starting = np.array([why == "start_up" for why in doing.values()], bool)
        self._start_up += int((high - low)[starting].sum())

    def remember(self, timed: Timed, column: int) -> None:
        """Follow the allocator, and keep its peak in the recording and in the step, in bytes."""
        highest = 0
        for row in timed.rows[Do.MEMORY]:
            self._allocated += timed.program.what[row][0]
            if timed.begin[row, column] >= timed.since[column]:
                highest = max(highest, self._allocated)
        self._peak = max(self._peak, highest)
        if timed.recorded:
            self._steps[timed.step]["peak_allocated_bytes"] = highest or self._allocated

    def close_until(self, now: int) -> None:
        """Close the steps that end before anything launched from now on can begin."""
        if self._at is None and len(self._start):
            self._at = self._first = int(self._start.min())
        while self._open and self._open[0][1] <= now and self._at is not None:
            step, end = self._open.pop(0)
            self._steps[step].update(self._describe_step(self._at, end))
            self._at = end
            self._host = [piece for piece in self._host if piece[1] > end]
            later = self._end > end
            self._start, self._end = self._start[later], self._end[later]
            self._bits, self._cause = self._bits[later], self._cause[later]

    def told(self) -> Fields:
        return {
            "window_start_ns": self._first,
            "window_end_ns": self._at,
            "carry_in_ns": self._carried,
            "start_up_ns": self._start_up,
            "peak_allocated_bytes": self._peak or self._allocated,
            "steps": list(self._steps.values()),
        }

    def _describe_step(self, low: int, high: int) -> Fields:
        """Return a step's time by combination of kinds, and its idle time by what the GPU waited
        for, in ns."""
        start = np.clip(self._start, low, high)
        end = np.clip(self._end, low, high)
        edges = np.unique(np.concatenate([start, end, [low, high]]))
        on = np.zeros(len(edges) - 1, np.int64)
        active = {}
        for bit in (*_BITS.values(), _MOVING):
            of_kind = self._bits == bit
            change = np.zeros(len(edges), np.int64)
            np.add.at(change, np.searchsorted(edges, start[of_kind]), 1)
            np.add.at(change, np.searchsorted(edges, end[of_kind]), -1)
            active[bit] = np.cumsum(change)[:-1]
        for bit in _BITS.values():
            on += bit * (active[bit] > 0)
        length = np.diff(edges)
        times = np.zeros(8, np.int64)
        np.add.at(times, on, length)
        # An instant with k collectives is shared: m of them moving are m/k of it.
        exposed = (on & 3) == _BITS["comm"]
        moving = (length * active[_MOVING] // np.maximum(active[_BITS["comm"]], 1))[exposed].sum()
        return _compute_figures(low, high, times, int(moving)) | {
            "idle_by_cause_ns": self._split_idle(edges, on)
        }

    def _split_idle(self, edges: Ints, on: Ints) -> dict[str, int]:
        every = (*_CAUSES, *_HOST.values(), "launch_latency")
        by_cause: dict[str, int] = dict.fromkeys(every, 0)
        for k in np.flatnonzero(on == 0).tolist():  # gaps are few beside activities
            length = int(edges[k + 1] - edges[k])
            until = edges[k + 1]
            then = np.flatnonzero(self._start == until)
            cause = int(self._cause[then[0]]) if len(then) else 0
            if cause == 0:
                latency = min(length, _LATENCY_NS)
                by_cause["launch_latency"] += latency
                length -= latency
                for low, high, doing in self._host:
                    during = min(high, int(edges[k]) + length) - max(low, int(edges[k]))
                    by_cause[_HOST[doing]] += max(0, during)
                    by_cause["host"] -= max(0, during)
            by_cause[_CAUSES[cause]] += length
        return by_cause


def _compute_figures(low: int, high: int, times: Ints, moving: int) -> Fields:
    def sum_classes(*wanted: int) -> int:
        return int(times[list(wanted)].sum())

    return {
        "start_ns": low,
        "end_ns": high,
        "total_ns": high - low,
        "busy_ns": sum_classes(1, 2, 3, 4, 5, 6, 7),
        "idle_ns": sum_classes(0),
        "compute_ns": sum_classes(1, 3, 5, 7),
        "comm_ns": sum_classes(2, 3, 6, 7),
        "memory_ns": sum_classes(4, 5, 6, 7),
        "overlap_ns": sum_classes(3, 7),
        "exposed_comm_ns": sum_classes(2, 6),
        "exposed_wait_ns": sum_classes(2, 6) - moving,
        "exposed_transfer_ns": moving,
        "exposed_memory_ns": sum_classes(4),
    }
