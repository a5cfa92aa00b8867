"""Who waited for whom: streams for events, calls for the GPU, threads for each other.

Taken from recorded synchronisation events where there are any; else from when things ended and
began, and then marked as inferred.
"""

import re
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from htk.columns.arrow import codes_of, numbers, valid
from htk.columns.types import Ints, Mask
from htk.graph.nodes import (
    SYNCHRONISES,
    Activities,
    LaunchCalls,
    activities_of,
    calls_of,
    collective_rows,
)

_WAIT_EVENT = re.compile(r"StreamWaitEvent")
_COPY = re.compile(r"Memcpy")
_ALIGNED_NS = 50_000  # a wait for an event ends this soon after the event
_EVENT_NS = 5_000  # a longer lag after an event has another cause
_SOON = 64  # launches: what a wait is for follows it this soon
_INSTANCES = 3  # so often must one stream be seen to wait for another, before it is believed
_RETURNS_NS = 200_000  # a call returns this soon after what it waited for
_HANDED_NS = 100_000  # shorter pauses of a thread are not looked at for a handover
_HANDED_SHARE = 0.5  # of the pause, in which the other thread was at work


@dataclass(frozen=True)
class Wait:
    """Activity `src` ends before activity or call `dst`, by at least `lag`."""

    src: Ints
    dst: Ints
    lag: Ints
    observed: Mask

    @classmethod
    def of(cls, rows: list[tuple[int, int, int, bool]]) -> "Wait":
        columns = np.array(rows, np.int64).reshape(-1, 4).T
        return cls(columns[0], columns[1], columns[2], columns[3] > 0)


@dataclass(frozen=True)
class Handovers:
    """Call `dst` of one thread begins once call `src` of another is done."""

    src: Ints
    dst: Ints
    observed: Mask
    cut: Ints  # calls that no longer follow the one before on their own thread


def waits_for_events(
    tables: Mapping[str, pa.Table], activities: Activities, calls: LaunchCalls, origin: int
) -> Wait:
    """Return what the first activity launched after each cudaStreamWaitEvent waited for.

    Where that was not recorded it is inferred, and never counts as observed.
    """
    launched = _Launched.of(activities, calls)
    recorded = _recorded_waits(tables, activities, calls)
    rows: dict[tuple[int, int], tuple[int, int, int, bool]] = {}
    for wait, recording in recorded.items():  # one for each wait of the recording
        target = launched.next_on(recording.lane, wait)
        source = launched.last_on(recording.waited_lane, recording.record)
        if source >= 0 and target >= 0 and source != target:
            rows[source, target] = _event(activities, source, target, True)
    for source, target in _believed(tables, launched, recorded.keys(), origin):
        rows.setdefault((source, target), _event(activities, source, target, False))
    return Wait.of(list(rows.values()))


def _event(
    activities: Activities, source: int, target: int, seen: bool
) -> tuple[int, int, int, bool]:
    lag = int(activities.start[target] - activities.end[source])
    return source, target, lag if 0 <= lag < _EVENT_NS else 0, seen


def _believed(
    tables: Mapping[str, pa.Table], launched: "_Launched", recorded: Collection[int], origin: int
) -> list[tuple[int, int]]:
    """Waits without a choice, and those of streams that were seen to wait in three instances.

    Instances are those of the step, and if they do not suffice of the whole recording.
    """
    guesses = launched.guesses(recorded)
    aligned = launched.aligned(guesses)
    unsure = [launched.lanes_of(s, t) for s, t, sure in guesses if not sure]
    if any(aligned[lanes] < _INSTANCES for lanes in unsure):
        calls = calls_of(tables, None, origin)
        everything = _Launched.of(activities_of(tables, calls, None, origin), calls)
        aligned = everything.aligned(everything.guesses(()))
    return [
        (source, target)
        for source, target, sure in guesses
        if sure or aligned[launched.lanes_of(source, target)] >= _INSTANCES
    ]


