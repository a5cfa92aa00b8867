"""When everything happens, on all ranks: whole nanoseconds, one instruction after the other.

All ranks run the same program, so the n-th instruction is timed on all of them at once. What it
depends on was timed before: the host's clock, its stream, events, and the launch that has to leave
the queue. A collective begins to move when its last member is there.
"""

from collections import deque
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from htk.simulate.config import Config
from htk.simulate.groups import Group
from htk.simulate.instructions import COMPUTE, MAIN, Activity, Collective, Do, Program
from htk.simulate.plants import Plants

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

_GAP_NS = {"nvidia": 1000, "amd": 1, "intel": 500}  # between kernels of a stream, at least
_CARRIED_NS = 180_000  # each kernel that was launched before the recording
_LAUNCH_NS = 3200  # from the begin of a launch call to the kernel on an empty stream
_PROGRAMMATIC = 0.08  # of kernels: 74 of 928 were seen on a B200
_COLLECTION_NS = 40_000_000  # of garbage, in one step of ten
_REMEMBERED = 4  # communication kernels that a kernel may run beside


@dataclass(frozen=True)
class Timed:
    """One step: begin and end on the host, and on the GPU for launches; a row per instruction."""

    step: int
    program: Program
    begin: Ints  # instructions × ranks
    end: Ints
    gpu_start: Ints  # -1: not a launch
    gpu_end: Ints
    common: Ints  # of collectives: when the last member came
    cause: Ints  # what a GPU activity waited for last: 0 launch, 1 stream, 2 event, 3 network
    recorded: bool = True  # the host's side of it


