"""The execution graph of one GPU step over all ranks: what had to happen before what.

Nodes are instants: start and end of every call that launches or synchronises, start and end of
every GPU activity, and the moment when the last rank has arrived at a collective. An edge says that
its head comes no earlier than its tail plus a weight. Nodes are numbered in an order that every
edge follows, so that one pass over the edges replays the step (`htk.quantities.graph.replay`).

Edges that lead into the next step (a thread goes on, a stream goes on) are kept apart: with them
the step repeats itself until its period is steady.
"""

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from htk.base.columns.arrow import build_numbers, read_keys, read_numbers, with_column
from htk.base.columns.groups import Groups
from htk.base.columns.order import order_by
from htk.base.columns.segments import repeat_rows
from htk.base.columns.types import Ints, Mask, fill_none
from htk.base.core.humanize import format_duration
from htk.base.errors import MissingTable
from htk.base.mappings import NamedTables
from htk.base.schema import INT64
from htk.quantities.derived.clocks import compute_corrections
from htk.quantities.graph.edges import KINDS, Edges, edges_of
from htk.quantities.graph.left_out import left_out_of
from htk.quantities.graph.lone_step import repeat_lone_step
from htk.quantities.graph.nodes import (
    Activities,
    LaunchCalls,
    Steps,
    activities_of,
    calls_of,
    steps_of_all,
)
from htk.quantities.graph.overlaps import Nodes
from htk.quantities.graph.pooled import ALL_AT_HAND, Pooled

_Scalar = TypeVar("_Scalar", bound=np.generic)

CATEGORIES = ("compute", "memory", "communication", "host", "dependencies")

EARLIEST = -(1 << 61)
_DAY_NS = 86_400_000_000_000  # ranks of one job do not run a step further apart


@dataclass(frozen=True)
class Graph:
    """One step. Times are ns since `origin_ns`, on clocks aligned where that could be done."""

    step: int | None
    origin_ns: int
    window: tuple[int, int]  # the step on the slowest rank: from the last end of the one before
    time: Ints  # of each node, as observed
    src: Ints
    dst: Ints
    weight: Ints
    kind: Ints  # of each edge, into KINDS
    observed: Mask  # edges that were recorded; the others are inferred
    wrap_src: Ints  # edges into the next step
    wrap_dst: Ints
    wrap_weight: Ints
    wrap_seen: Ints  # when the tail of each came in the step before this one
    activities: Activities
    calls: LaunchCalls
    start: Ints  # node of each activity's start
    end: Ints
    call_start: Ints  # node of each call's start
    call_end: Ints
    dropped: int  # edges that ran against the clock
    notes: tuple[str, ...] = field(default=())
    is_lone: bool = False  # nothing was recorded of the step before: see `lone_step`
    cycle: int | None = None  # of the step, where several cycles have its number
    joins: Ints = field(default_factory=lambda: np.empty(0, np.int64))  # nodes: all have arrived
    # Of each edge: ns in it that nothing recorded explains, where such delays were kept.
    unexplained: Ints = field(default_factory=lambda: np.empty(0, np.int64))

    @property
    def period_ns(self) -> int:
        return self.window[1] - self.window[0]

    @cached_property
    def ranks(self) -> list[int]:
        return [int(rank) for rank in np.unique(self.activities.rank)]

    def edges(self, *kinds: str) -> Mask:
        """Return which edges are of these kinds, made once for all who ask."""
        if kinds not in self._edges_of:
            of_kind = np.array([kind in kinds for kind in KINDS])
            self._edges_of[kinds] = _freeze_values(of_kind[self.kind])
        return self._edges_of[kinds]

    @cached_property
    def _edges_of(self) -> dict[tuple[str, ...], Mask]:
        return {}

    @cached_property
    def run_edge(self) -> Ints:
        """The edge that holds each activity's length; -1: none."""
        edge = fill_none(len(self.time))
        own = np.flatnonzero(self.edges("run", "transfer"))
        edge[self.dst[own]] = own
        return _freeze_values(edge[self.end])

    @cached_property
    def categories(self) -> NDArray[np.int8]:
        """The cause that a change of each edge counts for, into CATEGORIES."""
        by_kind = np.full(len(KINDS), CATEGORIES.index("dependencies"), np.int8)
        for kind in ("call", "host_gap", "handover", "launch"):
            by_kind[KINDS.index(kind)] = CATEGORIES.index("host")
        category = by_kind[self.kind]
        of_node = np.zeros(len(self.time), np.int8)
        of_node[self.end] = np.array([0, 2, 1])[self.activities.kind]  # compute, comm, memory
        runs = np.flatnonzero(self.edges("run", "transfer"))
        category[runs] = of_node[self.dst[runs]]
        return _freeze_values(category)

    def rows_of(self, *kinds: str) -> Ints:
        """Return the edges of these kinds, found once for all who ask."""
        if kinds not in self._rows_of:
            self._rows_of[kinds] = _freeze_values(np.flatnonzero(self.edges(*kinds)))
        return self._rows_of[kinds]

    @cached_property
    def _rows_of(self) -> dict[tuple[str, ...], Ints]:
        return {}

    def events_into(self, nodes: Ints) -> tuple[Ints, Ints]:
        """Return the event edges into these nodes: the place of the node that each leads to, and
        the node that it comes from."""
        rows, target = self._events_by_target
        first = np.searchsorted(target, nodes, "left")
        count = np.searchsorted(target, nodes, "right") - first
        whose, nth = repeat_rows(count)
        return whose, self.src[rows[first[whose] + nth]]

    @cached_property
    def _events_by_target(self) -> tuple[Ints, Ints]:
        rows = self.rows_of("event")
        rows = rows[order_by(self.dst[rows])]
        return _freeze_values(rows), _freeze_values(self.dst[rows])

    @cached_property
    def ended_at(self) -> Ints:
        """Return the activity that ends at each node; -1: none."""
        activity = fill_none(len(self.time))
        activity[self.end] = np.arange(len(self.end))
        return _freeze_values(activity)

    @cached_property
    def of_devices(self) -> list[tuple[Nodes, Nodes, Nodes]]:
        """Return where activities of each device begin and end: those that compute, those that
        communicate, others."""
        return [
            (self._build_nodes(compute), self._build_nodes(comm), self._build_nodes(others))
            for compute, comm, others in self.activities.of_devices
        ]

    def _build_nodes(self, rows: Ints) -> Nodes:
        return Nodes(_freeze_values(self.start[rows]), _freeze_values(self.end[rows]))

    @cached_property
    def ends_by_time(self) -> Ints:
        """Return where activities end, in the order of the nodes: of time, as recorded."""
        is_end = np.zeros(len(self.time), bool)
        is_end[self.end] = True
        return _freeze_values(np.flatnonzero(is_end))

    @cached_property
    def wraps_into_calls(self) -> Mask:
        """Return which edges into the next step lead to the start of a call."""
        is_call = np.zeros(len(self.time), bool)
        is_call[self.call_start] = True
        return _freeze_values(is_call[self.wrap_dst])

    @cached_property
    def pinned(self) -> Ints:
        """Return the times that a replay begins with: nodes that nothing leads to begin when they
        did; if a step repeats, only those that no wrap leads to."""
        led = np.zeros(len(self.time), bool)
        led[self.dst] = True
        led[self.wrap_dst] = True
        return _freeze_values(np.where(led, EARLIEST, self.time))