@dataclass(frozen=True)
class _Launched:
    """Activities by the time of their launch."""

    activities: Activities
    calls: LaunchCalls
    order: Ints  # activities by launch
    launched_ns: Ints  # launch start of each of those
    lanes: dict[int, tuple[Ints, Ints]]  # the same of one stream, as asked for

    @classmethod
    def of(cls, activities: Activities, calls: LaunchCalls) -> "_Launched":
        linked = np.flatnonzero(activities.call >= 0)
        issued = calls.start[activities.call[linked]]
        order = np.argsort(issued, kind="stable")
        return cls(activities, calls, linked[order], issued[order], {})

    def guesses(self, recorded: Collection[int]) -> list[tuple[int, int, bool]]:
        """Source and target of each wait but the known ones, and whether there was no choice."""
        waits = np.flatnonzero(self.calls.named(_WAIT_EVENT))
        waits = waits[~np.isin(waits, np.array([*recorded], np.int64))]
        target = self._next_of_thread(waits)
        waits, target = waits[target >= 0], target[target >= 0]
        source, choices = self._ended_last(waits, target)
        guesses = zip(source.tolist(), target.tolist(), (choices == 1).tolist(), strict=True)
        return [(s, t, sure) for s, t, sure in guesses if s >= 0]

    def _next_of_thread(self, waits: Ints) -> Ints:
        """The first activity that the same thread launches soon after each call; -1: none."""
        target = np.full(len(waits), -1, np.int64)
        thread = self.calls.lane[self.activities.call[self.order]]
        for lane in np.unique(self.calls.lane[waits]).tolist():  # a few threads
            places = np.flatnonzero(thread == lane)
            of_thread = np.flatnonzero(self.calls.lane[waits] == lane)
            issued = self.calls.start[waits[of_thread]]
            nth = np.searchsorted(self.launched_ns[places], issued)
            some = nth < len(places)
            position = places[nth[some]]
            soon = position - np.searchsorted(self.launched_ns, issued[some]) < _SOON
            target[of_thread[some][soon]] = self.order[position[soon]]
        return target

    def _ended_last(self, waits: Ints, target: Ints) -> tuple[Ints, Ints]:
        """Of what lay last on each other stream, that which ended last before the target began.

        And how many other streams there were to choose from.
        """
        act, issued = self.activities, self.calls.start[waits]
        best, ended = np.full(len(waits), -1, np.int64), np.full(len(waits), -1, np.int64)
        choices = np.zeros(len(waits), np.int64)
        for lane in np.unique(act.lane[self.order]).tolist():  # some streams
            on_lane, launched = self._by_lane(lane)
            elsewhere = np.flatnonzero(
                (act.device[target] == act.device[on_lane[0]]) & (act.lane[target] != lane)
            )
            position = np.searchsorted(launched, issued[elsewhere]) - 1
            elsewhere, last = elsewhere[position >= 0], on_lane[position[position >= 0]]
            choices[elsewhere] += 1
            end = act.end[last]
            better = (end <= act.start[target[elsewhere]]) & (end > ended[elsewhere])
            best[elsewhere[better]], ended[elsewhere[better]] = last[better], end[better]
        return best, choices

    def aligned(self, guesses: list[tuple[int, int, bool]]) -> Counter[tuple[int, int]]:
        """Return how often a stream began when another had just ended, by the two."""
        act, counts = self.activities, Counter[tuple[int, int]]()
        for source, target, _ in guesses:
            if act.start[target] - act.end[source] <= _ALIGNED_NS:
                counts[self.lanes_of(source, target)] += 1
        return counts

    def lanes_of(self, source: int, target: int) -> tuple[int, int]:
        return int(self.activities.lane[source]), int(self.activities.lane[target])

    def next_on(self, lane: int, call: int) -> int:
        """Return the first activity launched on a stream after a call."""
        rows, issued = self._by_lane(lane)
        position = int(np.searchsorted(issued, self.calls.start[call]))
        return int(rows[position]) if position < len(rows) else -1

    def last_on(self, lane: int, call: int) -> int:
        """Return the last activity launched on a stream before a call."""
        rows, issued = self._by_lane(lane)
        position = int(np.searchsorted(issued, self.calls.start[call])) - 1
        return int(rows[position]) if position >= 0 else -1

    def _by_lane(self, lane: int) -> tuple[Ints, Ints]:
        if lane not in self.lanes:
            on_lane = self.activities.lane[self.order] == lane
            self.lanes[lane] = self.order[on_lane], self.launched_ns[on_lane]
        return self.lanes[lane]