class Schedule:
    """Keeps clocks and streams from one step to the next."""

    def __init__(self, config: Config, program: Program, groups: dict[str, Group]) -> None:
        self.config, self.program, self.groups = config, program, groups
        self.plants = Plants(config)
        ranks = config.ranks
        again = [config.run] if config.run else []
        self._random = np.random.default_rng([config.seed, 29, *again])
        self._now = np.zeros(ranks, np.int64)
        if config.stagger_us:
            apart = np.random.default_rng([config.seed, 23])  # leaves the other draws as they are
            self._now += apart.integers(0, round(1e3 * config.stagger_us), ranks)
        self._gap = _GAP_NS[config.device.vendor]
        self._free: dict[int, Ints] = {}
        self._channel: dict[str, Ints] = {}  # until when a communicator is taken
        self._hold: dict[int, Ints] = {}
        self._events: dict[int, Ints] = {}
        self._queue: deque[Ints] = deque(maxlen=config.queue)
        self._recent: deque[tuple[Ints, Ints]] = deque(maxlen=_REMEMBERED)
        self._busy_until = np.zeros(ranks, np.int64)
        half = config.noise / 2
        self._gpu = np.exp(self._random.normal(0, half, ranks))
        draw = np.random.default_rng([config.seed, 31])
        self._slowed = float(draw.uniform(0.08, 0.22))  # of compute beside communication
        self._shared = float(draw.uniform(0.04, 0.12))  # of communication beside compute

    def step(self, number: int) -> Timed:
        """Time the next step."""
        program = self.program
        self._at = number - self.config.first_step
        self._speed = self._gpu * self._lognormal(self.config.noise / 2)
        self._speed = self._speed * self.plants.gpu_factor(self._at)
        self._host = self._lognormal(3 * self.config.noise) * self.plants.host_factor(self._at)
        if self.config.cut_last_step and self._at == self.config.steps - 1:
            program = cut(program)
        made = [np.full((len(program.do), self.config.ranks), -1, np.int64) for _ in range(6)]
        begin, end, *on_gpu = made
        items = zip(program.do, program.cost, program.what, strict=True)
        for k, (do, cost, what) in enumerate(items):
            begin[k] = self._now
            if do in (Do.LAUNCH, Do.NODE):
                for column, value in zip(on_gpu, self._launch(do, cost, what[0]), strict=True):
                    column[k] = value
            else:
                self._host_side(do, cost, what)
            end[k] = self._now
        start, stop, common, cause = on_gpu
        return Timed(number, program, begin, end, start, stop, common, cause)

    def carry_in(self) -> Timed:
        """Kernels that run when the recording begins: nobody sees who launched them."""
        name = "void at::native::vectorized_elementwise_kernel<4, at::native::carried_functor>"
        activity = Activity(name, "compute", COMPUTE, _CARRIED_NS)
        program, count = Program(), self.config.carry_in
        for _ in range(count):
            program.add(Do.LAUNCH, 0, (activity, MAIN))
        starts = self._now + (_CARRIED_NS + self._gap) * np.arange(count)[:, None]
        ends = starts + _CARRIED_NS
        if count:
            self._free[COMPUTE] = ends[-1]
        never = np.full_like(starts, -1)
        zero = np.zeros_like(starts)
        first = self.config.first_step - 1
        return Timed(first, program, never, never, starts, ends, starts, zero, recorded=False)

    @property
    def now(self) -> Ints:
        """The hosts' clocks: nothing launched later starts earlier."""
        return self._now

    def _host_side(self, do: Do, cost: int, what: object) -> None:
        if do == Do.THINK and what == "data":
            self._now = self._now + self._loading(cost)
            return
        self._now = self._now + (cost * self._host).astype(np.int64)
        if do == Do.RECORD:
            event = what[0]  # type: ignore[index]
            self._events[event.number] = self._stream(event.stream)
        elif do == Do.WAIT:
            event, stream = what[0], what[1]  # type: ignore[index]
            held = self._hold.get(stream)
            done = self._events[event.number]
            self._hold[stream] = done if held is None else np.maximum(held, done)
        elif do == Do.SYNC:
            event = what[0]  # type: ignore[index]
            self._now = np.maximum(self._now, self._events[event.number] + 1500)

    def _loading(self, cost: int) -> Ints:
        """The next batch: now and then it takes far longer, or Python collects garbage."""
        spread = 0.5 if self.config.heavy_tails else 0.05
        time = cost * np.exp(self._random.normal(0, spread, self.config.ranks))
        if self.config.heavy_tails:
            time += 2e4 * self._random.pareto(1.5, self.config.ranks)
            time += _COLLECTION_NS * (self._random.random(self.config.ranks) < 0.1)
        return time.astype(np.int64) + self.plants.data_stall_ns(self._at)

    def _launch(self, do: Do, cost: int, activity: Activity) -> tuple[Ints, Ints, Ints, Ints]:
        begin = self._now
        done = begin + (cost * self._host).astype(np.int64)
        if len(self._queue) == self.config.queue:  # full: wait until the oldest has started
            done = np.maximum(done, self._queue[0])
        if do == Do.LAUNCH:
            self._launched = begin
        self._now = done
        ready = self._launched + _LAUNCH_NS
        free = self._stream(activity.stream)
        behind = free + self._gap - self._early(activity)
        held = self._hold.pop(activity.stream, None)
        start = np.maximum(ready, behind)
        cause = (behind > ready).astype(np.int64)
        if held is not None:
            cause = np.where(held + 500 > start, 2, cause)
            start = np.maximum(start, held + 500)
        if activity.collective:  # one after the other on a communicator, whatever the stream
            taken = self._channel.get(activity.collective.group, start)
            cause = np.where(taken > start, 3, cause)
            start = np.maximum(start, taken)
            common, end = self._together(activity.collective, start)
            self._recent.append((start, end))
            self._channel[activity.collective.group] = end + self._gap
        else:
            common, end = start, self._alone(activity, start)
            if activity.kind == "compute":
                self._busy_until = np.maximum(self._busy_until, end)
        self._free[activity.stream] = np.maximum(free, end)
        self._queue.append(start)
        return start, end, common, cause

    def _together(self, what: Collective, start: Ints) -> tuple[Ints, Ints]:
        """When the last member came, and when each ends."""
        group = self.groups[what.group]
        table = group.table
        common = np.empty_like(start)
        common[table] = start[table].max(axis=1)[:, None]
        noise = np.exp(self._random.normal(0, self.config.noise, len(group.members)))
        slow = self.plants.link_factor(group)
        shared = self._shared if self.config.contention else 0.0
        beside = (self._busy_until > common) * shared
        share = beside[table].mean(axis=1)
        transfer = np.empty_like(start)
        took = what.transfer_ns * noise * slow * (1 + share)
        transfer[table] = took.astype(np.int64)[:, None]
        jitter = self._random.integers(0, self.config.jitter_ns + 1, len(start))
        return common, common + transfer + jitter

    def _alone(self, activity: Activity, start: Ints) -> Ints:
        factor = self._speed * self._lognormal(self.config.noise)
        factor = factor * self.plants.kernel_factor(activity, self._at)
        length = np.maximum(1, (activity.ns * factor).astype(np.int64))
        if self.config.contention and activity.kind == "compute":
            beside = np.zeros(len(start), np.int64)
            for low, high in self._recent:
                cut = np.minimum(high, start + length) - np.maximum(low, start)
                beside = np.maximum(beside, np.maximum(cut, 0))
            length = length + (self._slowed * beside).astype(np.int64)
        return start + length

    def _early(self, activity: Activity) -> Ints | int:
        """How much a kernel may begin before the one before it ends: programmatic launches."""
        if not self.config.programmatic or activity.kind != "compute":
            return 0
        some = self._random.random(self.config.ranks) < _PROGRAMMATIC
        return np.where(some, self._random.integers(500, 2500, self.config.ranks), 0)

    def _stream(self, stream: int) -> Ints:
        found = self._free.get(stream)
        return np.full(self.config.ranks, -self._gap, np.int64) if found is None else found

    def _lognormal(self, spread: float) -> Floats:
        return np.exp(self._random.normal(0, spread, self.config.ranks))


def cut(program: Program) -> Program:
    """The first part of a step, its open ranges closed where the recording ends."""
    keep = len(program.do) * 3 // 10
    short = replace(
        program, do=program.do[:keep], cost=program.cost[:keep], what=program.what[:keep]
    )
    opened: list[object] = []
    for do, what in zip(short.do, short.what, strict=True):
        if do == Do.OPEN:
            opened.append(what)
        elif do == Do.CLOSE:
            opened.pop()
    for what in reversed(opened):
        short.add(Do.CLOSE, 0, what)
    return short
