"""Fidelity of the graph: the untouched step is replayed and compared with the recording.

Trusted: all five tests hold. Indicative: the step replays within 5 %, its exposed communication
within 5 points, and launches of half of the GPU's time were recorded; where another step is at
hand, it is predicted within 30 %. Else refused. Nothing is scaled to fit.

Where the graph alone does not replay the step, delays that nothing recorded explains are kept as
they were (`unexplained`); then the answer is never better than indicative.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from htk.columns.arrow import numbers
from htk.columns.groups import Groups
from htk.columns.types import Ints
from htk.graph.build import Graph, StepLengths, build, step_lengths, steps_at_hand
from htk.graph.nodes import Steps
from htk.graph.overlaps import busy
from htk.graph.replay import Replay, critical, once, replay
from htk.graph.shared_tables import SharedTables
from htk.graph.unexplained import keep_unexplained

STEP_PCT = 3.0
EXPOSED_POINTS = 2.0
START_PCT = 1.0
OBSERVED_PCT = 80.0
INDICATIVE_STEP_PCT = 5.0
_CLOCKS_NS = 1_000_000  # least delay of a launch that no queue explains
_LINKED = 0.9  # of GPU time
INDICATIVE_EXPOSED_POINTS = 5.0
INDICATIVE_HELD_OUT_PCT = 30.0  # beyond, intervals say nothing
INDICATIVE_LINKED = 0.5  # of GPU time
# What a step recorded alone leaves open, in place of the held-out test: recordings of several steps
# that were cut to one came as close (simulated jobs: 0.4 %, public recordings: up to 1 %).
LONE_STEP_PCT = 1.0


@dataclass(frozen=True)
class Gate:
    """The results of the tests (None: a test could not be made)."""

    step_error_pct: float
    exposed_error_points: float
    start_error_pct: float
    held_out_error_pct: float | None
    held_out_limit_pct: float
    observed_path_pct: float
    remarks: tuple[str, ...] = ()  # on the recording: what explains a failure
    linked: float = 1.0  # share of the GPU's time whose launches were recorded
    unexplained_pct: float = 0.0  # of the step: delays on its path kept as they were

    @property
    def replays(self) -> bool:
        """Whether the graph tells when the untouched step's activities run."""
        return (
            self.step_error_pct <= STEP_PCT
            and self.exposed_error_points <= EXPOSED_POINTS
            and self.start_error_pct <= START_PCT
        )

    @property
    def failures(self) -> list[str]:
        """The tests that do not hold, in words."""
        tests = (
            (self.step_error_pct <= STEP_PCT, f"step replays {self.step_error_pct:.1f} % off"),
            (
                self.exposed_error_points <= EXPOSED_POINTS,
                f"exposed communication {self.exposed_error_points:.1f} points off",
            ),
            (
                self.start_error_pct <= START_PCT,
                f"activities start {self.start_error_pct:.1f} % of the step off",
            ),
            (
                self.observed_path_pct >= OBSERVED_PCT,
                f"only {self.observed_path_pct:.0f} % of the critical path was recorded; record "
                "with event synchronisation enabled",
            ),
        )
        return [text for held, text in tests if not held] + self._unexplained() + self._held_out()

    def _unexplained(self) -> list[str]:
        if not self.unexplained_pct:
            return []
        return [f"{self.unexplained_pct:.2g} % of the step is delay that nothing recorded explains"]

    def _held_out(self) -> list[str]:
        if self.held_out_error_pct is None:
            return ["only one whole step was recorded, so none could be held out; record three"]
        if self.held_out_error_pct <= self.held_out_limit_pct:
            return []
        return [f"another step is predicted {self.held_out_error_pct:.1f} % off"]

    @property
    def verdict(self) -> str:
        failures = self.failures
        if not failures:
            return "trusted"
        close = (
            self.step_error_pct <= INDICATIVE_STEP_PCT
            and self.exposed_error_points <= INDICATIVE_EXPOSED_POINTS
            and (self.held_out_error_pct or 0.0) <= INDICATIVE_HELD_OUT_PCT
            and self.linked >= INDICATIVE_LINKED
        )
        return ("indicative: " if close else "refused: ") + "; ".join([*failures, *self.remarks])

    @property
    def figures(self) -> dict[str, float | None]:
        """Return the measured figures of the tests."""
        held = self.held_out_error_pct
        return {
            "step_error_pct": round(self.step_error_pct, 3),
            "exposed_error_points": round(self.exposed_error_points, 3),
            "start_error_pct": round(self.start_error_pct, 3),
            "held_out_error_pct": None if held is None else round(held, 3),
            "observed_path_pct": round(self.observed_path_pct, 1),
            "unexplained_pct": round(self.unexplained_pct, 1),
        }

    @property
    def residual_pct(self) -> float:
        """Return the error that a prediction inherits from the replay, in %."""
        held = LONE_STEP_PCT if self.held_out_error_pct is None else self.held_out_error_pct
        return max(self.step_error_pct, held)


