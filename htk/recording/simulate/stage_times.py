"""The times of one stage of the pipeline, on all its ranks: one instruction after the other.

Ranks of a stage run the same program, so the n-th instruction is timed on all of them at once. What
it depends on was timed before: the host's clock, its stream, events, and the launch that has to
leave the queue. A collective begins to move when its last member is there; a call with messages
waits until the other stages have come to theirs.
"""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from htk.base.columns.types import Floats, Ints
from htk.recording.simulate.config import Config
from htk.recording.simulate.exchanges import Exchanges, ToldExchange
from htk.recording.simulate.groups import Group
from htk.recording.simulate.host_calls import HostCalls
from htk.recording.simulate.instructions import Activity, Collective, Do, HostCall, RankProgram
from htk.recording.simulate.plants import Plants
from htk.recording.simulate.stages import Stage

_GAP_NS = {"nvidia": 1000, "amd": 1, "intel": 500}  # between kernels of a stream, at least
_LAUNCH_NS = 3200  # from the begin of a launch call to the kernel on an empty stream
_EVENT_NS = 1200  # to an event on an empty stream
_PROGRAMMATIC = 0.08  # of kernels: 74 of 928 were seen on a B200
_APART_NS = 5_000_000  # servers side by side, at most
_COLLECTION_NS = 40_000_000  # of garbage, in one step of ten

OnGpu = tuple[Ints, Ints, Ints, Ints]  # start, end, common, cause: see Timed
Share = NDArray[np.float32] | None  # of a launch's time, by rank: the other kind ran beside it


@dataclass(frozen=True)
class TimedRow:
    """What is noted of an instruction when it has been timed."""

    row: int
    begin: Ints
    on_gpu: OnGpu | None
    exchange: ToldExchange | None = None


@dataclass(frozen=True)
class ClusterRates:
    """What the seed draws once for a cluster."""

    slowed: float  # of compute beside communication
    shared: float  # of communication beside compute
    loader: float  # its time, over the usual one
    loader_spread: float
    behind: float  # of batches, those not yet there
    behind_ns: float

    @classmethod
    def drawn(cls, seed: int) -> "ClusterRates":
        draw = np.random.default_rng([seed, 31])
        slowed = float(draw.uniform(0.08, 0.22))
        shared = float(draw.uniform(0.04, 0.12))
        loader = float(draw.uniform(0.6, 1.6))
        loader_spread = float(draw.uniform(0.03, 0.12))
        behind = float(draw.uniform(0.0, 0.02))
        behind_ns = float(draw.uniform(0.2e6, 0.8e6))
        return cls(slowed, shared, loader, loader_spread, behind, behind_ns)


@dataclass
class StageState:
    """The state between two instructions. Its arrays are replaced, never changed."""

    now: Ints  # the hosts' clocks
    queue: deque[Ints]
    launched: Ints
    free: dict[int, Ints] = field(default_factory=dict)  # when streams have nothing left
    channel: dict[str, Ints] = field(default_factory=dict)  # until when a communicator is taken
    hold: dict[int, Ints] = field(default_factory=dict)
    events: dict[int, Ints] = field(default_factory=dict)
    longer: Ints | None = None  # how much more time the next launch takes

    def copy(self) -> "StageState":
        return replace(
            self,
            queue=self.queue.copy(),
            free=dict(self.free),
            channel=dict(self.channel),
            hold=dict(self.hold),
            events=dict(self.events),
        )


@dataclass(frozen=True)
class _Begun:
    """A launch whose kernel has begun."""

    activity: Activity
    share: Share
    start: Ints
    cause: Ints
    free: Ints  # its stream's


