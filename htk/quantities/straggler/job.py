"""A job's operations as arrays: [operation, step, replica] for each program that it runs."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, TypeVar

import numpy as np

from htk.base.columns.order import order_by
from htk.base.columns.types import Ints
from htk.base.mappings import Fields
from htk.base.schema.operation_types import LABELS, OPERATION_TYPES
from htk.quantities.straggler.lanes import LaneReplay
from htk.quantities.straggler.order_statistics import Counted, compute_medians, counted_bins
from htk.quantities.straggler.program import Program

_DAMAGED_NS = -10_000_000  # a transfer that ends so long before it can begin: clocks or damage
_STEPS = 8  # of each block, for the percentile of ends: it needs no more

Value = TypeVar("Value")
UsualTimes = Mapping[int, float]  # of peers, in ns


@dataclass(frozen=True)
class Block:
    """Steps of one program; times in ns from the step's first start: [operation, step, replica]."""

    steps: Ints
    began: Ints  # of each step, ns
    program: Program
    start: Ints
    end: Ints

    @cached_property
    def replay(self) -> LaneReplay:
        return LaneReplay(self.program)

    @cached_property
    def recorded(self) -> Ints:
        """The recorded duration of each step, in ns."""
        return np.asarray(self.end.max(axis=(0, 2)))

    @cached_property
    def own(self) -> Ints:
        """The time each operation takes by itself, in ns: its duration, or its transfer where it
        meets others."""
        duration = self.end - self.start
        meeting = self.program.meeting
        met = np.flatnonzero(meeting >= 0)
        order = met[order_by(meeting[met])]
        first = np.flatnonzero(np.diff(meeting[order], prepend=-1))
        last = np.maximum.reduceat(self.start[order], first) if len(order) else self.start[:0]
        over = self.program.over_replicas
        last[over] = last[over].max(axis=2, keepdims=True)
        transfer = self.end[met] - last[meeting[met]]
        duration[met] = np.where(transfer <= _DAMAGED_NS, 0, transfer)
        return duration

    @property
    def delay(self) -> Ints:
        """The launch delay of each operation, in ns: from the end of what it waits for to its
        start."""
        ready = np.zeros_like(self.start)
        for tail, head, part in zip(
            self.program.tail, self.program.head, self.program.part, strict=True
        ):
            spared = (1 - part) * (self.end[tail] - self.start[tail])
            over = self.end[tail] - np.rint(spared).astype(np.int64)
            np.maximum(ready[head], over, out=ready[head])
        return np.asarray(np.maximum(self.start - ready, 0))

    @cached_property
    def replayed(self) -> Ints:
        """The duration of each step without launch delays, in ns."""
        return self.replay.step_times(self.own)

    def durations(self, codes: Ints, code: int) -> Ints:
        """Return each operation's own time, in ns, of those with a code."""
        return np.asarray(self.own[codes == code].ravel())

    @property
    def overview(self) -> "Overview":
        """The figures that every question needs of a block."""
        few = slice(0, _STEPS)
        delay = self.delay
        ends = self.replay.ends(self.own[:, few], delay[:, few])
        off = np.abs(ends - self.end[:, few]) / np.maximum(self.recorded[few, None], 1)
        peers = self.program.peers
        times = {code: self.durations(peers, code) for code in np.unique(peers).tolist()}
        return Overview(
            self.steps,
            self.program,
            self.recorded,
            self.replayed,
            self.replay.step_times(self.own, delay),
            float(100 * np.quantile(off, 0.9)),
            {code: (int(own.sum()), len(own)) for code, own in times.items()},
            {code: counted_bins(own) for code, own in times.items() if _is_transfer(code)},
        )


@dataclass(frozen=True)
class Overview:
    """A block without its rows; times of each step in ns."""

    steps: Ints
    program: Program
    recorded: Ints
    replayed: Ints
    delayed: Ints  # replayed with launch delays
    end_error_pct: float  # 90th percentile over operations, of the step
    sums: dict[int, tuple[int, int]]  # of peers: total of their times, and how many
    transfers: Counted  # in bins, of peers that communicate