def gate(tables: Mapping[str, pa.Table], graph: Graph, replayed: Replay) -> Gate:
    """Return all five tests."""
    period = graph.period_ns
    low = graph.window[0]
    step = abs(replayed.first_end - low - period)
    steps = steps_at_hand(tables)
    periods = np.array([steps.periods[k] for k in steps.numbers[1:] or steps.numbers], np.float64)
    cv = 100 * float(periods.std() / periods.mean()) if len(periods) > 1 else 0.0
    starts = np.abs(replayed.time[graph.start] - graph.activities.start)
    seen = exposed(graph, graph.time)
    again = exposed(graph, replayed.time)
    return Gate(
        step_error_pct=100 * step / period,
        exposed_error_points=100 * abs(again - seen) / period,
        start_error_pct=100 * float(np.quantile(starts, 0.9)) / period,
        held_out_error_pct=_held_out(tables, graph, steps),
        held_out_limit_pct=max(3.0, 2 * cv),
        observed_path_pct=_observed_path(graph, replayed),
        remarks=_remarks(tables, graph),
        linked=_linked(tables),
        unexplained_pct=_unexplained_pct(graph, replayed),
    )


def _linked(tables: Mapping[str, pa.Table]) -> float:
    """Return the share of GPU time whose launches were recorded."""
    kernels, links = tables["kernels"], tables["kernel_links"]
    length = numbers(kernels["end_ns"]) - numbers(kernels["start_ns"])
    linked_ns = int(length[numbers(links["launch_row"], -1) >= 0].sum())
    return linked_ns / max(int(length.sum()), 1)


def _remarks(tables: Mapping[str, pa.Table], graph: Graph) -> tuple[str, ...]:
    """Return what is wrong with a recording that is not trusted."""
    remarks = []
    if graph.step is None:
        remarks.append("no steps are marked: call profiler.step() after each")
    launched = np.flatnonzero(graph.activities.call >= 0)
    calls = graph.calls.start[graph.activities.call[launched]]
    delay = graph.activities.start[launched] - calls
    least = int(delay.min()) if len(delay) else 0
    if abs(least) > _CLOCKS_NS:
        remarks.append(
            f"no activity starts within {abs(least) / 1e6:.0f} ms of its launch: the clocks of CPU "
            "and GPU differ"
        )
    linked = _linked(tables)
    if linked < _LINKED:
        remarks.append(f"launches of only {100 * linked:.0f} % of GPU time were recorded")
    return tuple(remarks)


def exposed(graph: Graph, time: Ints) -> float:
    """Return the exposed communication, mean over devices, in ns."""
    compute, also_comm, _ = _busy(graph, time)
    return (also_comm - compute) / max(len(graph.of_devices), 1)


