"""Edges of the execution graph, kind by kind, each with where its weight comes from.

Nodes are numbered here as activity starts, activity ends, call starts, call ends, arrivals;
`htk.quantities.graph.build` numbers them anew.
"""

from dataclasses import dataclass, field

import numpy as np

from htk.base.columns.arrow import mark_valid, read_numbers
from htk.base.columns.groups import Groups, event_keys, row_of
from htk.base.columns.types import NO_TIME, NONE, Ints, Mask, fill_none, take_or
from htk.base.mappings import NamedTables
from htk.quantities.derived.messages import peers_of_calls
from htk.quantities.graph.handovers import find_handovers
from htk.quantities.graph.left_out import left_out_of
from htk.quantities.graph.nodes import FREES, Activities, LaunchCalls, ends_of_lanes
from htk.quantities.graph.pooled import ALL_AT_HAND, Pooled
from htk.quantities.graph.queue import full_queues
from htk.quantities.graph.shared_tables import find_once
from htk.quantities.graph.sm_contention import waits_for_room
from htk.quantities.graph.waits import (
    Wait,
    find_communicator_waits,
    find_sync_waits,
    waits_for_events,
    waits_for_nodes,
)

KINDS = (
    "run",  # an activity's own length
    "transfer",  # of a collective, from the last rank's arrival
    "arrive",  # of a rank at a collective
    "call",  # a call's own length
    "host_gap",  # CPU time between two calls of a thread
    "handover",  # from one thread to another and back: backward on the autograd thread
    "launch",  # from the start of a call to the activity
    "stream",  # order on a stream
    "event",  # a stream waits for another
    "sync",  # a call waits for the GPU
    "queue",  # a launch waits for room in the queue
    "capacity",  # a kernel waits for room on the GPU, which one of another stream fills
)
QUEUED_GAP_NS = 20_000  # longer gaps on a busy stream have another cause than the stream
LAUNCH_NS = 100_000  # a longer delay of a launch on an idle stream has another cause


@dataclass
class Edges:
    """Edges under construction."""

    activities: int
    calls: int
    join_time: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    parts: list[tuple[Ints, Ints, Ints, int, Mask]] = field(default_factory=list)
    wraps: list[tuple[Ints, Ints, Ints, Ints]] = field(default_factory=list)
    notes: tuple[str, ...] = ()
    pooled: Pooled = ALL_AT_HAND
    join_match: Ints = field(default_factory=lambda: np.empty(0, np.int64))  # of each arrival

    def add(self, kind: str, src: Ints, dst: Ints, weight: Ints, observed: Mask | bool) -> None:
        seen = np.broadcast_to(np.asarray(observed), src.shape)
        self.parts.append((src, dst, weight.astype(np.int64), KINDS.index(kind), seen))

    def wrap(self, src: Ints, dst: Ints, weight: Ints, seen: Ints) -> None:
        self.wraps.append((src, dst, weight, seen))

    # Node numbers.
    def start(self, rows: Ints) -> Ints:
        return rows

    def end(self, rows: Ints) -> Ints:
        return rows + self.activities

    def call_start(self, rows: Ints) -> Ints:
        return rows + 2 * self.activities

    def call_end(self, rows: Ints) -> Ints:
        return rows + 2 * self.activities + self.calls

    def join(self, rows: Ints) -> Ints:
        return rows + 2 * (self.activities + self.calls)

    def _join_column(self, position: int) -> Ints:
        return np.concatenate([p[position] for p in self.parts])

    @property
    def src(self) -> Ints:
        return self._join_column(0)

    @property
    def dst(self) -> Ints:
        return self._join_column(1)

    @property
    def weight(self) -> Ints:
        return self._join_column(2)

    @property
    def kind(self) -> Ints:
        return np.concatenate([np.full(len(p[0]), p[3], np.int64) for p in self.parts])

    @property
    def observed(self) -> Mask:
        return np.concatenate([p[4] for p in self.parts])

    def kind_is(self, kind: str) -> Mask:
        return np.asarray(self.kind == KINDS.index(kind))

    def _wrap_column(self, position: int) -> Ints:
        return np.concatenate([w[position] for w in self.wraps] + [np.empty(0, np.int64)])

    @property
    def wrap_src(self) -> Ints:
        return self._wrap_column(0)

    @property
    def wrap_dst(self) -> Ints:
        return self._wrap_column(1)

    @property
    def wrap_weight(self) -> Ints:
        return self._wrap_column(2)

    @property
    def wrap_seen(self) -> Ints:
        return self._wrap_column(3)