@dataclass(frozen=True)
class _Recorded:
    lane: int  # the stream that waits
    waited_lane: int
    record: int  # the call that recorded the event


def _recorded_waits(
    tables: Mapping[str, pa.Table], activities: Activities, calls: LaunchCalls
) -> dict[int, _Recorded]:
    """For calls of cudaStreamWaitEvent: who waits for what, where that was profiled."""
    syncs = tables["syncs"]
    if not syncs.num_rows:
        return {}
    is_complete = valid(syncs["wait_correlation"]) & valid(syncs["correlation"])
    is_complete &= valid(syncs["stream"]) & valid(syncs["wait_stream"])
    rank = numbers(syncs["rank"], -1)
    call_rows = {
        (int(r), int(c)): k
        for k, (r, c) in enumerate(zip(calls.rank, calls.correlation, strict=True))
    }
    stream = numbers(tables["kernels"]["stream"], -1)[activities.row]
    first = np.unique(activities.lane, return_index=True)[1]
    lanes = {(int(activities.rank[k]), int(stream[k])): int(activities.lane[k]) for k in first}
    columns = [
        numbers(syncs[c], -1) for c in ("correlation", "wait_correlation", "stream", "wait_stream")
    ]
    waits_by_call: dict[int, _Recorded] = {}
    for row in np.flatnonzero(is_complete).tolist():  # one for each wait of the recording
        who = int(rank[row])
        own, other, waits, waited = (int(c[row]) for c in columns)
        wait, record = call_rows.get((who, own)), call_rows.get((who, other))
        if wait is not None and record is not None:
            waits_by_call[wait] = _Recorded(
                lanes.get((who, waits), -1), lanes.get((who, waited), -1), record
            )
    return waits_by_call


def communicators(
    tables: Mapping[str, pa.Table], activities: Activities, calls: LaunchCalls
) -> Wait:
    """Collectives of one communicator run in order, whichever streams they are on.

    NCCL sees to that; it counts where no two of a group's collectives were seen to overlap.
    """
    rows = collective_rows(tables, activities.row)
    group = np.append(codes_of(tables["collectives"]["group"])[0], -1)[rows]
    members = np.flatnonzero((group >= 0) & (activities.call >= 0) & (activities.kind == 1))
    issued = calls.start[activities.call[members]]
    order = members[np.lexsort((issued, group[members], activities.rank[members]))]
    first, second = order[:-1], order[1:]
    same = (group[first] == group[second]) & (activities.rank[first] == activities.rank[second])
    first, second = first[same], second[same]
    lag = activities.start[second] - activities.end[first]
    overlapping = np.unique(group[first[lag < 0]])
    keep = ~np.isin(group[first], overlapping)
    keep &= activities.lane[first] != activities.lane[second]
    seen = np.bincount(group[first[keep]], minlength=int(group.max(initial=0)) + 1)
    keep &= seen[group[first]] >= _INSTANCES
    first, second, lag = first[keep], second[keep], lag[keep]
    return Wait(first, second, np.where(lag < _EVENT_NS, lag, 0), np.ones(len(first), bool))


