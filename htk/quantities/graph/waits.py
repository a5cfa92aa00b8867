"""Waits: of streams for events, of calls for the GPU.

Taken from recorded synchronisation events where there are any; else from when things ended and
began, and then marked as inferred.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import codes_of, mark_valid, read_keys, read_numbers
from htk.base.columns.groups import Groups, row_of, rows_by_number
from htk.base.columns.order import order_by
from htk.base.columns.types import NONE, Ints, Mask, fill_none, take_or
from htk.base.mappings import NamedTables
from htk.quantities.graph.nodes import (
    FREES,
    SYNCHRONISES,
    Activities,
    LaunchCalls,
    activities_of,
    calls_of,
    collective_rows,
)
from htk.quantities.graph.pooled import ALL_AT_HAND, Pooled

_WAIT_EVENT = re.compile(r"StreamWaitEvent")
_COPY = re.compile(r"Memcpy")
_ALIGNED_NS = 50_000  # a wait for an event ends this soon after the event
_EVENT_NS = 5_000  # a longer lag after an event has another cause
_SOON = 64  # launches: what a wait is for follows it this soon
_INSTANCES = 3  # so often must one stream be seen to wait for another, before it is believed
_NODE_BITS = (1 << 32) - 1  # above them some profilers write the graph
_RETURNS_NS = 200_000  # a call returns this soon after what it waited for


@dataclass(frozen=True)
class Wait:
    """Activity `src` ends before activity or call `dst`, by at least `lag`."""

    src: Ints
    dst: Ints
    lag: Ints
    observed: Mask

    @classmethod
    def from_rows(cls, rows: list[tuple[int, int, int, bool]]) -> "Wait":
        columns = np.array(rows, np.int64).reshape(-1, 4).T
        return cls(columns[0], columns[1], columns[2], columns[3] > 0)


def waits_for_events(
    tables: NamedTables,
    activities: Activities,
    calls: LaunchCalls,
    origin: int,
    pooled: Pooled = ALL_AT_HAND,
) -> Wait:
    """Return what the first activity launched after each cudaStreamWaitEvent waited for.

    Where that was not recorded it is inferred, and never counts as observed.
    """
    launched = _Launched.from_activities(activities, calls)
    recorded = _recorded_waits(tables, activities, calls)
    target = launched.next_on(recorded.lane, recorded.wait)
    source = launched.last_on(recorded.waited_lane, recorded.record)
    is_seen = (source >= 0) & (target >= 0) & (source != target)
    believed = _believe_waits(tables, launched, recorded.wait, origin, pooled)
    pairs = np.concatenate([np.column_stack([source, target])[is_seen], believed])
    observed = np.arange(len(pairs)) < is_seen.sum()
    first = np.sort(Groups.by_keys(pairs).first_row)  # what was recorded comes before guesses
    source, target = pairs[first].T
    lag = activities.start[target] - activities.end[source]
    lag = np.where((lag >= 0) & (lag < _EVENT_NS), lag, 0)
    return Wait(source, target, lag, observed[first])


def _believe_waits(
    tables: NamedTables,
    launched: "_Launched",
    recorded: Ints,
    origin: int,
    pooled: Pooled,
) -> Ints:
    """Return waits without a choice, and those of streams seen to wait in three instances.

    Instances are those of the step, and if they do not suffice of the whole recording.
    """
    pairs, sure = launched.guesses(recorded)
    lanes = launched.activities.lane[pairs]
    often = _mark_often_seen(lanes, lanes[launched.aligned(pairs)])
    if pooled.any("doubtful waits", not (sure | often).all()):
        calls = calls_of(tables, None, origin)
        everything = _Launched.from_activities(activities_of(tables, calls, None, origin), calls)
        every, _ = everything.guesses(np.empty(0, np.int64))
        often = _mark_often_seen(
            lanes, everything.activities.lane[every[everything.aligned(every)]]
        )
    return pairs[sure | often]


def _mark_often_seen(lanes: Ints, aligned: Ints) -> Mask:
    """Return which pairs of streams were seen in enough instances."""
    both = Groups.by_keys(np.concatenate([lanes, aligned]))
    seen = np.bincount(both.group_ids[len(lanes) :], minlength=len(both))
    return np.asarray(seen[both.group_ids[: len(lanes)]] >= _INSTANCES)


@dataclass(frozen=True)
class _Launched:
    """Activities by the time of their launch."""

    activities: Activities
    calls: LaunchCalls
    order: Ints  # activities by launch
    launched_ns: Ints  # launch start of each of those
    ranks: dict[int, tuple[Ints, Ints, Ints]]  # of one rank, by end, as asked for

    @classmethod
    def from_activities(cls, activities: Activities, calls: LaunchCalls) -> "_Launched":
        linked = np.flatnonzero(activities.call >= 0)
        issued = calls.start[activities.call[linked]]
        order = order_by(issued)
        return cls(activities, calls, linked[order], issued[order], {})

    @cached_property
    def _of_lane(self) -> Callable[[int], Ints]:
        """The positions of each stream in the order of launches."""
        return rows_by_number(self.activities.lane[self.order])

    @cached_property
    def _of_rank(self) -> Callable[[int], Ints]:
        return rows_by_number(self.activities.rank[self.order])

    def guesses(self, recorded: Ints) -> tuple[Ints, Mask]:
        """Return source and target of each unrecorded wait, and whether there was no choice."""
        waits = np.flatnonzero(self.calls.named(_WAIT_EVENT))
        waits = waits[~np.isin(waits, recorded)]
        target = self._next_of_thread(waits)
        waits = waits[target >= 0]
        target = target[target >= 0]
        source, choices = self._ended_last(waits, target)
        some = source >= 0
        return np.column_stack([source, target])[some], choices[some] == 1

    def _next_of_thread(self, waits: Ints) -> Ints:
        """Return the first activity the same thread launches soon after each call (-1: none): other
        ranks launch meanwhile."""
        target = fill_none(len(waits))
        launched_by = rows_by_number(self.calls.lane[self.activities.call[self.order]])
        waiting = rows_by_number(self.calls.lane[waits])
        for lane in np.unique(self.calls.lane[waits]).tolist():  # a few threads
            places = launched_by(lane)
            of_thread = waiting(lane)
            issued = self.calls.start[waits[of_thread]]
            nth = np.searchsorted(self.launched_ns[places], issued)
            some = nth < len(places)
            position = places[nth[some]]
            of_rank = self._of_rank(int(self.calls.rank[waits[of_thread[0]]]))
            since = np.searchsorted(self.launched_ns[of_rank], issued[some])
            soon = np.searchsorted(of_rank, position) - since < _SOON
            target[of_thread[some][soon]] = self.order[position[soon]]
        return target

    def _ended_last(self, waits: Ints, target: Ints) -> tuple[Ints, Ints]:
        """Return which of the last activities of other streams ended last before the target began.

        Only what was launched before the wait counts; -1: none. Also return how many other streams
        there were to choose from.
        """
        act = self.activities
        issued = self.calls.start[waits]
        best = fill_none(len(waits))
        ended = fill_none(len(waits))
        choices = np.zeros(len(waits), np.int64)
        for lane in np.unique(act.lane[self.order]).tolist():  # some streams
            on_lane, launched = self._by_lane(lane)
            elsewhere = np.flatnonzero(
                (act.device[target] == act.device[on_lane[0]]) & (act.lane[target] != lane)
            )
            position = np.searchsorted(launched, issued[elsewhere]) - 1
            elsewhere = elsewhere[position >= 0]
            last = on_lane[position[position >= 0]]
            choices[elsewhere] += 1
            end = act.end[last]
            better = (end <= act.start[target[elsewhere]]) & (end > ended[elsewhere])
            best[elsewhere[better]] = last[better]
            ended[elsewhere[better]] = end[better]
        return best, choices

    def aligned(self, pairs: Ints) -> Mask:
        """Return which targets began when their source had just ended."""
        source, target = pairs.T
        return np.asarray(
            self.activities.start[target] - self.activities.end[source] <= _ALIGNED_NS
        )

    def next_on(self, lane: Ints, call: Ints) -> Ints:
        """Return the first activity launched on a stream after each call; -1: none."""
        return self._find_beside(lane, call, 0)

    def last_on(self, lane: Ints, call: Ints) -> Ints:
        """Return the last activity launched on a stream before each call; -1: none."""
        return self._find_beside(lane, call, -1)

    def _find_beside(self, lane: Ints, call: Ints, step: int) -> Ints:
        activity = fill_none(len(call))
        asked_of = rows_by_number(lane)
        for number in np.unique(lane[lane >= 0]).tolist():  # some streams
            own = asked_of(number)
            rows, issued = self._by_lane(number)
            position = np.searchsorted(issued, self.calls.start[call[own]]) + step
            inside = (position >= 0) & (position < len(rows))
            activity[own[inside]] = rows[position[inside]]
        return activity

    def ended_before(self, call: int) -> int:
        """Return what ended last before the end of a call, of what its rank had launched before;
        -1: nothing. Of several, what was launched first."""
        rank = int(self.calls.rank[call])
        issued = int(self.calls.start[call])
        rows, ends, launched = self._by_end(rank)
        last = -1
        latest = 0
        over = int(np.searchsorted(ends, self.calls.end[call], "right"))
        for position in range(over - 1, -1, -1):  # few are launched behind what ended later
            if last >= 0 and ends[position] < latest:
                break
            if launched[position] < issued:
                last = int(rows[position])
                latest = int(ends[position])
        return last

    def _by_end(self, rank: int) -> tuple[Ints, Ints, Ints]:
        """Return the activities of a rank in the order of their ends, these, and their launches."""
        if rank not in self.ranks:
            own = self._of_rank(rank)
            end = self.activities.end[self.order[own]]
            own = own[order_by(end)]
            rows = self.order[own]
            self.ranks[rank] = rows, self.activities.end[rows], self.launched_ns[own]
        return self.ranks[rank]

    def _by_lane(self, lane: int) -> tuple[Ints, Ints]:
        on_lane = self._of_lane(lane)
        return self.order[on_lane], self.launched_ns[on_lane]


@dataclass(frozen=True)
class _Recorded:
    """Recorded waits: columns of one row each."""

    wait: Ints  # the call that waits
    lane: Ints  # the stream that waits; -1: it runs nothing in the step
    waited_lane: Ints
    record: Ints  # the call that recorded the event


def _recorded_waits(tables: NamedTables, activities: Activities, calls: LaunchCalls) -> _Recorded:
    """Return who waits for what in calls of cudaStreamWaitEvent, where that was profiled."""
    syncs = tables["syncs"]
    is_complete = mark_valid(syncs["wait_correlation"]) & mark_valid(syncs["correlation"])
    is_complete &= mark_valid(syncs["stream"]) & mark_valid(syncs["wait_stream"])
    rank = read_keys(syncs["rank"])[is_complete]
    own = read_keys(syncs["correlation"])[is_complete]
    other = read_keys(syncs["wait_correlation"])[is_complete]
    waits = read_keys(syncs["stream"])[is_complete]
    waited = read_keys(syncs["wait_stream"])[is_complete]
    by_call = np.column_stack([calls.rank, calls.correlation])
    wait = _last_row(by_call, np.column_stack([rank, own]))
    record = _last_row(by_call, np.column_stack([rank, other]))
    stream = read_numbers(tables["kernels"]["stream"], NONE)[activities.row]
    first = np.unique(activities.lane, return_index=True)[1]
    by_stream = np.column_stack([activities.rank, stream])[first]
    columns = [
        take_or(activities.lane[first], _last_row(by_stream, np.column_stack([rank, s])))
        for s in (waits, waited)
    ]
    complete = np.flatnonzero((wait >= 0) & (record >= 0))
    last = complete[::-1][np.sort(Groups.by_keys(wait[complete][::-1]).first_row)][::-1]
    return _Recorded(wait[last], columns[0][last], columns[1][last], record[last])


def _last_row(keys: Ints, wanted: Ints) -> Ints:
    """Return the last row of `keys` that each wanted key is; -1: none."""
    row = row_of(keys[::-1], wanted)
    return np.where(row >= 0, len(keys) - 1 - row, -1)


def find_communicator_waits(
    tables: NamedTables,
    activities: Activities,
    calls: LaunchCalls,
    pooled: Pooled = ALL_AT_HAND,
) -> Wait:
    """Return waits of collectives for the one before of their communicator, on another stream.

    NCCL runs them in order, whichever streams they are on; it counts where no two of a group's
    collectives were seen to overlap.
    """
    rows = collective_rows(tables, activities.row)
    codes, names = codes_of(tables["collectives"]["group"])
    group = take_or(codes, rows)
    members = np.flatnonzero((group >= 0) & (activities.call >= 0) & (activities.kind == 1))
    issued = calls.start[activities.call[members]]
    order = members[order_by(activities.rank[members], group[members], issued)]
    first = order[:-1]
    second = order[1:]
    same = (group[first] == group[second]) & (activities.rank[first] == activities.rank[second])
    first = first[same]
    second = second[same]
    lag = activities.start[second] - activities.end[first]
    apart = activities.lane[first] != activities.lane[second]
    overlapping = _count_names("overlaps in a group", names, group[first[lag < 0]], pooled)
    seen = _count_names("pairs of a group", names, group[first[apart]], pooled)
    keep = apart & (overlapping == 0)[group[first]] & (seen >= _INSTANCES)[group[first]]
    first = first[keep]
    second = second[keep]
    lag = lag[keep]
    return Wait(first, second, np.where(lag < _EVENT_NS, lag, 0), np.ones(len(first), bool))


def waits_for_nodes(tables: NamedTables, activities: Activities) -> Wait:
    """Return waits of graphs' nodes for others of their replay, as the profiler wrote them."""
    kernels = tables["kernels"]
    codes, texts = codes_of(kernels["waits_for_nodes"])
    waits_of_text = [_list_waited_nodes(text) for text in texts.to_pylist()]
    code = codes[activities.row]
    target = np.flatnonzero(code >= 0)
    count = np.array([len(pairs) for pairs in waits_of_text], np.int64)[code[target]]
    pairs = [waits_of_text[k] for k in code[target].tolist()]
    flat = np.array([pair for listed in pairs for pair in listed], np.int64).reshape(-1, 2)
    target = np.repeat(target, count)
    node = read_numbers(kernels["graph_node"], NONE)[activities.row] & _NODE_BITS
    places = np.column_stack([activities.device, activities.call, node])
    source = row_of(places, np.column_stack([places[target, :2], flat[:, 0] & _NODE_BITS]))
    is_seen = (source >= 0) & (source != target) & (activities.call[target] >= 0)
    source = source[is_seen]
    target = target[is_seen]
    host_ns = flat[is_seen, 1]
    gap = activities.start[target] - activities.end[source]
    return Wait(source, target, np.minimum(host_ns, np.maximum(gap, 0)), is_seen[is_seen])