def edges_of(
    tables: NamedTables,
    activities: Activities,
    calls: LaunchCalls,
    origin: int,
    pooled: Pooled = ALL_AT_HAND,
) -> Edges:
    edges = Edges(len(activities.start), len(calls.start), pooled=pooled)
    joined = _add_collective_edges(edges, tables, activities, origin)
    _add_run_edges(edges, activities, joined)
    _add_stream_edges(edges, activities, calls)
    _add_launch_edges(edges, activities, calls)
    held = _add_queue_edges(edges, tables, activities, calls, origin)
    events = waits_for_events(tables, activities, calls, origin, pooled)
    _add_wait_edges(edges, "event", edges.end(events.src), edges.start(events.dst), events)
    ordered = find_communicator_waits(tables, activities, calls, pooled)
    _add_wait_edges(edges, "event", edges.end(ordered.src), edges.start(ordered.dst), ordered)
    nodes = waits_for_nodes(tables, activities)
    _add_wait_edges(edges, "event", edges.end(nodes.src), edges.start(nodes.dst), nodes)
    blocked = _add_sync_edges(edges, activities, calls)
    cut = _add_thread_edges(edges, tables, calls, blocked, held)
    _add_room_edges(edges, activities, calls)
    if cut:
        edges.notes += (f"{cut} waits of a thread for another one inferred from when each ran",)
    return edges


def lengths_of(
    tables: NamedTables,
    activities: Activities,
    calls: LaunchCalls,
    origin: int,
    pooled: Pooled = ALL_AT_HAND,
) -> Edges:
    """Return of a step's edges those that hold what activities and the CPU took, and those into
    the next step; in the order of all."""
    edges = Edges(len(activities.start), len(calls.start), pooled=pooled)
    _add_run_edges(edges, activities, _add_collective_edges(edges, tables, activities, origin))
    _add_stream_edges(edges, activities, calls)
    held = _add_queue_edges(edges, tables, activities, calls, origin)
    _add_thread_edges(edges, tables, calls, _add_sync_edges(edges, activities, calls), held)
    return edges


def _add_wait_edges(edges: Edges, kind: str, src: Ints, dst: Ints, wait: Wait) -> None:
    edges.add(kind, src, dst, wait.lag, wait.observed)


def _add_run_edges(edges: Edges, activities: Activities, joined: Mask) -> None:
    alone = np.flatnonzero(~joined)
    edges.add("run", edges.start(alone), edges.end(alone), activities.length[alone], True)


def _add_collective_edges(
    edges: Edges, tables: NamedTables, activities: Activities, origin: int
) -> Mask:
    """Members of a collective end when its transfer is done, which begins with the last arrival."""
    joined = np.zeros(len(activities.start), bool)
    collectives = tables["collectives"]
    matches = tables["collective_matches"]
    if not collectives.num_rows:
        return joined
    ours = event_keys(tables["kernels"])[activities.row]
    activity = row_of(ours, event_keys(collectives))
    is_matched = mark_valid(collectives["event"]) & (activity >= 0)
    is_matched &= read_numbers(matches["match"], NONE) >= 0
    is_matched &= peers_of_calls(collectives["messages"]) < 2  # others wait for their peers alone
    member = activity[is_matched]
    match = read_numbers(matches["match"], NONE)[is_matched]
    member, first = np.unique(member, return_index=True)
    match = match[first]
    followed, behind = _find_followers(tables, activities, member, match, origin)
    members = Groups.by_keys(match)
    several = edges.pooled.meets(members.keys[:, 0], members.count)
    several = (several | (members.max(followed) > 0))[members.group_ids]
    member = member[several]
    match = match[several]
    behind = behind[several]
    if not len(member):
        return joined
    members = Groups.by_keys(match)
    edges.join_match = members.keys[:, 0]
    arrived = members.max(activities.start[member] + behind)
    edges.join_time = arrived = edges.pooled.arrived(edges.join_match, arrived)
    nodes = edges.join(members.group_ids)
    edges.add("arrive", edges.start(member), nodes, behind, True)
    left = np.maximum(activities.end[member] - arrived[members.group_ids], 0)
    edges.add("transfer", nodes, edges.end(member), left, True)
    joined[member] = True
    return joined