class StageTimes:
    """Keeps clocks and streams of a stage's ranks from one step to the next."""

    def __init__(
        self,
        stage: Stage,
        program: RankProgram,
        groups: dict[str, Group],
        plants: Plants,
        chance: np.random.Generator,
    ) -> None:
        self.stage, self.program, self.plants = stage, program, plants
        self.config: Config = stage.config
        self.gap = _GAP_NS.get(self.config.device.vendor, _GAP_NS["nvidia"])
        self.count = len(stage.ranks)
        self._own = slice(stage.ranks.start, stage.ranks.stop)
        self._random = chance
        zero = np.zeros(self.count, np.int64)
        begin = zero + self._apart_ns()
        self.state = StageState(begin, deque(maxlen=self.config.queue), begin)
        self.none = zero
        self._calls = HostCalls(self.config, plants, stage.number)
        gpus = np.random.default_rng([self.config.seed, 37])  # the same in another run
        self._gpu = np.exp(gpus.normal(0, self.config.noise / 2, self.config.ranks))[self._own]
        self._rates = ClusterRates.drawn(self.config.seed)
        self._groups = groups
        # The groups of each kind that lie within the stage, by places of their ranks in it.
        self.tables = {kind: group.within(stage.ranks) for kind, group in groups.items()}
        self._slow = {
            kind: plants.link_factor(group)[group.rows_within(stage.ranks)]
            for kind, group in groups.items()
        }

    def _apart_ns(self) -> Ints:
        """Return how much later than others each of several servers begins, by rank."""
        servers = self.config.ranks // self.config.job_ranks
        if servers == 1:
            return np.zeros(self.count, np.int64)
        drawn = np.random.default_rng([self.config.seed, 61]).integers(0, _APART_NS, servers)
        return np.repeat(drawn, self.config.job_ranks)

    @property
    def gpus_done(self) -> Ints:
        """The time from which each GPU has nothing left to do, in ns."""
        return np.asarray(np.maximum.reduce([self.none, *self.state.free.values()]))

    def begin_step(self, number: int) -> RankProgram:
        """Draw how fast a step is on each rank; returns its program. Steps count from the first."""
        self._at = number
        self._speed = self._gpu * self._draw_lognormal(self.config.noise / 2)
        self._speed = self._speed * self.plants.gpu_factor(number)[self._own]
        self._host = (
            self._draw_lognormal(3 * self.config.noise) * self.plants.host_factor(number)[self._own]
        )
        return self._calls.added(self.program, number)

    def run(
        self,
        program: RankProgram,
        shares: NDArray[np.float32] | None,
        exchanges: Exchanges,
        note: Callable[[TimedRow], None],
    ) -> Iterator[None]:
        """Time each instruction in turn; yields while another stage has to come to its end of a
        message. `shares`: those of launches, in their order."""
        launches = 0
        items = zip(program.do, program.cost, program.what, strict=True)
        for row, (do, cost, what) in enumerate(items):
            begin = self.state.now
            if do not in (Do.LAUNCH, Do.NODE):
                note(TimedRow(row, begin, self._host_side(do, cost, what)))
                continue
            share = None if shares is None else shares[launches]
            launches += 1
            begun = self._launch(do, cost, what[0], share)
            exchange = begun.activity.exchange
            if exchange is None:
                note(
                    TimedRow(
                        row, self.state.launched, self._end(begun, *self._find_run_times(begun))
                    )
                )
                continue
            launched = self.state.launched
            call = exchanges.post(self.stage, exchange, begun.start, share)
            while not call.is_met:
                yield
            self.state.channel[exchange.channel] = call.end + self.gap
            on_gpu = self._end(begun, call.common, call.end + self._draw_jitter())
            note(TimedRow(row, launched, on_gpu, call.told(np.array(self.stage.ranks))))

    def _host_side(self, do: Do, cost: int, what: object) -> OnGpu | None:
        state = self.state
        if do == Do.THINK and what in ("data", "gc"):
            state.now = state.now + (
                self._draw_loading(cost) if what == "data" else self._draw_collecting()
            )
            return None
        if do == Do.CALL:
            self._call(what[0])  # type: ignore[index]
            return None
        begin = state.now
        state.now = begin + (cost * self._host).astype(np.int64)
        if do == Do.RECORD:
            event = what[0]  # type: ignore[index]
            done = state.events[event.number] = self._find_stream_end(event.stream)
            never = self.none - 1
            return never, never, np.maximum(done, begin + _EVENT_NS), self.none
        if do == Do.WAIT:
            event = what[0]  # type: ignore[index]
            stream = what[1]  # type: ignore[index]
            held = state.hold.get(stream)
            done = state.events[event.number]
            state.hold[stream] = done if held is None else np.maximum(held, done)
        elif do == Do.SYNC:
            event = what[0]  # type: ignore[index]
            state.now = np.maximum(state.now, state.events[event.number] + 1500)
        return None

    def _call(self, call: HostCall) -> None:
        """Time a call of the runtime; it does not happen on ranks where it takes no time."""
        state = self.state
        ns = call.ns[self._own]
        if not call.name:
            state.longer = ns
            return
        done = state.now + ns
        if call.waits:
            idle = np.maximum.reduce([done, *state.free.values()])
            done = np.where(ns > 0, idle, done)
        state.now = done

    def _draw_loading(self, cost: int) -> Ints:
        """Return the time to load the next batch, in ns: now and then it is not ready, or takes far
        longer."""
        rates = self._rates
        chance = self._random
        spread = 0.5 if self.config.heavy_tails else rates.loader_spread
        time = rates.loader * cost * np.exp(chance.normal(0, spread, self.count))
        if self.config.noise:
            behind = chance.random(self.count) < rates.behind
            time += np.where(behind, chance.exponential(rates.behind_ns, self.count), 0.0)
        if self.config.heavy_tails:
            time += 2e4 * chance.pareto(1.5, self.count)
        return time.astype(np.int64) + self.plants.loading_ns(self._at)[self._own]

    def _draw_collecting(self) -> Ints:
        """Return the time for which Python collects garbage, in ns: mostly 0."""
        if not self.config.heavy_tails:
            return self.none
        some = self._random.random(self.count) < 0.1
        return np.where(some, _COLLECTION_NS, 0)

    def _launch(self, do: Do, cost: int, activity: Activity, share: Share) -> _Begun:
        """Return when a launched kernel begins, and what it waited for last."""
        state = self.state
        begin = state.now
        loading = self.none if state.longer is None else state.longer
        state.longer = None
        done = begin + loading + (cost * self._host).astype(np.int64)
        if len(state.queue) == self.config.queue:  # full: wait until the oldest has started
            done = np.maximum(done, state.queue[0])
        if do == Do.LAUNCH:
            state.launched = begin
        state.now = done
        ready = state.launched + loading + _LAUNCH_NS
        free = self._find_stream_end(activity.stream)
        behind = free + self.gap - self._find_early_start(activity)
        held = state.hold.pop(activity.stream, None)
        start = np.maximum(ready, behind)
        cause = (behind > ready).astype(np.int64)
        if held is not None:
            cause = np.where(held + 500 > start, 2, cause)
            start = np.maximum(start, held + 500)
        channel = _channel_of(activity)
        if channel:  # one after the other on a communicator, whatever the stream
            taken = state.channel.get(channel, start)
            cause = np.where(taken > start, 3, cause)
            start = np.maximum(start, taken)
        return _Begun(activity, share, start, cause, free)

    def _find_run_times(self, begun: _Begun) -> tuple[Ints, Ints]:
        """Return when the last member of a collective came, and when each rank's kernel ends."""
        what = begun.activity.collective
        if what is None:
            return begun.start, self._time_alone(begun)
        common, end = self._time_together(what, begun.start, begun.share)
        self.state.channel[what.group] = end + self.gap
        return common, end

    def _end(self, begun: _Begun, common: Ints, end: Ints) -> OnGpu:
        """Free the stream of a kernel that has run."""
        self.state.free[begun.activity.stream] = np.maximum(begun.free, end)
        self.state.queue.append(begun.start)
        return begun.start, end, common, begun.cause

    def _time_together(self, what: Collective, start: Ints, share: Share) -> tuple[Ints, Ints]:
        """Return when a collective's last member came and when each member ends, in ns."""
        group = self._groups[what.group]
        table = self.tables[what.group]
        common = np.empty_like(start)
        common[table] = start[table].max(axis=1)[:, None]
        links = self._random.normal(0, self.config.noise, (len(table), group.nodes))
        noise = np.exp(links.max(axis=1))  # a ring is as fast as its slowest link
        took = what.transfer_ns * noise * self._slow[what.group]
        if what.splits is not None:  # as long as its fullest member
            fullest = what.splits.fullest[self._own][table].max(axis=1)
            took = took * what.element_bytes * fullest / what.wire
        if share is not None:
            took = took * (1 + self._rates.shared * share[table[:, 0]].astype(np.float64))
        transfer = np.empty_like(start)
        transfer[table] = took.astype(np.int64)[:, None]
        return common, common + transfer + self._draw_jitter()

    def _draw_jitter(self) -> Ints:
        return self._random.integers(0, self.config.jitter_ns + 1, self.count)

    def _time_alone(self, begun: _Begun) -> Ints:
        activity = begun.activity
        share = begun.share
        factor = self._speed * self._draw_lognormal(self.config.noise)
        planted = self.plants.kernel_factor(activity, self._at)
        factor = factor * (planted[self._own] if isinstance(planted, np.ndarray) else planted)
        if activity.load:
            factor = factor * np.array(activity.load)[self._own]
        length = np.maximum(1, (activity.ns * factor).astype(np.int64))
        if share is not None and activity.kind == "compute":
            length = length + (self._rates.slowed * share * length).astype(np.int64)
        return begun.start + length

    def _find_early_start(self, activity: Activity) -> Ints | int:
        """Return how long before its predecessor's end a kernel may begin, in ns (programmatic
        launches)."""
        if not self.config.programmatic or activity.kind != "compute":
            return 0
        some = self._random.random(self.count) < _PROGRAMMATIC
        return np.where(some, self._random.integers(500, 2500, self.count), 0)

    def _find_stream_end(self, stream: int) -> Ints:
        free = self.state.free.get(stream)
        return np.full(self.count, -self.gap, np.int64) if free is None else free

    def _draw_lognormal(self, spread: float) -> Floats:
        return np.exp(self._random.normal(0, spread, self.count))


def _channel_of(activity: Activity) -> str:
    """Return the communicator that a kernel uses; empty: none."""
    if activity.exchange:
        return activity.exchange.channel
    return activity.collective.group if activity.collective else ""