def exposed_and_idle(graph: Graph, time: Ints, period: int) -> tuple[float, float]:
    """Return the exposed communication, and the time of a step in which a device runs nothing; mean
    over devices, in ns."""
    devices = max(len(graph.of_devices), 1)
    compute, also_comm, anything = _busy(graph, time)
    return (also_comm - compute) / devices, max(period - anything / devices, 0.0)


def _busy(graph: Graph, time: Ints) -> tuple[int, int, int]:
    """Return how long devices compute, compute or communicate, and do anything, in ns."""
    of_devices = [busy(time, sets) for sets in graph.of_devices]
    compute, also_comm, anything = (
        sum(lengths) for lengths in zip((0, 0, 0), *of_devices, strict=True)
    )
    return compute, also_comm, anything


def _observed_path(graph: Graph, replayed: Replay) -> float:
    """Return the share of the critical path that was observed, in %: what runs on it counts where
    the edge that leads there was recorded."""
    path = critical(graph, replayed.time)
    length = _within_step(graph, replayed, path)
    total = int(length.sum())
    observed = graph.observed[path]
    runs = graph.edges("run", "transfer", "call")[path]
    led = np.append(True, observed[:-1])
    seen = observed & (led | ~runs)
    return 100 * float(length[seen].sum()) / total if total else 0.0


def _unexplained_pct(graph: Graph, replayed: Replay) -> float:
    """Return what kept delays make of the step, along its critical path."""
    if not len(graph.unexplained):
        return 0.0
    path = critical(graph, replayed.time)
    length = np.minimum(_within_step(graph, replayed, path), graph.unexplained[path])
    return 100 * float(length.sum()) / graph.period_ns


def _within_step(graph: Graph, replayed: Replay, path: Ints) -> Ints:
    """Return how long each edge of a path lasts, without what lies before the step's window."""
    end = replayed.time[graph.dst[path]]
    return np.maximum(np.minimum(graph.weight[path], end - graph.window[0]), 0)


def held_out(steps: Steps, step: int | None) -> int | None:
    """Return the step that the graph of a step is tested with: its neighbour; None: there is
    none."""
    others = [k for k in (steps.numbers[1:] or steps.numbers) if k != step]
    return None if step is None else min(others, key=lambda k: (abs(k - step), k), default=None)


def _held_out(tables: Mapping[str, pa.Table], graph: Graph, steps: Steps) -> float | None:
    """Return by how many % this step's graph mispredicts its neighbour from that one's
    durations."""
    neighbour = held_out(steps, graph.step)
    if neighbour is None:
        return None
    other = step_lengths(tables, neighbour)
    weight, wraps = _with_durations(graph, other)
    shift = graph.window[0] - other.window[0]
    alike = len(graph.wrap_seen) == len(other.wrap_seen)
    seen = other.wrap_seen + shift if alike else graph.wrap_seen
    time = once(graph, weight, wraps, seen)
    predicted = int(time[graph.end].max()) - graph.window[0]
    return 100 * abs(predicted - other.period_ns) / other.period_ns


def _with_durations(graph: Graph, other: StepLengths) -> tuple[Ints, Ints]:
    """Return the graph's weights, with lengths of activities and CPU times of the other's."""
    weight, wraps = graph.weight.copy(), graph.wrap_weight.copy()
    own, theirs = (_keys(g.activities.lane, g.activities.name) for g in (graph, other))
    here, there = _paired(own, theirs)
    for kinds in (("run",), ("transfer",)):
        _copy(weight, graph, other, kinds, graph.end[here], other.end[there])
    own, theirs = (_keys(g.calls.lane, g.calls.name) for g in (graph, other))
    here, there = _paired(own, theirs)
    _copy(
        weight,
        graph,
        other,
        ("host_gap", "handover"),
        graph.call_start[here],
        other.call_start[there],
    )
    _copy(weight, graph, other, ("call",), graph.call_end[here], other.call_end[there])
    own, theirs = (_keys(g.activities.lane, g.activities.name) for g in (graph, other))
    _copy_arrivals(weight, graph, other, *_paired(own, theirs))
    if len(wraps) == len(other.wrap_weight):
        wraps = other.wrap_weight.copy()
    return _with_room(weight, graph), wraps


