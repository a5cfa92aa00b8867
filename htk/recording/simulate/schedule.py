"""The time of everything, on all ranks: whole nanoseconds, one step after the other.

Each stage of the pipeline is timed until it waits for another one, in turn.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from htk.base.columns.types import Floats, Ints
from htk.recording.simulate.config import Config
from htk.recording.simulate.contention import Beside, Shares
from htk.recording.simulate.exchanges import Exchanges, ToldExchange
from htk.recording.simulate.groups import Group
from htk.recording.simulate.instructions import COMPUTE, MAIN, Activity, Do, RankProgram
from htk.recording.simulate.plants import Plants
from htk.recording.simulate.stage_times import ClusterRates, StageTimes, TimedRow
from htk.recording.simulate.stages import pipeline_stages

_CARRIED_NS = 180_000  # each kernel that was launched before the recording
# Of looking what ran beside what: six more move a step by 0.005 %, and what a rank computes in it
# by 0.2 % at most, where several things are wrong.
_ROUNDS = 2


@dataclass(frozen=True)
class Timed:
    """One step of a stage: a row per instruction, a column per rank that is written."""

    step: int
    program: RankProgram
    begin: Ints  # on the host; of a graph's nodes that of its launch
    end: Ints
    gpu_start: Ints  # -1: not a launch
    gpu_end: Ints
    common: Ints  # of collectives: when the last member came; of recorded events: when they fired
    cause: Ints  # what a GPU activity waited for last: 0 launch, 1 stream, 2 event, 3 network
    since: Ints  # of each rank: what begins earlier is not recorded
    ranks: tuple[int, ...]  # those of the columns
    exchanges: dict[int, ToldExchange]  # by row; by rank of the stage
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
        closes = {}
        opened = []
        for row, do in enumerate(self.program.do):
            if do == Do.OPEN:
                opened.append(row)
            elif do == Do.CLOSE:
                closes[opened.pop()] = row
        return closes


class Schedule:
    """Keeps clocks and streams from one step to the next."""

    def __init__(
        self, config: Config, programs: Sequence[RankProgram], groups: dict[str, Group]
    ) -> None:
        """`programs`: of each stage of the pipeline."""
        self.config = config
        self.groups = groups
        self.plants = Plants(config)
        again = [config.run] if config.run else []
        self._random = np.random.default_rng([config.seed, 29, *again])
        self._stages = [
            StageTimes(stage, program, groups, self.plants, self._random)
            for stage, program in zip(pipeline_stages(config), programs, strict=True)
        ]

    @property
    def now(self) -> Ints:
        """The hosts' clocks: nothing launched later starts earlier."""
        return np.concatenate([stage.state.now for stage in self._stages])

    @property
    def gpus_done(self) -> Ints:
        """The time from which each GPU has nothing left to do, in ns."""
        return np.concatenate([stage.gpus_done for stage in self._stages])

    def step(self, number: int) -> list[Timed]:
        """Time the next step, on each stage."""
        since_first = number - self.config.first_step
        programs = [stage.begin_step(since_first) for stage in self._stages]
        if self.config.cut_last_step and since_first == self.config.steps - 1:
            programs = [cut_program(program) for program in programs]
        shares = self._measure_contention(programs) if self.config.contention else None
        notes = [
            _Columns(program, stage) for program, stage in zip(programs, self._stages, strict=True)
        ]
        self._run(programs, shares, [columns.write for columns in notes])
        return [columns.timed(number) for columns in notes]

    def warm_up(self) -> list[Timed]:
        """Return the step before the first: each rank begins to record at another instant of it."""
        stages = self.step(self.config.first_step - 1)
        apart = np.random.default_rng([self.config.seed, 23])
        early = apart.integers(0, round(1e3 * self.config.stagger_us), self.config.ranks)
        since = np.maximum(0, self.now - early)
        return [replace(timed, since=since[list(timed.ranks)], recorded=False) for timed in stages]

    def carry_in(self) -> list[Timed]:
        """Return the kernels that run when the recording begins: nobody sees who launched them."""
        return [self._build_carried(stage) for stage in self._stages]

    def _build_carried(self, stage: StageTimes) -> Timed:
        name = "void at::native::vectorized_elementwise_kernel<4, at::native::carried_functor>"
        activity = Activity(name, "compute", COMPUTE, _CARRIED_NS)
        program = RankProgram()
        count = self.config.carry_in
        for _ in range(count):
            program.add(Do.LAUNCH, 0, (activity, MAIN))
        starts = stage.state.now + (_CARRIED_NS + stage.gap) * np.arange(count)[:, None]
        if count:
            stage.state.free[COMPUTE] = starts[-1] + _CARRIED_NS
        written = stage.stage.written
        starts = starts[:, _find_written_places(stage)]
        never = np.full_like(starts, -1)
        zero = np.zeros_like(starts)
        on_gpu = (starts, starts + _CARRIED_NS, starts, zero)
        first = self.config.first_step - 1
        since = np.zeros(len(written), np.int64)
        return Timed(first, program, never, never, *on_gpu, since, written, {}, recorded=False)

    def _measure_contention(self, programs: list[RankProgram]) -> list[Shares]:
        """Return how much of each launch runs beside the other kind, from trial timings of the step
        that are then forgotten."""
        before = [stage.state for stage in self._stages]
        chance = self._random.bit_generator.state
        shares: list[Shares] | None = None
        for _ in range(_ROUNDS):
            for stage, state in zip(self._stages, before, strict=True):
                stage.state = state.copy()
            self._random.bit_generator.state = chance
            trials = [
                Beside(program, stage.count)
                for program, stage in zip(programs, self._stages, strict=True)
            ]
            self._run(programs, shares, [trial.note for trial in trials])
            shares = [
                trial.shares(stage.tables)
                for trial, stage in zip(trials, self._stages, strict=True)
            ]
        for stage, state in zip(self._stages, before, strict=True):
            stage.state = state
        self._random.bit_generator.state = chance
        assert shares is not None
        return shares

    def _run(
        self,
        programs: list[RankProgram],
        shares: list[Shares] | None,
        notes: list[Callable[[TimedRow], None]],
    ) -> None:
        """Time all stages: each until it waits for another one, in turn."""
        slowed = ClusterRates.drawn(self.config.seed).shared
        exchanges = Exchanges(self.config, self.groups, self.plants, self._spread, slowed)
        beside: Sequence[Shares | None] = shares or [None] * len(programs)
        running = [
            stage.run(program, share, exchanges, note)
            for stage, program, share, note in zip(
                self._stages, programs, beside, notes, strict=True
            )
        ]
        while running:
            before = exchanges.posted, len(running)
            running = [stage for stage in running if next(stage, True) is None]
            if running and before == (exchanges.posted, len(running)):
                raise RuntimeError("the stages of a pipeline wait for each other")

    def _spread(self, count: int) -> Floats:
        """Return how much longer each of so many messages takes, by chance."""
        return np.exp(self._random.normal(0, self.config.noise, count))


