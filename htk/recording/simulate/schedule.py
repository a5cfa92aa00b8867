"""The time of everything, on all ranks: whole nanoseconds, one instruction after the other.

All ranks run the same program, so the n-th instruction is timed on all of them at once. What it
depends on was timed before: the host's clock, its stream, events, and the launch that has to leave
the queue. A collective begins to move when its last member is there.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from htk.base.columns.types import Floats, Ints
from htk.recording.simulate.config import Config
from htk.recording.simulate.contention import Beside, Shares
from htk.recording.simulate.groups import Group
from htk.recording.simulate.host_calls import HostCalls
from htk.recording.simulate.instructions import (
    COMPUTE,
    MAIN,
    Activity,
    Collective,
    Do,
    HostCall,
    RankProgram,
)
from htk.recording.simulate.plants import Plants

OnGpu = tuple[Ints, Ints, Ints, Ints]  # start, end, common, cause: see Timed

_GAP_NS = {"nvidia": 1000, "amd": 1, "intel": 500}  # between kernels of a stream, at least
_CARRIED_NS = 180_000  # each kernel that was launched before the recording
_LAUNCH_NS = 3200  # from the begin of a launch call to the kernel on an empty stream
_EVENT_NS = 1200  # to an event on an empty stream
_PROGRAMMATIC = 0.08  # of kernels: 74 of 928 were seen on a B200
_COLLECTION_NS = 40_000_000  # of garbage, in one step of ten
_ROUNDS = 2  # of looking what ran beside what; a third moves hardly anything


@dataclass(frozen=True)
class Timed:
    """One step: a row per instruction, a column per rank that is written."""

    step: int
    program: RankProgram
    begin: Ints  # on the host; of a graph's nodes that of its launch
    end: Ints
    gpu_start: Ints  # -1: not a launch
    gpu_end: Ints
    common: Ints  # of collectives: when the last member came; of recorded events: when they fired
    cause: Ints  # what a GPU activity waited for last: 0 launch, 1 stream, 2 event, 3 network
    since: Ints  # of each rank: what begins earlier is not recorded
    recorded: bool = True  # as a step

    @cached_property
    def rows(self) -> dict[Do, list[int]]:
        """The rows of each kind of instruction, in order."""
        by_kind: dict[Do, list[int]] = {do: [] for do in Do}
        for row, do in enumerate(self.program.do):
            by_kind[do].append(row)
        return by_kind

    @cached_property
    def closes(self) -> dict[int, int]:
        """The row that closes each range, by the row that opens it."""
        closes, opened = {}, []
        for row, do in enumerate(self.program.do):
            if do == Do.OPEN:
                opened.append(row)
            elif do == Do.CLOSE:
                closes[opened.pop()] = row
        return closes


@dataclass
class _State:
    """The state between two instructions. Its arrays are replaced, never changed."""

    now: Ints  # the hosts' clocks
    queue: deque[Ints]
    launched: Ints
    free: dict[int, Ints] = field(default_factory=dict)  # when streams have nothing left
    channel: dict[str, Ints] = field(default_factory=dict)  # until when a communicator is taken
    hold: dict[int, Ints] = field(default_factory=dict)
    events: dict[int, Ints] = field(default_factory=dict)
    longer: Ints | None = None  # how much more time the next launch takes

    def copy(self) -> "_State":
        return replace(
            self,
            queue=self.queue.copy(),
            free=dict(self.free),
            channel=dict(self.channel),
            hold=dict(self.hold),
            events=dict(self.events),
        )


class Schedule:
    """Keeps clocks and streams from one step to the next."""

    def __init__(self, config: Config, program: RankProgram, groups: dict[str, Group]) -> None:
        self.config, self.program, self.groups = config, program, groups
        self.plants = Plants(config)
        ranks = config.ranks
        again = [config.run] if config.run else []
        self._random = np.random.default_rng([config.seed, 29, *again])
        zero = np.zeros(ranks, np.int64)
        self._state = _State(zero, deque(maxlen=config.queue), zero)
        self._none = zero
        self._written = np.array(config.written)
        self._gap = _GAP_NS.get(config.device.vendor, _GAP_NS["nvidia"])
        half = config.noise / 2
        self._calls = HostCalls(config, self.plants)
        gpus = np.random.default_rng([config.seed, 37])  # the same in another run
        self._gpu = np.exp(gpus.normal(0, half, ranks))
        self._draw_rates()

    def _draw_rates(self) -> None:
        draw = np.random.default_rng([self.config.seed, 31])
        self._slowed = float(draw.uniform(0.08, 0.22))  # of compute beside communication
        self._shared = float(draw.uniform(0.04, 0.12))  # of communication beside compute
        self._loader = float(draw.uniform(0.6, 1.6))  # its time, over the usual one
        self._loader_spread = float(draw.uniform(0.03, 0.12))
        self._behind = float(draw.uniform(0.0, 0.02))  # of batches, those not yet there
        self._behind_ns = float(draw.uniform(0.2e6, 0.8e6))

    @property
    def now(self) -> Ints:
        """The hosts' clocks: nothing launched later starts earlier."""
        return self._state.now

    @property
    def gpus_done(self) -> Ints:
        """The time from which each GPU has nothing left to do, in ns."""
        return np.asarray(np.maximum.reduce([self._none, *self._state.free.values()]))

    def step(self, number: int) -> Timed:
        """Time the next step."""
        self._at = number - self.config.first_step
        self._speed = self._gpu * self._lognormal(self.config.noise / 2)
        self._speed = self._speed * self.plants.gpu_factor(self._at)
        self._host = self._lognormal(3 * self.config.noise) * self.plants.host_factor(self._at)
        program = self._calls.added(self.program, self._at)
        if self.config.cut_last_step and self._at == self.config.steps - 1:
            program = cut(program)
        shares = self._contention(program) if self.config.contention else None
        recorded = [np.full((len(program.do), len(self._written)), -1, np.int64) for _ in range(6)]

        def write(row: int, begin: Ints, on_gpu: OnGpu | None) -> None:
            recorded[0][row], recorded[1][row] = begin[self._written], self.now[self._written]
            for column, value in zip(recorded[2:], on_gpu or (), strict=False):
                column[row] = value[self._written]

        self._run(program, shares, write)
        begin, end, *columns = recorded
        start, stop, common, cause = columns
        since = np.zeros(len(self._written), np.int64)
        return Timed(number, program, begin, end, start, stop, common, cause, since)

    def warm_up(self) -> Timed:
        """Return the step before the first: each rank begins to record at another instant of it."""
        timed = self.step(self.config.first_step - 1)
        apart = np.random.default_rng([self.config.seed, 23])
        early = apart.integers(0, round(1e3 * self.config.stagger_us), self.config.ranks)
        since = np.maximum(0, self.now - early)
        return replace(timed, since=since[self._written], recorded=False)

    def carry_in(self) -> Timed:
        """Return the kernels that run when the recording begins: nobody sees who launched them."""
        name = "void at::native::vectorized_elementwise_kernel<4, at::native::carried_functor>"
        activity = Activity(name, "compute", COMPUTE, _CARRIED_NS)
        program, count = RankProgram(), self.config.carry_in
        for _ in range(count):
            program.add(Do.LAUNCH, 0, (activity, MAIN))
        starts = self.now + (_CARRIED_NS + self._gap) * np.arange(count)[:, None]
        if count:
            self._state.free[COMPUTE] = starts[-1] + _CARRIED_NS
        starts = starts[:, self._written]
        never, zero = np.full_like(starts, -1), np.zeros_like(starts)
        on_gpu = (starts, starts + _CARRIED_NS, starts, zero)
        first = self.config.first_step - 1
        since = np.zeros(len(self._written), np.int64)
        return Timed(first, program, never, never, *on_gpu, since=since, recorded=False)

    def _contention(self, program: RankProgram) -> Shares:
        """Return how much of each launch runs beside the other kind, from trial timings of the step
        that are then forgotten."""
        before, chance = self._state, self._random.bit_generator.state
        shares = None
        for _ in range(_ROUNDS):
            self._state = before.copy()
            self._random.bit_generator.state = chance
            beside = Beside(program, self.config.ranks)

            def note(row: int, _begin: Ints, on_gpu: OnGpu | None, beside: Beside = beside) -> None:
                if on_gpu:
                    beside.note(row, on_gpu)

            self._run(program, shares, note)
            shares = beside.shares(self.groups)
        self._state = before
        self._random.bit_generator.state = chance
        assert shares is not None
        return shares

    def _run(
        self,
        program: RankProgram,
        shares: Shares | None,
        note: Callable[[int, Ints, OnGpu | None], None],
    ) -> None:
        """Time each instruction in turn; `shares`: those of launches, in their order."""
        launches = 0
        items = zip(program.do, program.cost, program.what, strict=True)
        for row, (do, cost, what) in enumerate(items):
            begin = self.now
            if do in (Do.LAUNCH, Do.NODE):
                share = None if shares is None else shares[launches]
                launches += 1
                on_gpu: OnGpu | None = self._launch(do, cost, what[0], share)
                begin = self._state.launched
            else:
                on_gpu = self._host_side(do, cost, what)
            note(row, begin, on_gpu)

    def _host_side(self, do: Do, cost: int, what: object) -> OnGpu | None:
        state = self._state
        if do == Do.THINK and what in ("data", "gc"):
            state.now = state.now + (self._loading(cost) if what == "data" else self._collecting())
            return None
        if do == Do.CALL:
            self._call(what[0])  # type: ignore[index]
            return None
        begin = state.now
        state.now = begin + (cost * self._host).astype(np.int64)
        if do == Do.RECORD:
            event = what[0]  # type: ignore[index]
            done = state.events[event.number] = self._stream(event.stream)
            never = self._none - 1
            return never, never, np.maximum(done, begin + _EVENT_NS), self._none
        if do == Do.WAIT:
            event, stream = what[0], what[1]  # type: ignore[index]
            held = state.hold.get(stream)
            done = state.events[event.number]
            state.hold[stream] = done if held is None else np.maximum(held, done)
        elif do == Do.SYNC:
            event = what[0]  # type: ignore[index]
            state.now = np.maximum(state.now, state.events[event.number] + 1500)
        return None

    def _call(self, call: HostCall) -> None:
        """Time a call of the runtime; it does not happen on ranks where it takes no time."""
        state = self._state
        if not call.name:
            state.longer = call.ns
            return
        done = state.now + call.ns
        if call.waits:
            idle = np.maximum.reduce([done, *state.free.values()])
            done = np.where(call.ns > 0, idle, done)
        state.now = done

    def _loading(self, cost: int) -> Ints:
        """Return the time to load the next batch, in ns: now and then it is not ready, or takes far
        longer."""
        ranks, chance = self.config.ranks, self._random
        spread = 0.5 if self.config.heavy_tails else self._loader_spread
        time = self._loader * cost * np.exp(chance.normal(0, spread, ranks))
        if self.config.noise:
            behind = chance.random(ranks) < self._behind
            time += np.where(behind, chance.exponential(self._behind_ns, ranks), 0.0)
        if self.config.heavy_tails:
            time += 2e4 * chance.pareto(1.5, ranks)
        return time.astype(np.int64) + self.plants.loading_ns(self._at)

    def _collecting(self) -> Ints:
        """Return the time for which Python collects garbage, in ns: mostly 0."""
        if not self.config.heavy_tails:
            return self._none
        some = self._random.random(self.config.ranks) < 0.1
        return np.where(some, _COLLECTION_NS, 0)

    def _launch(
        self, do: Do, cost: int, activity: Activity, share: NDArray[np.float32] | None
    ) -> OnGpu:
        state = self._state
        begin = state.now
        loading = self._none if state.longer is None else state.longer
        state.longer = None
        done = begin + loading + (cost * self._host).astype(np.int64)
        if len(state.queue) == self.config.queue:  # full: wait until the oldest has started
            done = np.maximum(done, state.queue[0])
        if do == Do.LAUNCH:
            state.launched = begin
        state.now = done
        ready = state.launched + loading + _LAUNCH_NS
        free = self._stream(activity.stream)
        behind = free + self._gap - self._early(activity)
        held = state.hold.pop(activity.stream, None)
        start = np.maximum(ready, behind)
        cause = (behind > ready).astype(np.int64)
        if held is not None:
            cause = np.where(held + 500 > start, 2, cause)
            start = np.maximum(start, held + 500)
        if activity.collective:  # one after the other on a communicator, whatever the stream
            taken = state.channel.get(activity.collective.group, start)
            cause = np.where(taken > start, 3, cause)
            start = np.maximum(start, taken)
            common, end = self._together(activity.collective, start, share)
            state.channel[activity.collective.group] = end + self._gap
        else:
            common, end = start, self._alone(activity, start, share)
        state.free[activity.stream] = np.maximum(free, end)
        state.queue.append(start)
        return start, end, common, cause

    def _together(
        self, what: Collective, start: Ints, share: NDArray[np.float32] | None
    ) -> tuple[Ints, Ints]:
        """Return when a collective's last member came and when each member ends, in ns."""
        group = self.groups[what.group]
        table = group.table
        common = np.empty_like(start)
        common[table] = start[table].max(axis=1)[:, None]
        links = self._random.normal(0, self.config.noise, (len(group.members), group.nodes))
        noise = np.exp(links.max(axis=1))  # a ring is as fast as its slowest link
        took = what.transfer_ns * noise * self.plants.link_factor(group)
        for load in filter(None, (what.in_load, what.out_load)):  # as long as its fullest member
            took = took * np.array(load)[table].max(axis=1)
        if share is not None:
            took = took * (1 + self._shared * share[table[:, 0]].astype(np.float64))
        transfer = np.empty_like(start)
        transfer[table] = took.astype(np.int64)[:, None]
        jitter = self._random.integers(0, self.config.jitter_ns + 1, len(start))
        return common, common + transfer + jitter

    def _alone(self, activity: Activity, start: Ints, share: NDArray[np.float32] | None) -> Ints:
        factor = self._speed * self._lognormal(self.config.noise)
        factor = factor * self.plants.kernel_factor(activity, self._at)
        if activity.load:
            factor = factor * np.array(activity.load)
        length = np.maximum(1, (activity.ns * factor).astype(np.int64))
        if share is not None and activity.kind == "compute":
            length = length + (self._slowed * share * length).astype(np.int64)
        return start + length

    def _early(self, activity: Activity) -> Ints | int:
        """Return how long before its predecessor's end a kernel may begin, in ns (programmatic
        launches)."""
        if not self.config.programmatic or activity.kind != "compute":
            return 0
        some = self._random.random(self.config.ranks) < _PROGRAMMATIC
        return np.where(some, self._random.integers(500, 2500, self.config.ranks), 0)

    def _stream(self, stream: int) -> Ints:
        free = self._state.free.get(stream)
        return np.full(self.config.ranks, -self._gap, np.int64) if free is None else free

    def _lognormal(self, spread: float) -> Floats:
        return np.exp(self._random.normal(0, spread, self.config.ranks))


def cut(program: RankProgram) -> RankProgram:
    """Return the first part of a step, its open ranges closed where the recording ends."""
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