def _freeze_values(values: NDArray[_Scalar]) -> NDArray[_Scalar]:
    """Return values that many share, which nobody may write to."""
    values.flags.writeable = False
    return values


READS = (
    "kernels",
    "kernel_links",
    "launches",
    "launch_links",
    "step_windows",
    "rank_windows",
    "syncs",
    "cpu_ops",
    "op_links",
    "collectives",
    "collective_matches",
    "rank_clocks",
    "ranks",
    "annotations",
)


def steps_at_hand(tables: NamedTables) -> Steps:
    """Return the whole steps, the same on all ranks, and how long each took; of the whole job,
    where tables hold some of its ranks."""
    left_out = left_out_of(tables)
    every = tables if left_out is None else left_out.windows
    on_one_clock = (_shift_windows(every[name], every["rank_clocks"]) for name in _WINDOWS)
    return steps_of_all(*on_one_clock)


_WINDOWS = ("step_windows", "rank_windows")


def _shift_windows(windows: pa.Table, clocks: pa.Table) -> pa.Table:
    """Return windows as the graph has times: on one clock, where ranks could be put on one."""
    rank = read_keys(windows["rank"])
    start = read_numbers(windows["start_ns"])
    shift = compute_corrections(clocks, rank, start)
    for name in ("start_ns", "end_ns"):
        moved = build_numbers(read_numbers(windows[name]) + shift, INT64)
        windows = with_column(windows, name, moved)
    return windows


@dataclass(frozen=True)
class StepEvents:
    """The activities and calls of a step."""

    step: int | None
    cycle: int | None
    origin: int
    window: tuple[int, int]
    activities: Activities
    calls: LaunchCalls


def build_graph(tables: NamedTables, step: int | None = None) -> Graph:
    """Return the graph of a step; without a number that of the steadiest."""
    return build_of(tables, events_to_replay(tables, step))[0]


