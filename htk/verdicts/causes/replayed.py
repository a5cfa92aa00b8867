"""The recording replayed as one graph, with and without what a cause took.

All recorded steps are in the graph, one after the other, so that what happens in one of them, or
from one on, counts as often as it did. A gain is what the recorded window of a rank becomes shorter
by, mean over ranks, for each of its steps; of a step that was recorded alone, what its period
becomes shorter by where it repeats, as in what-ifs. Of a large recording a run of steps is replayed
that takes about as long a step as all, and of many ranks those that stand for them.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from htk.base.columns.arrow import read_booleans, read_numbers, read_times
from htk.base.columns.groups import Groups, row_of
from htk.base.columns.types import NONE, Ints, take_or
from htk.base.core.humanize import format_int_ranges
from htk.base.errors import HtkError, MissingTable, UsageError
from htk.base.mappings import Fields, NamedTables
from htk.quantities.graph.build import Graph, StepEvents, build_of, step_events, steps_at_hand
from htk.quantities.graph.exposed import BusyDevices
from htk.quantities.graph.fidelity import test_replay
from htk.quantities.graph.gate import Gate
from htk.quantities.graph.nodes import Steps, activities_of, calls_of
from htk.quantities.graph.replay import Replay, periods_beside, replay_graph
from htk.quantities.graph.shared_tables import SharedTables
from htk.quantities.graph.unexplained import keep_unexplained
from htk.traces.trace.trace import Trace
from htk.verdicts.causes.changes import CauseEdit
from htk.whatif.bound_by import SLOWER_HOST, slow_host_down
from htk.whatif.contention import settle_contention
from htk.whatif.edit_uncertainty import accumulate_uncertainty
from htk.whatif.left_out_ranks import follow_left_out
from htk.whatif.missing_ranks import add_unrecorded_waits, drop_unrecorded_waits
from htk.whatif.recorded_step import Baseline
from htk.whatif.representatives import choose_representatives
from htk.whatif.step_model import StepModel, step_model
from htk.whatif.uncertainty import PROFILER
from htk.whatif.unrecorded_waits import without_unrecorded_waits

MOST_ACTIVITIES = 100_000  # of a graph, which is edited some twenty times
MOST_RANKS = 16
_MUCH_CARRIED = 0.2  # of a step
Z90 = 1.645
_OF_GAIN = 0.06  # one sigma of a gain: what edits miss of simulated jobs
_OF_STEP = 0.001
_OF_HOST = ("graphs", "host")  # edits of the host's work, which the profiler makes longer


class Gain(NamedTuple):
    """What a step becomes shorter by, in ns, with its 90 % interval."""

    ns: int
    low: int
    high: int

    @property
    def columns(self) -> Fields:
        """Return the gain as columns of an answer."""
        return {
            "step_gain_ns": self.ns,
            "step_gain_ns_lo90": self.low,
            "step_gain_ns_hi90": self.high,
        }


@dataclass(frozen=True)
class ReplayedRecording:
    """A recording as a graph that edits change."""

    start: Baseline
    steps: float  # that the replayed window holds
    about: str  # which steps and ranks are replayed, where not all
    before: Ints  # rows of a first step that is not whole: the replayed window begins behind them
    outcomes: dict[tuple[CauseEdit, ...], "_Outcome"] = field(default_factory=dict)
    models: dict[tuple[CauseEdit, ...], StepModel] = field(default_factory=dict)  # edited
    host_ns: dict[tuple[CauseEdit, ...], float] = field(default_factory=dict)

    @classmethod
    def from_trace(cls, trace: Trace) -> "ReplayedRecording":
        """Return the replay of a recording; MissingTable where nothing can be replayed."""
        few, of_ranks = _ranks_to_replay(trace)
        tables, _ = without_unrecorded_waits(few)
        tables = SharedTables(tables)
        steps = _drop_early_launched(tables, steps_at_hand(tables))
        graph, events, chosen = _build_step_graph(tables, steps)
        replayed = replay_graph(graph)
        judged = test_replay(tables, graph, replayed)
        if not judged.replays:
            graph = keep_unexplained(graph)
            replayed = replay_graph(graph)
            judged = test_replay(tables, graph, replayed)
        start = Baseline(tables, step_model(tables, graph), replayed, judged)
        of_steps = f"steps {format_int_ranges(chosen)}" if chosen else ""
        about = "; ".join(filter(None, (of_ranks, of_steps)))
        if graph.is_lone:
            return cls(start, 1.0, about, np.zeros(0, np.int64))
        counted = chosen or steps.numbers
        before = _rows_before(tables, events, min(counted, default=0))
        window = _recorded_window_ns(start.model, replayed.time, before)
        step = _mean_step_ns(tables, counted)
        return cls(start, window / step if step else 1.0, about, before)

    @property
    def model(self) -> StepModel:
        return self.start.model

    @property
    def gate(self) -> Gate:
        return self.start.gate

    @property
    def is_refused(self) -> bool:
        return self.start.refused

    @property
    def in_words(self) -> str:
        """Say what is replayed, and how near that comes to the recording."""
        off = f"{self.gate.step_error_pct:.1f} % off"
        return f"{self.about or 'all steps and ranks'}, {off}"

    @cached_property
    def step_ns(self) -> float:
        """What a step takes in the replay, or the recording where no steps are marked."""
        return self.without(()).window_ns / self.steps

    def without(self, changes: Sequence[CauseEdit]) -> "_Outcome":
        """Return the recording after some edits, replayed once for all who ask."""
        key = tuple(changes)
        if key not in self.outcomes:
            self.outcomes[key] = self._replay_edited(key)
        return self.outcomes[key]

    def _replay_edited(self, changes: tuple[CauseEdit, ...]) -> "_Outcome":
        start = self.start
        edited = add_unrecorded_waits(self._edit_model(changes), start.model, start.waits)
        if start.left_out is not None:
            edited = follow_left_out(edited, start.model)
        edited, replayed = settle_contention(edited, start.contention, start.concurrent_share)
        window = self._window_ns(edited, replayed) + sum(edited.added.values())
        return _Outcome(edited, replayed, window)

    def _window_ns(self, model: StepModel, replayed: Replay) -> float:
        if model.graph.is_lone:
            return float(replayed.period_ns)
        return _recorded_window_ns(model, replayed.time, self.before)

    def _edit_model(self, changes: tuple[CauseEdit, ...]) -> StepModel:
        """Return the model after some edits, each made once for all that begin with the same."""
        if not changes:
            return drop_unrecorded_waits(self.start.model, self.start.waits)
        if changes not in self.models:
            before = self._edit_model(changes[:-1])
            last = changes[-1]
            edited = last.apply(before.fresh())
            self.models[changes] = accumulate_uncertainty(before, edited, last.name, 0.0)
        return self.models[changes]

    def saved_ns(
        self, changes: Sequence[CauseEdit], before: Sequence[CauseEdit] = ()
    ) -> float | None:
        """Return what a step gains by some edits, after those of `before`; None: they do not apply
        to this recording."""
        try:
            edited = self.without((*before, *changes))
        except UsageError:
            return None
        return (self.without(before).window_ns - edited.window_ns) / self.steps

    def gain(self, changes: Sequence[CauseEdit], before: Sequence[CauseEdit] = ()) -> Gain | None:
        """Return what a step gains by some edits, after those of `before`, with its interval."""
        gain = self.saved_ns(changes, before)
        if gain is None:
            return None
        edited = self.without((*before, *changes))
        sigma = math.hypot(_OF_GAIN * gain, self._unsure_ns(edited), _OF_STEP * self.step_ns)
        followed = self._follows_host_ns(tuple(before)) - self._follows_host_ns((*before, *changes))
        of_host = all(change.name in _OF_HOST for change in changes)
        less = PROFILER * max(followed, 0.0) if of_host else 0.0
        more = PROFILER * max(-followed, 0.0)
        low = gain - Z90 * math.hypot(sigma, less)
        high = gain + Z90 * math.hypot(sigma, more)
        return Gain(round(gain), round(low), round(high))

    def _follows_host_ns(self, changes: tuple[CauseEdit, ...]) -> float:
        """Return how much of a step, after some edits, becomes longer as its host does. A profiler
        slows the host: without it the step is shorter by a part of that."""
        if changes not in self.host_ns:
            edited = self.without(changes)
            model = edited.model
            slower = replay_graph(model.graph, *slow_host_down(model))
            window = edited.window_ns - sum(model.added.values())
            longer = self._window_ns(model, slower) - window
            self.host_ns[changes] = float(np.clip(longer / SLOWER_HOST, 0, window)) / self.steps
        return self.host_ns[changes]

    def _unsure_ns(self, edited: "_Outcome") -> float:
        """Return one standard deviation of what edits leave uncertain, in ns of a step."""
        total = self.gate.step_error_pct / 100 * self.step_ns
        for sigma in edited.model.edge_sigma.values():
            more = np.rint(sigma).astype(np.int64)
            model = edited.model
            ends = periods_beside(model.graph, model.weight, more, model.wrap_weight)
            total = math.hypot(total, abs(ends[0] - ends[1]) / 2 / self.steps)
        return total

    def lost_ns(self, changes: Sequence[CauseEdit]) -> float:
        """Return how long of a step GPUs do not compute."""
        edited = self.without(changes)
        times = BusyDevices.from_graph(edited.model.graph, edited.replayed.time)
        return max(edited.window_ns - times.computing, 0.0) / self.steps


def replay_if_trusted(recording: Trace | None) -> tuple[ReplayedRecording | None, str]:
    """Return the recording replayed, and how; None and why not, where it cannot be."""
    if recording is None:
        return None, "no recording to replay"
    try:
        replayed = ReplayedRecording.from_trace(recording)
    except HtkError as error:
        return None, f"recorded time only: {error}"
    if replayed.is_refused:
        return None, f"recorded time only: {replayed.gate.verdict}"
    return replayed, replayed.in_words


class _Outcome(NamedTuple):
    model: StepModel
    replayed: Replay
    window_ns: float


def _recorded_window_ns(model: StepModel, time: Ints, before: Ints) -> float:
    """Return what a rank's activities take from the end of those before, or the first's start, to
    the last, mean over ranks."""
    graph = model.graph
    ranks = Groups.by_keys(graph.activities.rank)
    begin = ranks.min(time[graph.start])
    ends = np.full(len(graph.end), np.iinfo(np.int64).min)
    ends[before] = time[graph.end[before]]
    return float((ranks.max(time[graph.end]) - np.maximum(begin, ranks.max(ends))).mean())


def _rows_before(tables: NamedTables, events: StepEvents, first: int) -> Ints:
    """Return which activities are of a step before the first that counts."""
    step = read_numbers(tables["kernel_links"]["step"], NONE)[events.activities.row]
    return np.flatnonzero((step != NONE) & (step < first))


def _drop_early_launched(tables: NamedTables, steps: Steps) -> Steps:
    """Return the steps without one that begins with much work launched before the recording, which
    is not replayed, nor what the host did meanwhile; a lone one stays."""
    windows = tables["step_windows"]
    start, end = read_times(windows)
    is_late = _replayed_from(tables) - start > _MUCH_CARRIED * (end - start)
    late = {*read_numbers(windows["step"], NONE)[is_late].tolist()}
    begun = [number for number in steps.numbers if number not in late]
    return replace(steps, numbers=begun or steps.numbers)


def _replayed_from(tables: NamedTables) -> Ints:
    """Return, of each step's window, when the first launched activity of its rank begins."""
    kernels = tables["kernels"]
    launched = read_numbers(tables["kernel_links"]["launch_row"], NONE) != NONE
    ranks = Groups.by_keys(read_numbers(kernels["rank"], NONE)[launched])
    first = ranks.min(read_numbers(kernels["start_ns"])[launched])
    rank = read_numbers(tables["step_windows"]["rank"], NONE)
    return take_or(first, row_of(ranks.keys, rank[:, None]), np.iinfo(np.int64).min)


