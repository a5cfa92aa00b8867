"""What flight recorders saw: which rank made which calls, where each waits, and for whom.

A rank waits at its first call that has not completed. It waits for the members of that call's
group which have not come to it: they never made the call, or made it behind another one that they
wait at themselves. Of a rank without a dump, the lines of PyTorch's watchdog tell the call that
timed out, and how far its groups had come.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple

import pyarrow as pa

from htk.columns.arrow import codes_of, matching, valid
from htk.measures.polls import moved_between_polls, newest_polls

_CALL_COLUMNS = (
    "rank",
    "event",
    "group",
    "group_desc",
    "group_ranks",
    "seq",
    "seq_kind",
    "type",
    "raw_name",
    "peer",
    "dtype",
    "out_dtype",
    "in_shapes",
    "out_shapes",
    "in_elements",
    "out_elements",
    "coalesced",
    "state",
    "retired",
    "library",
    "enqueue_ns",
    "end_ns",
    "timeout_ns",
    "frames",
    "cycle",
    "source",
)
_STATUS_COLUMNS = (
    "rank",
    "cycle",
    "source",
    "group",
    "group_desc",
    "group_ranks",
    "last_enqueued",
    "last_completed",
)
RECORDER, WATCHDOG = "flight_recorder", "watchdog"
ABORTED = "aborted"  # reported as completed when the watchdog ended it
_MOST_RANKS = 1 << 17
_NCCL_TIMEOUT_NS = 600 * 10**9  # where none is recorded


@dataclass(frozen=True, eq=False)
class GroupId:
    """Two groups may share a name; none share name and ranks. One object for each group."""

    name: str
    ranks: tuple[int, ...]  # empty: unknown


class CallSite(NamedTuple):
    """One collective of a group; for point-to-point, one message between two ranks."""

    group: GroupId
    seq: int
    pair: tuple[int, int] | None = None  # sender, receiver


@dataclass
class RecordedCall:
    """What one rank did at a place. A coalesced group is one call with several operations."""

    rank: int
    call_site: CallSite
    record: int
    operations: list[Mapping[str, Any]] = field(default_factory=list)
    states: set[str] = field(default_factory=set)
    batch: tuple[Any, ...] | None = None  # point-to-point calls that are launched as one

    @property
    def completed(self) -> bool:
        return self.states <= {"completed"}

    @property
    def started(self) -> bool:
        return bool(self.states & {"started", "completed", ABORTED})

    @property
    def aborted_after_ns(self) -> int | None:
        """How old it was when the watchdog ended it."""
        ages = [o["end_ns"] - o["enqueue_ns"] for o in self.operations if o["state"] == ABORTED]
        return max(ages, default=None)

    @property
    def type(self) -> str:
        return str(self.operations[0]["type"]) if self.operations else "collective"

    @property
    def frames(self) -> str | None:
        return next((o["frames"] for o in self.operations if o["frames"]), None)


@dataclass
class Histories:
    """The calls of every rank that was dumped."""

    calls: dict[int, list[RecordedCall]]  # in the order made
    by_site: dict[CallSite, dict[int, RecordedCall]]
    status: dict[tuple[int, GroupId], Mapping[str, Any]]
    descriptions: dict[GroupId, str]
    first_seq: dict[tuple[int, GroupId], int]
    inferred: set[GroupId]  # members known only by the calls they made
    libraries: set[str]
    moved: dict[int, bool]  # between the first and the last of several dumps
    sources: dict[int, str]  # what tells of each rank
    lone_messages: list[Mapping[str, Any]]  # that timed out, and whose peer is not told
    _pending: dict[int, list[RecordedCall]] = field(default_factory=dict)

    @property
    def dumped(self) -> list[int]:
        return sorted(self.calls)

    def members(self, call_site: CallSite) -> tuple[int, ...]:
        return call_site.pair or call_site.group.ranks or tuple(sorted(self.by_site[call_site]))

    def pending(self, rank: int) -> list[RecordedCall]:
        """The first call of a rank that has not completed, and what is in one batch with it."""
        if rank not in self._pending:
            left = [c for c in self.calls[rank] if not c.completed]
            batch = left[0].batch if left else None
            self._pending[rank] = [c for c in left if batch and c.batch == batch] or left[:1]
        return self._pending[rank]

    def waits_at(self, rank: int) -> RecordedCall | None:
        """The call that a rank waits at: in a batch, the first one whose peer is absent."""
        pending = self.pending(rank)
        return next(
            (
                c
                for c in pending
                if {*self.absent(c.call_site), *self.unknown(c.call_site)} - {rank}
            ),
            pending[0] if pending else None,
        )

    def waits_for(self, rank: int) -> set[int]:
        """Members that have not come to what a rank waits at, or left no dump."""
        places = [c.call_site for c in self.pending(rank)]
        away = {r for p in places for r in (*self.absent(p), *self.unknown(p))}
        return away - {rank}

    def passed(self, rank: int, call_site: CallSite) -> bool:
        """It completed the call, recorded or overwritten since."""
        call = self.by_site.get(call_site, {}).get(rank)
        if call is not None:
            return call.completed
        if call_site.pair:
            return False
        key = (rank, call_site.group)
        done = self.status.get(key, {}).get("last_completed")
        if done is not None and done >= call_site.seq:
            return True
        return call_site.seq < self.first_seq.get(key, 0)

    def arrived(self, rank: int, call_site: CallSite) -> bool:
        """It came to the call: it made it, and waits at no earlier one."""
        if self.passed(rank, call_site):
            return True
        call = self.by_site.get(call_site, {}).get(rank)
        if call is not None:
            return call.started or any(call is c for c in self.pending(rank))
        enqueued = self.status.get((rank, call_site.group), {}).get("last_enqueued")
        return enqueued is not None and not call_site.pair and enqueued >= call_site.seq

    def absent(self, call_site: CallSite) -> list[int]:
        """Members with a dump that have not come to a call."""
        return [
            r for r in self.members(call_site) if r in self.calls and not self.arrived(r, call_site)
        ]

    def unknown(self, call_site: CallSite) -> list[int]:
        """Members without a dump."""
        return [r for r in self.members(call_site) if r not in self.calls]


def histories(
    collectives: pa.Table, comm_groups: pa.Table, world_size: int | None = None
) -> Histories:
    """Calls by rank and by place. A loop: dumps hold some thousand records, not millions."""
    records = _rows(collectives, _CALL_COLUMNS)
    states = _rows(comm_groups, _STATUS_COLUMNS)
    sources = {r["rank"]: WATCHDOG for r in (*records, *states)}
    sources |= {r["rank"]: RECORDER for r in (*records, *states) if r["source"] == RECORDER}
    records = [r for r in records if r["source"] == sources[r["rank"]]]
    states = [r for r in states if r["source"] == sources[r["rank"]]]
    moved = moved_between_polls(records, states)
    records, states = newest_polls(records, states)
    records, states, lone_messages = _watched(records, states)
    inferred = _resolve_groups(records, states, world_size)
    calls: dict[int, list[RecordedCall]] = {r["rank"]: [] for r in states}
    by_site: dict[CallSite, dict[int, RecordedCall]] = defaultdict(dict)
    first: dict[tuple[int, GroupId], int] = {}
    descriptions: dict[GroupId, str] = {}
    status: dict[tuple[int, GroupId], Mapping[str, Any]] = {
        (r["rank"], group_id(r)): r for r in states
    }
    alive = _enqueued_and_completed(records)
    for row in records:
        key = (row["rank"], group_id(row))
        row["state"] = _state(row, status.get(key, {}), alive.get(key, 0))
    messages = _Messages(records)
    for row in records:
        group = group_id(row)
        descriptions.setdefault(group, row["group_desc"] or "")
        call_site = (
            messages.call_site(row, group) if row["seq_kind"] == "p2p" else _call_site(row, group)
        )
        if call_site is None:
            continue
        rank = row["rank"]
        if call_site.pair is None:
            first.setdefault((rank, group), call_site.seq)
        call = by_site[call_site].get(rank)
        if call is None:
            batch = (group, row["seq"]) if call_site.pair and row["coalesced"] else None
            call = by_site[call_site][rank] = RecordedCall(
                rank, call_site, row["event"] or 0, batch=batch
            )
            calls.setdefault(rank, []).append(call)
        _add(call, row)
    for row in states:
        descriptions.setdefault(group_id(row), row["group_desc"] or "")
        _from_status(row, calls, by_site, first)
    libraries = {r["library"] for r in records if r["library"]}
    return Histories(
        calls,
        dict(by_site),
        status,
        descriptions,
        first,
        inferred,
        libraries,
        moved,
        sources,
        lone_messages,
    )


def _watched(
    records: list[dict[str, Any]], states: list[dict[str, Any]]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]], list[Mapping[str, Any]]]:
    """Take what the watchdog says for what a recorder would.

    It tells of elements, not of shapes, and only of the last calls. It does not tell the peer of a
    message; messages have a count of their own, but share the group's counters, which then say
    nothing.
    """
    lone = [r for r in records if r["source"] == WATCHDOG and r["type"] in ("send", "recv")]
    unsure = {(r["rank"], r["group"]) for r in lone}
    kept = []
    for row in records:
        if row["source"] == WATCHDOG:
            if row in lone:
                continue
            row["event"] = (row["event"] or 0) + 1  # what was before is not told
            for side in ("in", "out"):
                count = row[f"{side}_elements"]
                if row[f"{side}_shapes"] is None and count is not None:
                    row[f"{side}_shapes"] = f"[[{count}]]"
        kept.append(row)
    for row in states:
        if row["source"] == WATCHDOG and (row["rank"], row["group"]) in unsure:
            row["last_enqueued"] = row["last_completed"] = None
    return kept, states, list(lone)


def _enqueued_and_completed(records: list[dict[str, Any]]) -> dict[tuple[int, GroupId], int]:
    """When a rank enqueued, in each group, the last call that completed."""
    latest: dict[tuple[int, GroupId], int] = {}
    for row in records:
        if row["state"] == "completed" and row["enqueue_ns"] is not None:
            key = (row["rank"], group_id(row))
            latest[key] = max(latest.get(key, 0), row["enqueue_ns"])
    return latest


def _state(row: Mapping[str, Any], status: Mapping[str, Any], alive_ns: int) -> str:
    """Return what became of a call, whichever way its backend says so.

    NCCL retires what timed out too, and calls it completed once the communicator is aborted. In a
    communicator that completed what was enqueued later, at `alive_ns`, a slow call was only slow.
    """
    nccl = row["library"] in ("nccl", None)
    limit = row["timeout_ns"] or _NCCL_TIMEOUT_NS
    done = status.get("last_completed")
    if row["state"] == "completed":
        times = row["enqueue_ns"], row["end_ns"]
        aged = nccl and None not in times and times[1] - times[0] >= limit
        return ABORTED if aged and alive_ns <= times[1] else "completed"
    if row["seq_kind"] != "p2p" and None not in (done, row["seq"]) and row["seq"] <= done:
        return "completed"
    if row["retired"] and not nccl:
        return "completed"
    return row["state"] or "scheduled"


def _resolve_groups(
    records: list[dict[str, Any]], states: list[dict[str, Any]], world_size: int | None
) -> set[GroupId]:
    """Fill in the members of groups that a dump does not know; return those only inferred.

    Another dump knows them, or they are the ranks that used the group.
    """
    rows = [*records, *states]
    recorded: dict[str, set[str]] = defaultdict(set)
    users: dict[str, set[int]] = defaultdict(set)
    for row in rows:
        users[row["group"] or ""].add(row["rank"])
        if row["group_ranks"]:
            recorded[row["group"] or ""].add(row["group_ranks"])
    highest = max((row["rank"] for row in rows), default=-1)
    counted = world_size is not None and highest < world_size < _MOST_RANKS
    size = world_size if counted and world_size is not None else highest + 1
    everyone = range(size) if highest < _MOST_RANKS else ()
    inferred = set()
    for row in rows:
        if row["group_ranks"]:
            continue
        name = row["group"] or ""
        fitting = [k for k in recorded[name] if row["rank"] in json.loads(k)]
        if len(fitting) == 1:
            row["group_ranks"] = fitting[0]
        elif not recorded[name]:
            members = (_of_all_ranks(row) and everyone) or sorted(users[name])
            row["group_ranks"] = json.dumps([*members], separators=(",", ":"))
            if not (counted and _of_all_ranks(row)):
                inferred.add(group_id(row))
    return inferred


def _of_all_ranks(row: Mapping[str, Any]) -> bool:
    """Whether it is the default group, as the watchdog names it."""
    default = row["group_desc"] == "default_pg" or (row["group"] == "0" and not row["group_desc"])
    return row["source"] == WATCHDOG and default


def _from_status(
    row: Mapping[str, Any],
    calls: dict[int, list[RecordedCall]],
    by_site: dict[CallSite, dict[int, RecordedCall]],
    first: Mapping[tuple[int, GroupId], int],
) -> None:
    """Of a dump that lost its records, or the oldest, the counters tell where its rank waits."""
    enqueued, done = row["last_enqueued"], row["last_completed"]
    if enqueued is None or done is None or enqueued <= max(done, 0):
        return
    rank, call_site = row["rank"], CallSite(group_id(row), max(done, 0) + 1)
    oldest = first.get((rank, call_site.group))
    if calls[rank] and (oldest is None or oldest <= call_site.seq or done <= 0):
        return
    if oldest is not None and by_site[CallSite(call_site.group, oldest)][rank].completed:
        return  # the counter lags behind
    call = RecordedCall(rank, call_site, 0, states={"scheduled"})
    by_site[call_site][rank] = call
    calls[rank].insert(0, call)


def group_id(row: Mapping[str, Any]) -> GroupId:
    return _group(row["group"] or "", row["group_ranks"] or "[]")


@cache
def _group(name: str, listed: str) -> GroupId:
    return GroupId(name, tuple(json.loads(listed)))


def _rows(table: pa.Table, columns: tuple[str, ...]) -> list[dict[str, Any]]:
    """Rows of flight recorders, each text made once."""
    ours = matching(table["source"], (RECORDER, WATCHDOG).__contains__) & valid(table["rank"])
    table = table.select(columns).filter(pa.array(ours))
    values = []
    for column in table.columns:
        if pa.types.is_dictionary(column.type):
            codes, texts = codes_of(column)
            listed = [*texts.to_pylist(), None]
            values.append([listed[code] for code in codes.tolist()])
        else:
            values.append(column.to_pylist())
    return [dict(zip(columns, row, strict=True)) for row in zip(*values, strict=True)]


def _call_site(row: Mapping[str, Any], group: GroupId) -> CallSite | None:
    return None if row["seq"] is None else CallSite(group, row["seq"])


class _Messages:
    """Numbers point-to-point calls: the order between two ranks is kept, p2p counters are not.

    Where the ring of one of the two has lost its beginning, both count from their first call that
    has not completed.
    """

    def __init__(self, records: list[dict[str, Any]]) -> None:
        self._made: dict[tuple[Any, ...], int] = defaultdict(int)
        self._completed: dict[tuple[Any, ...], int] = defaultdict(int)
        self._first: dict[int, int] = {}
        for row in records:
            self._first.setdefault(row["rank"], row["event"] or 0)
            pair = _pair(row)
            if pair and row["state"] == "completed":
                self._completed[row["rank"], group_id(row), pair] += 1

    def call_site(self, row: Mapping[str, Any], group: GroupId) -> CallSite | None:
        pair = _pair(row)
        if pair is None:
            return None  # the closing record of a batch: its members stand for it
        key = (row["rank"], group, pair)
        self._made[key] += 1
        lost = any(self._first.get(rank, 0) for rank in pair)
        return CallSite(group, self._made[key] - (self._completed[key] if lost else 0), pair)


def _pair(row: Mapping[str, Any]) -> tuple[int, int] | None:
    """Sender and receiver."""
    if row["type"] not in ("send", "recv") or row["peer"] is None:
        return None
    rank, peer = row["rank"], row["peer"]
    return (rank, peer) if row["type"] == "send" else (peer, rank)


def _add(call: RecordedCall, row: Mapping[str, Any]) -> None:
    """The closing record of a coalesced group says nothing that its members do not."""
    closing = row["type"] == "coalesced" or (call.operations and row["in_shapes"] == "[]")
    if not (closing and call.operations):
        call.operations.append(row)
    call.states.add(row["state"] or "scheduled")


def cycle_among(waits_for: Mapping[int, Iterable[int]]) -> list[int]:
    """Ranks that wait for each other in a circle, in that order; every rank given waits."""
    path: list[int] = []
    position: dict[int, int] = {}
    rank = min(waits_for, default=None)
    while rank is not None and rank not in position:
        position[rank] = len(path)
        path.append(rank)
        rank = min((r for r in waits_for[rank] if r in waits_for), default=None)
    return path[position[rank] :] if rank is not None else []