class _Columns:
    """A step's times of a stage, for the ranks that are written."""

    def __init__(self, program: RankProgram, stage: StageTimes) -> None:
        self._program = program
        self._stage = stage
        self._written = _find_written_places(stage)
        shape = len(program.do), len(self._written)
        self._recorded = [np.full(shape, -1, np.int64) for _ in range(6)]
        self._exchanges: dict[int, ToldExchange] = {}

    def write(self, note: TimedRow) -> None:
        """Keep an instruction's times; the host has just come to its end."""
        row = note.row
        written = self._written
        self._recorded[0][row] = note.begin[written]
        self._recorded[1][row] = self._stage.state.now[written]
        for column, value in zip(self._recorded[2:], note.on_gpu or (), strict=False):
            column[row] = value[written]
        if note.exchange:
            self._exchanges[row] = note.exchange

    def timed(self, step: int) -> Timed:
        ranks = self._stage.stage.written
        since = np.zeros(len(ranks), np.int64)
        begin, end, start, stop, common, cause = self._recorded
        on_gpu = (start, stop, common, cause)
        return Timed(step, self._program, begin, end, *on_gpu, since, ranks, self._exchanges)


def _find_written_places(stage: StageTimes) -> Ints:
    """Return the places in a stage of the ranks that are written."""
    return np.array(stage.stage.written, np.int64) - stage.stage.ranks.start


def cut_program(program: RankProgram) -> RankProgram:
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