def _is_transfer(peers: int) -> bool:
    return OPERATION_TYPES[peers % len(OPERATION_TYPES)].communicates


def overview_of(block: Block) -> Overview:
    """Return the figures that every question needs of a block."""
    return block.overview


class JobBlocks(Protocol):
    """The blocks of a job, in memory or made when they are asked for."""

    @property
    def facts(self) -> Fields:
        """The facts on what was left out; complete once all blocks were made."""
        ...

    def __iter__(self) -> Iterator[Block]: ...

    def map(self, function: Callable[[Block], Value]) -> Iterator[Value]:
        """Yield what a function makes of each block, in order, wherever that is done."""
        ...


@dataclass(frozen=True)
class Job:
    """A job as its rows describe it: ranks by replica and stage, and blocks of operations."""

    replicas: Ints  # data-parallel ranks
    stages: Ints
    rank: Ints  # of each [replica, stage]
    blocks: JobBlocks

    @property
    def facts(self) -> Fields:
        """The facts on what was left out."""
        return self.blocks.facts

    def of_blocks(self, function: Callable[[Block], Value]) -> list[Value]:
        """Return what a function makes of each block; it may have to travel to a worker."""
        return list(self.blocks.map(function))

    @cached_property
    def overviews(self) -> list[Overview]:
        return self.of_blocks(overview_of)

    @cached_property
    def steps(self) -> Ints:
        return np.concatenate([each.steps for each in self.overviews])

    @cached_property
    def usual(self) -> UsualTimes:
        """The usual duration of peers over the job, in ns: the mean; for transfers the median."""
        total: dict[int, int] = {}
        count: dict[int, int] = {}
        for each in self.overviews:
            for code, (times, operations) in each.sums.items():
                total[code] = total.get(code, 0) + times
                count[code] = count.get(code, 0) + operations
        bins = [each.transfers for each in self.overviews]
        means = {code: times / count[code] for code, times in total.items()}
        return means | compute_medians(self.of_blocks, peers_of, bins)

    def by_step(self, of: Callable[[Block], Ints]) -> Ints:
        """Return a value of each step (the last axis), block by block."""
        return np.concatenate([np.asarray(v, np.int64) for v in self.of_blocks(of)], axis=-1)

    @cached_property
    def recorded(self) -> Ints:
        return np.concatenate([each.recorded for each in self.overviews])

    @cached_property
    def replayed(self) -> Ints:
        return np.concatenate([each.replayed for each in self.overviews])

    @cached_property
    def ideal_steps(self) -> Ints:
        """The duration of each step with no operation slower than its peers, in ns."""
        return np.concatenate(
            [
                np.full(
                    len(each.steps),
                    LaneReplay(each.program).step_times(usual_durations(self.usual, each.program))[
                        0
                    ],
                )
                for each in self.overviews
            ]
        )

    @cached_property
    def labels(self) -> list[int]:
        """Labels of operations that were recorded, as places in LABELS."""
        return sorted({k for o in self.overviews for k in np.unique(labels_of(o.program)).tolist()})


def usual_durations(usual: UsualTimes, program: Program) -> Ints:
    """Return the usual duration of each operation of a program, in ns: [operation, 1, 1]."""
    codes, inverse = np.unique(program.peers, return_inverse=True)
    times = np.rint([usual[code] for code in codes.tolist()]).astype(np.int64)
    return np.asarray(times[inverse.ravel()][:, None, None])


def peers_of(program: Program) -> Ints:
    """Return for each operation of a program the number of its peers."""
    return program.peers


def labels_of(program: Program) -> Ints:
    """Return the label under which each operation of a program is listed, as a place in LABELS."""
    label_of = np.array([LABELS.index(type_.label) for type_ in OPERATION_TYPES])
    return np.asarray(label_of[program.type])
