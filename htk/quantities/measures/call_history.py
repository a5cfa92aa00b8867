"""The calls of every dumped rank, and who waits at which call for whom.

A rank waits at its first call that has not completed. It waits for the members of that call's
group which have not come to it: they never made the call, or made it behind another one that they
wait at themselves.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple

from htk.base.mappings import Facts

RECORDER = "flight_recorder"
WATCHDOG = "watchdog"
ABORTED = "aborted"  # reported as completed when the watchdog ended it


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
    operations: list[Facts] = field(default_factory=list)
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
        """Return its age when the watchdog ended it, in ns."""
        ages = [o["end_ns"] - o["enqueue_ns"] for o in self.operations if o["state"] == ABORTED]
        return max(ages, default=None)

    @property
    def type(self) -> str:
        return str(self.operations[0]["type"]) if self.operations else "collective"

    @property
    def group_is_guessed(self) -> bool:
        """Whether the group is that of another rank's call of the same number."""
        return any(o.get("group_is_guessed") for o in self.operations)

    @property
    def frames(self) -> str | None:
        return next((o["frames"] for o in self.operations if o["frames"]), None)


@dataclass
class Histories:
    """The calls of every rank that was dumped."""

    calls: dict[int, list[RecordedCall]]  # in the order made
    by_site: dict[CallSite, dict[int, RecordedCall]]
    status: dict[tuple[int, GroupId], Facts]
    descriptions: dict[GroupId, str]
    first_seq: dict[tuple[int, GroupId], int]
    inferred: set[GroupId]  # members known only by the calls they made
    open_ended: set[GroupId]  # groups of all ranks, of a job whose size is not told
    libraries: set[str]
    moved: dict[int, bool]  # between the first and the last of several dumps
    sources: dict[int, str]  # what tells of each rank
    lone_messages: list[Facts]  # that timed out, and whose peer is not told
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
        """Return the call that a rank waits at: in a batch, the first one whose peer is absent."""
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
        """Return the members that have not come to what a rank waits at, or left no dump."""
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

    def may_have_timed_out(self, call: RecordedCall) -> bool:
        """Return whether a call that counts as completed may not have ended.

        Only NCCL tells a timeout from an end. That a member made another call since is proof.
        """
        if all(operation["library"] in ("nccl", None) for operation in call.operations):
            return False
        members = self.by_site[call.call_site]
        return all(self.calls[rank][-1] is members[rank] for rank in members)

    def absent(self, call_site: CallSite) -> list[int]:
        """Return the members with a dump that have not come to a call."""
        return [
            r for r in self.members(call_site) if r in self.calls and not self.arrived(r, call_site)
        ]

    def unknown(self, call_site: CallSite) -> list[int]:
        """Return the members without a dump."""
        return [r for r in self.members(call_site) if r not in self.calls]


def group_id(row: Facts) -> GroupId:
    return _parse_group(row["group"] or "", row["group_ranks"] or "[]")


@cache
def _parse_group(name: str, listed: str) -> GroupId:
    return GroupId(name, tuple(json.loads(listed)))


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