def _list_waited_nodes(waits: str) -> list[list[int]]:
    """Return the nodes that are waited for, and how long the host takes between."""
    return [[node, host_ns] for node, host_ns in json.loads(waits)]


def _count_names(what: str, names: pa.Array, codes: Ints, pooled: Pooled) -> Ints:
    """Return how often each name occurs, of all ranks."""
    listed = names.to_pylist()
    own = np.bincount(codes, minlength=len(listed)).tolist()
    of_all = pooled.tally(what, {n: k for n, k in zip(listed, own, strict=True) if k})
    return np.array([of_all.get(name, 0) for name in listed], np.int64)


def find_sync_waits(activities: Activities, calls: LaunchCalls) -> Wait:
    """Return what synchronising calls and blocking copies waited for."""
    launched = _Launched.from_activities(activities, calls)
    rows: list[tuple[int, int, int, bool]] = []
    for call in np.flatnonzero(calls.named(SYNCHRONISES)).tolist():  # some tens in a step
        last = launched.ended_before(call)
        if last >= 0:
            rows += _find_return_edge(activities, calls, last, call)
    for call in np.flatnonzero(calls.named(FREES)).tolist():  # some in a step whose memory is full
        last = launched.ended_before(call)
        if last >= 0 and activities.end[last] > calls.start[call]:
            rows.append((last, call, int(calls.end[call] - activities.end[last]), True))
    copies = np.flatnonzero((activities.kind == 2) & (activities.call >= 0))
    copies = copies[calls.named(_COPY)[activities.call[copies]]]
    for copy in copies[activities.end[copies] <= calls.end[activities.call[copies]]].tolist():
        rows += _find_return_edge(activities, calls, copy, int(activities.call[copy]))
    return Wait.from_rows(rows)


def _find_return_edge(
    activities: Activities, calls: LaunchCalls, activity: int, call: int
) -> list[tuple[int, int, int, bool]]:
    """Return the edge, if the call returned soon after the activity and began before its end."""
    lag = int(calls.end[call] - activities.end[activity])
    waited = activities.end[activity] > calls.start[call]
    if not waited:
        return [(activity, call, 0, True)]
    return [(activity, call, lag, True)] if lag <= _RETURNS_NS else []