def _mean_step_ns(tables: NamedTables, steps: list[int]) -> float:
    """Return what the replay has of whole steps, mean over ranks."""
    windows = tables["step_windows"]
    start, end = read_times(windows)
    length = end - np.maximum(start, _replayed_from(tables))
    counted = read_booleans(windows["complete"]) & np.isin(
        read_numbers(windows["step"], NONE), steps
    )
    return float(length[counted].mean()) if counted.any() else 0.0


def _ranks_to_replay(trace: Trace) -> tuple[NamedTables, str]:
    if len(trace.ranks) <= MOST_RANKS:
        return trace.tables, ""
    chosen = choose_representatives(trace)
    return chosen.tables, str(chosen)


def _build_step_graph(tables: NamedTables, steps: Steps) -> tuple[Graph, StepEvents, list[int]]:
    """Return the graph of the step, where it was recorded alone, as what-ifs do; else of all."""
    if not tables["kernels"].num_rows:
        raise MissingTable("no GPU work")
    origin = int(read_numbers(tables["kernels"]["start_ns"]).min())
    if len(steps.numbers) == 1:
        events = step_events(tables, steps, steps.numbers[0], origin)
        if _can_be_replayed(events):
            graph, _ = build_of(tables, events)
            if graph.is_lone:
                return graph, events, []
    events, chosen = _events_to_replay(tables, steps, origin)
    if not _can_be_replayed(events):
        raise MissingTable("no launch is linked to its GPU activity")
    graph, _ = build_of(tables, events)
    return graph, events, chosen