def _with_room(weight: Ints, graph: Graph) -> Ints:
    """Return weights whose waits for a running kernel scale with its new length."""
    runs, room = np.flatnonzero(graph.edges("run")), np.flatnonzero(graph.edges("capacity"))
    run_of = np.full(len(graph.time), -1, np.int64)
    run_of[graph.src[runs]] = runs
    beside = room[run_of[graph.src[room]] >= 0]  # those that hang on a start
    run = run_of[graph.src[beside]]
    part = graph.weight[beside] / np.maximum(graph.weight[run], 1)
    weight[beside] = np.rint(part * weight[run])
    return weight


def _copy(
    weight: Ints,
    graph: Graph,
    other: StepLengths,
    kinds: tuple[str, ...],
    heads: Ints,
    others: Ints,
) -> None:
    """Copy weights of the edges of these kinds into nodes of the one, from those of the other."""
    into = np.full(len(graph.time), -1, np.int64)
    from_ = np.full(int(other.dst.max(initial=int(others.max(initial=-1)))) + 1, -1, np.int64)
    own, theirs = np.flatnonzero(graph.edges(*kinds)), np.flatnonzero(other.edges(*kinds))
    into[graph.dst[own]] = own
    from_[other.dst[theirs]] = theirs
    a, b = into[heads], from_[others]
    in_both = (a >= 0) & (b >= 0)
    weight[a[in_both]] = other.weight[b[in_both]]


def _copy_arrivals(weight: Ints, graph: Graph, other: StepLengths, here: Ints, there: Ints) -> None:
    """Copy how long after each activity the last of those came that follow its rank."""
    behind = np.full(len(other.activities.start), -1, np.int64)
    arrive = np.flatnonzero(other.edges("arrive"))
    of_start = np.full(int(other.start.max(initial=-1)) + 1, -1, np.int64)
    of_start[other.start] = np.arange(len(other.start))
    behind[of_start[other.src[arrive]]] = other.weight[arrive]
    own = np.full(len(graph.time), -1, np.int64)
    arrive = np.flatnonzero(graph.edges("arrive"))
    own[graph.src[arrive]] = arrive
    edge, length = own[graph.start[here]], behind[there]
    in_both = (edge >= 0) & (length >= 0)
    weight[edge[in_both]] = length[in_both]


def _keys(lane: Ints, name: Ints) -> Ints:
    """Return lane, name, and how many of that name came before on the lane."""
    return np.column_stack([lane, name, Groups.by_keys([lane, name]).rank_within()])


def _paired(own: Ints, theirs: Ints) -> tuple[Ints, Ints]:
    """Return the rows with the same key."""
    both = Groups.by_keys(np.concatenate([own, theirs]))
    row_of_key = np.full(len(both), -1, np.int64)
    row_of_key[both.group_ids[len(own) :]] = np.arange(len(theirs))
    partner = row_of_key[both.group_ids[: len(own)]]
    return np.flatnonzero(partner >= 0), partner[partner >= 0]


def gated(tables: Mapping[str, pa.Table]) -> tuple[Graph, Replay, Gate]:
    """Return the steadiest step, replayed and judged."""
    tables = SharedTables(tables)  # both graphs read the same
    graph = build(tables)
    replayed = replay(graph)
    judged = gate(tables, graph, replayed)
    if judged.replays:
        return graph, replayed, judged
    kept = keep_unexplained(graph)
    again = replay(kept)
    judged_kept = gate(tables, kept, again)
    if not kept.unexplained.any() or judged_kept.verdict.startswith("refused"):
        return graph, replayed, judged
    return kept, again, judged_kept