def _find_followers(
    tables: NamedTables, activities: Activities, member: Ints, match: Ints, origin: int
) -> tuple[Ints, Ints]:
    """Return whether ranks that are left out follow each member, and how long after it the last of
    them arrived, in ns."""
    left_out = left_out_of(tables)
    if left_out is None:
        none = np.zeros(len(member), np.int64)
        return none, none
    latest = left_out.latest(match, activities.rank[member])
    followed = latest > NO_TIME
    behind = np.maximum(latest - origin - activities.start[member], 0)
    return followed.astype(np.int64), np.where(followed, behind, 0)


def _add_stream_edges(edges: Edges, activities: Activities, calls: LaunchCalls) -> None:
    """One after the other; where neighbours overlapped (programmatic launch), as far as seen."""
    here = np.arange(1, len(activities.start))
    here = here[activities.lane[here] == activities.lane[here - 1]]
    before = here - 1
    gap = activities.start[here] - activities.end[before]
    launched = take_or(calls.start, activities.call[here], NO_TIME)
    ready = (activities.call[here] < 0) | (launched < activities.end[before])
    cheap = gap[(gap >= 0) & ready & (gap <= QUEUED_GAP_NS)]
    least = edges.pooled.low("gap of a stream", cheap)
    own = ready & (gap <= QUEUED_GAP_NS)
    weight = np.where(own, gap, least)
    after = gap >= 0
    edges.add("stream", edges.end(before[after]), edges.start(here[after]), weight[after], True)
    beside = ~after
    lead = activities.start[here] - activities.start[before]
    edges.add("stream", edges.start(before[beside]), edges.start(here[beside]), lead[beside], True)
    firsts, lasts = ends_of_lanes(activities.lane)
    has_previous = activities.before[firsts] >= 0
    firsts = firsts[has_previous]
    lasts = lasts[has_previous]
    seen = activities.before[firsts]
    close = np.clip(activities.start[firsts] - seen, 0, least)
    edges.wrap(edges.end(lasts), edges.start(firsts), close, seen)


def _add_launch_edges(edges: Edges, activities: Activities, calls: LaunchCalls) -> None:
    """From the start of the call. On an idle stream the delay seen, unless it has another cause."""
    linked = np.flatnonzero(activities.call >= 0)
    call = activities.call[linked]
    delay = activities.start[linked] - calls.start[call]
    end_before = np.roll(activities.end, 1)
    firsts = ends_of_lanes(activities.lane)[0]
    before = activities.before[firsts]
    end_before[firsts] = np.where(before < 0, NO_TIME, before)  # times may be negative
    idle = (end_before[linked] <= calls.start[call]) & (delay >= 0)
    seen = delay[idle & (delay <= LAUNCH_NS)]
    least = edges.pooled.low("launch", seen)
    most = 4 * edges.pooled.middle("launch", seen)
    weight = np.where(idle & (delay <= most), delay, np.minimum(np.maximum(delay, 0), least))
    edges.add("launch", edges.call_start(call), edges.start(linked), weight, True)


def _add_queue_edges(
    edges: Edges,
    tables: NamedTables,
    activities: Activities,
    calls: LaunchCalls,
    origin: int,
) -> Mask:
    """Let each launch return once the activity that lies a full queue before it has started.

    Return which calls were held up so.
    """
    held = np.zeros(len(calls.start), bool)
    node = fill_none(tables["kernels"].num_rows)
    node[activities.row] = np.arange(len(activities.row))
    for queue in find_once(tables, "queues", lambda: full_queues(tables)):
        ours = np.flatnonzero(node[queue.kernels] >= 0)
        held[activities.call[node[queue.kernels[ours]]][queue.blocked[ours]]] = True
        head = ours - queue.capacity
        returned = calls.end[activities.call[node[queue.kernels[ours]]]]
        waited = (head >= 0) & (queue.start[head] - origin <= returned)
        tails = node[queue.kernels[ours[waited]]]
        heads = node[queue.kernels[head[waited]]]
        _queue_edges(edges, activities, tails, heads, queue.start[head[waited]] - origin)
    return held