def build_of(
    tables: NamedTables, events: StepEvents, pooled: Pooled = ALL_AT_HAND
) -> tuple[Graph, Ints]:
    """Return the graph of a step's parts, and the match of each of its collectives."""
    edges = edges_of(tables, events.activities, events.calls, events.origin, pooled)
    is_lone = repeat_if_alone(tables, events, edges)
    graph = _number_nodes(events, edges)
    cycle = None if events.step is None else events.cycle
    return replace(graph, is_lone=is_lone, cycle=cycle), edges.join_match


def events_to_replay(tables: NamedTables, step: int | None) -> StepEvents:
    if not tables["kernels"].num_rows or not tables["launches"].num_rows:
        raise MissingTable(
            "the execution graph needs both sides of a step, CPU calls and GPU activities; record "
            "with activities=[CPU, CUDA]"
        )
    steps = steps_at_hand(tables)
    origin = int(read_numbers(tables["kernels"]["start_ns"]).min())
    events = step_events(tables, steps, steps.chosen(step), origin)
    if not len(events.activities.start) or not len(events.calls.start):
        raise MissingTable("no launch is linked to its GPU activity; the step cannot be replayed")
    refuse_other_clocks(*begins_of(events.activities))
    return events


def step_events(tables: NamedTables, steps: Steps, chosen: int | None, origin: int) -> StepEvents:
    """Return the activities and calls of a step."""
    cycle = steps.cycle_for(chosen)
    calls = calls_of(tables, chosen, origin, cycle)
    activities = activities_of(tables, calls, chosen, origin, cycle)
    return StepEvents(chosen, cycle, origin, steps.window(chosen, origin), activities, calls)


def repeat_if_alone(tables: NamedTables, events: StepEvents, edges: Edges) -> bool:
    """Repeat the step if it was recorded alone; return whether it was."""
    if events.step is None:
        return False
    step = (events.step, events.cycle)
    return repeat_lone_step(edges, tables["annotations"], events.activities, events.calls, step)


def begins_of(activities: Activities) -> tuple[Ints, Ints]:
    """Return the ranks of activities, and when the first of each begins."""
    ranks = Groups.by_keys(activities.rank)
    return ranks.keys[:, 0], ranks.min(activities.start)


def refuse_other_clocks(ranks: Ints, begin: Ints) -> None:
    """Refuse ranks of which nothing tells what ran at the same time."""
    first = int(begin.argmin())
    last = int(begin.argmax())
    apart = int(begin[last]) - int(begin[first])
    if apart > _DAY_NS:
        raise MissingTable(
            f"ranks {ranks[first]} and {ranks[last]} are on clocks "
            f"{format_duration(apart)} apart, and no collectives put them on one: a step of both "
            "cannot be put together; choose a rank, as with --ranks 0"
        )


def node_times(events: StepEvents, edges: Edges) -> Ints:
    """Return when each node came."""
    activities = events.activities
    calls = events.calls
    return np.concatenate(
        [activities.start, activities.end, calls.start, calls.end, edges.join_time]
    )


def node_order(events: StepEvents, edges: Edges) -> Ints:
    """Return the order of nodes of one time: activities, each with its start first, then arrivals,
    then calls."""
    n = len(events.activities.start)
    c = len(events.calls.start)
    joins = len(edges.join_time)
    activities = 2 * np.arange(n)
    calls = 2 * np.arange(c) + 2 * n + joins
    return np.concatenate([activities, activities + 1, calls, calls + 1, np.arange(joins) + 2 * n])


def _number_nodes(events: StepEvents, edges: Edges) -> Graph:
    """Number the nodes by time, so that every edge leads upwards; drop edges that cannot."""
    n = len(events.activities.start)
    c = len(events.calls.start)
    time = node_times(events, edges)
    tie_order = node_order(events, edges)
    nodes = np.empty(len(time), np.int64)
    nodes[tie_order] = np.arange(len(time))
    nodes = nodes[order_by(time[nodes])]
    number = np.empty(len(time), np.int64)
    number[nodes] = np.arange(len(time))
    src = number[edges.src]
    dst = number[edges.dst]
    rows = np.flatnonzero(src < dst)
    rows = rows[order_by(dst[rows])]
    return Graph(
        step=events.step,
        origin_ns=events.origin,
        window=events.window,
        time=time[nodes],
        src=src[rows],
        dst=dst[rows],
        weight=edges.weight[rows],
        kind=edges.kind[rows],
        observed=edges.observed[rows],
        wrap_src=number[edges.wrap_src],
        wrap_dst=number[edges.wrap_dst],
        wrap_weight=edges.wrap_weight,
        wrap_seen=edges.wrap_seen,
        activities=events.activities,
        calls=events.calls,
        start=number[:n],
        end=number[n : 2 * n],
        call_start=number[2 * n : 2 * n + c],
        call_end=number[2 * n + c : 2 * n + 2 * c],
        dropped=len(src) - len(rows),
        notes=edges.notes,
        joins=number[2 * (n + c) :],
    )