def _can_be_replayed(events: StepEvents) -> bool:
    return bool(len(events.activities.start) and len(events.calls.start))


def _events_to_replay(
    tables: NamedTables, steps: Steps, origin: int
) -> tuple[StepEvents, list[int]]:
    """Return the activities and calls of all steps, or of as many as a graph has room for; without
    a step that was cut, which waits for its data as long as a whole one. With steps that are chosen
    comes the one before them: from its end on the first of them waits."""
    many = tables["kernels"].num_rows
    count = len(steps.numbers)
    windows = tables["step_windows"]
    first = min(steps.numbers, default=0)
    is_whole = read_booleans(windows["complete"]) | (read_numbers(windows["step"], NONE) < first)
    has_room = many <= MOST_ACTIVITIES and bool(is_whole.all())
    if has_room or count < 2:
        return step_events(tables, steps, None, origin), []
    chosen = _usual_run(steps, min(max(MOST_ACTIVITIES * count // many, 1), count))
    cycle = steps.cycle_for(chosen[0])
    held = [chosen[0] - 1, *chosen]
    calls = calls_of(tables, held, origin, cycle)
    activities = activities_of(tables, calls, held, origin, cycle)
    window = steps.low[chosen[0]] - origin, steps.high[chosen[-1]] - origin
    return StepEvents(None, cycle, origin, window, activities, calls), chosen


def _usual_run(steps: Steps, many: int) -> list[int]:
    """Return so many steps, one after the other, that take about as long as steps do on average."""
    periods = np.array([steps.periods[k] for k in steps.numbers], np.float64)
    runs = np.convolve(periods, np.full(many, 1 / many), "valid")
    first = int(np.abs(runs - periods.mean()).argmin())
    return steps.numbers[first : first + many]