def _queue_edges(
    edges: Edges, activities: Activities, tails: Ints, heads: Ints, seen: Ints
) -> None:
    """Within the step, and from the step before: there the same place of this one stands for it."""
    inside = heads >= 0
    node = edges.call_end(activities.call[tails])
    zero = np.zeros(len(tails), np.int64)
    edges.add("queue", edges.start(heads[inside]), node[inside], zero[inside], True)
    across = np.flatnonzero(~inside)
    if not len(across):
        return
    own = np.flatnonzero(activities.device == activities.device[tails[0]])  # each has its queue
    alike = own[np.argsort(activities.start[own], kind="stable")[-len(across) :]]
    ordered = across[np.argsort(seen[across], kind="stable")]
    edges.wrap(edges.start(alike), node[ordered], zero[ordered], seen[ordered])


def _add_room_edges(edges: Edges, activities: Activities, calls: LaunchCalls) -> None:
    """Starts that nothing else explains, where another stream's kernel filled the GPU."""
    time = np.concatenate(
        [activities.start, activities.end, calls.start, calls.end, edges.join_time]
    )
    ready = np.full(edges.activities, np.iinfo(np.int64).min)
    for src, dst, weight, _, _ in edges.parts:
        into = np.flatnonzero(dst < edges.activities)  # starts of activities
        heads = dst[into]
        lasts = time[src[into]] + weight[into]
        upward = lasts <= time[heads]
        np.maximum.at(ready, heads[upward], lasts[upward])
    ended, running = waits_for_room(activities, calls, ready)
    _add_wait_edges(edges, "capacity", edges.end(ended.src), edges.start(ended.dst), ended)
    _add_wait_edges(edges, "capacity", edges.start(running.src), edges.start(running.dst), running)


def _add_sync_edges(edges: Edges, activities: Activities, calls: LaunchCalls) -> Ints:
    """Return how long each call would take if it did not wait for the GPU (NO_TIME: it does not):
    nothing, but for those that free memory after the wait."""
    waits = find_sync_waits(activities, calls)
    blocked = activities.end[waits.src] > calls.start[waits.dst]
    own = np.full(len(calls.start), NO_TIME, np.int64)
    frees = calls.named(FREES)[waits.dst]
    own[waits.dst[blocked]] = np.where(frees, waits.lag, 0)[blocked]
    _add_wait_edges(edges, "sync", edges.end(waits.src), edges.call_end(waits.dst), waits)
    return own


def _add_thread_edges(
    edges: Edges, tables: NamedTables, calls: LaunchCalls, unblocked: Ints, held: Mask
) -> int:
    """Calls of a thread follow each other after the time that the CPU needed between them."""
    every = np.arange(len(calls.start))
    length = calls.end - calls.start
    blocked = unblocked != NO_TIME
    free = length[~blocked & ~held]
    usual = edges.pooled.middle("call", free)
    own = np.where(blocked, unblocked, np.where(held, usual, length))
    edges.add("call", edges.call_start(every), edges.call_end(every), own, True)
    handed = find_handovers(tables, calls)
    here = every[1:][(calls.lane[1:] == calls.lane[:-1]) & ~np.isin(every[1:], handed.cut)]
    nested = calls.start[here] < calls.end[here - 1]
    think = calls.start[here] - calls.end[here - 1]
    plain = ~nested
    edges.add(
        "host_gap",
        edges.call_end(here[plain] - 1),
        edges.call_start(here[plain]),
        think[plain],
        True,
    )
    lead = calls.start[here] - calls.start[here - 1]
    edges.add(
        "host_gap",
        edges.call_start(here[nested] - 1),
        edges.call_start(here[nested]),
        lead[nested],
        True,
    )
    edges.add(
        "handover",
        edges.call_end(handed.src),
        edges.call_start(handed.dst),
        calls.start[handed.dst] - calls.end[handed.src],
        handed.observed,
    )
    firsts, lasts = ends_of_lanes(calls.lane)
    has_previous = (calls.before[firsts] >= 0) & ~np.isin(firsts, handed.cut)
    firsts = firsts[has_previous]
    lasts = lasts[has_previous]
    seen = calls.before[firsts]
    edges.wrap(edges.call_end(lasts), edges.call_start(firsts), calls.start[firsts] - seen, seen)
    return int((~handed.observed).sum())