def synchronised(activities: Activities, calls: LaunchCalls) -> Wait:
    """Return what synchronising calls and blocking copies waited for."""
    launched = _Launched.of(activities, calls)
    rows: list[tuple[int, int, int, bool]] = []
    for call in np.flatnonzero(calls.named(SYNCHRONISES)).tolist():  # some tens in a step
        earlier = launched.order[: int(np.searchsorted(launched.launched_ns, calls.start[call]))]
        earlier = earlier[activities.rank[earlier] == calls.rank[call]]
        earlier = earlier[activities.end[earlier] <= calls.end[call]]
        if not len(earlier):
            continue
        last = int(earlier[np.argmax(activities.end[earlier])])
        rows += _returned(activities, calls, last, call)
    copies = np.flatnonzero((activities.kind == 2) & (activities.call >= 0))
    copies = copies[calls.named(_COPY)[activities.call[copies]]]
    for copy in copies[activities.end[copies] <= calls.end[activities.call[copies]]].tolist():
        rows += _returned(activities, calls, copy, int(activities.call[copy]))
    return Wait.of(rows)


def _returned(
    activities: Activities, calls: LaunchCalls, activity: int, call: int
) -> list[tuple[int, int, int, bool]]:
    """Return the edge, if the call returned soon after the activity and began before its end."""
    lag = int(calls.end[call] - activities.end[activity])
    waited = activities.end[activity] > calls.start[call]
    if not waited:
        return [(activity, call, 0, True)]
    return [(activity, call, lag, True)] if lag <= _RETURNS_NS else []


def handovers(tables: Mapping[str, pa.Table], calls: LaunchCalls) -> Handovers:
    """Return a thread pauses while another works: it started that one and waits for its end.

    Main and autograd threads in backward; observed where the other thread runs operators that
    autograd tied to a forward one.
    """
    backward = _backward_threads(tables, calls)
    src, dst, seen, cut = [], [], [], []
    pause = calls.start[1:] - calls.end[:-1]
    same = calls.lane[1:] == calls.lane[:-1]
    for before in np.flatnonzero(same & (pause > _HANDED_NS)).tolist():  # some tens in a step
        left, again = int(calls.end[before]), int(calls.start[before + 1])
        for lane in np.unique(calls.lane[calls.rank == calls.rank[before]]).tolist():
            if lane == calls.lane[before] or (backward and lane not in backward):
                continue
            inside = (calls.lane == lane) & (calls.start >= left) & (calls.end <= again)
            others = np.flatnonzero(inside)
            if not len(others):
                continue
            worked = int(calls.end[others[-1]] - calls.start[others[0]])
            if worked < _HANDED_SHARE * (again - left):
                continue
            src += [before, int(others[-1])]
            dst += [int(others[0]), before + 1]
            seen += [lane in backward] * 2
            cut += [int(others[0]), before + 1]
    return Handovers(
        np.array(src, np.int64),
        np.array(dst, np.int64),
        np.array(seen, bool),
        np.array(cut, np.int64),
    )


def _backward_threads(tables: Mapping[str, pa.Table], calls: LaunchCalls) -> set[int]:
    """Lanes of the calls whose threads run backward operators and not most of the forward ones."""
    ops, links = tables["cpu_ops"], tables["op_links"]
    tied = valid(links["forward_row"])
    if not tied.any():
        return set()
    launches = tables["launches"]
    thread, names = codes_of(launches["thread"])
    op_thread, op_names = codes_of(ops["thread"])
    rank, op_rank = numbers(launches["rank"], -1), numbers(ops["rank"], -1)
    wanted = {
        (int(r), op_names[int(t)].as_py())
        for r, t in np.unique(np.column_stack([op_rank[tied], op_thread[tied]]), axis=0).tolist()
    }
    lanes = set()
    for lane in np.unique(calls.lane).tolist():  # a few threads
        row = calls.row[int(np.argmax(calls.lane == lane))]
        if (int(rank[row]), names[int(thread[row])].as_py()) in wanted:
            lanes.add(int(lane))
    return lanes
