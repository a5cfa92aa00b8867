"""Counts of the collectives that each member of a communicator has enqueued, by NCCL's log and RAS.

Who has enqueued fewer than others keeps them waiting, unless it waits itself for one that is behind
in another communicator.
"""

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import codes_of, mark_valid, match_texts, read_numbers
from htk.base.columns.groups import Groups
from htk.base.columns.types import Ints
from htk.quantities.measures.post_mortem.processes import Process, Processes, name_communicator

NCCL_LOG = "nccl_debug"
RAS = "ras"
_MESSAGES = ("send", "recv", "send_recv")


@dataclass
class CommMember:
    """One rank of a communicator."""

    comm: str
    rank: int
    process: Process | None
    counts: dict[str, int] = field(default_factory=dict)  # by type
    status: set[str] = field(default_factory=set)
    first: dict[str, int] = field(default_factory=dict)  # the same, by the first report
    polled: int = 0  # times that it was counted

    @property
    def node(self) -> Hashable:
        """What waits: the process, or where it is unknown the communicator and rank."""
        return self.process or (self.comm, self.rank)

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    @property
    def moved_by(self) -> int:
        """Return how many calls it made between the first and the last report."""
        return self.total - sum(self.first.values()) if self.polled > 1 else 0

    @property
    def moved(self) -> bool:
        return self.moved_by > 0


@dataclass
class Counts:
    """The members of every communicator that a source counts."""

    source: str
    members: dict[str, dict[int, CommMember]]
    sizes: dict[str, int]

    def most(self, comm: str) -> int:
        return max((m.total for m in self.members[comm].values()), default=0)

    def behind(self, comm: str) -> list[CommMember]:
        """Return the members that have enqueued fewer collectives than the furthest."""
        most = self.most(comm)
        return [m for m in self.members[comm].values() if m.counts and m.total < most]

    def moved_by(self, comm: str) -> int:
        """Return how many calls all members made between reports (0: some made none)."""
        return min((m.moved_by for m in self.members[comm].values() if m.counts), default=0)

    def waits_for(self) -> dict[Hashable, set[Hashable]]:
        """Return whom each process waits for: those behind it in a communicator of both."""
        waits: dict[Hashable, set[Hashable]] = defaultdict(set)
        for comm, members in self.members.items():
            late = self.behind(comm)
            for member in members.values() if late else ():
                waits[member.node] |= {m.node for m in late if m.total < member.total}
        return dict(waits)

    def roots(self) -> list[CommMember]:
        """Return who is waited for and waits for nobody, each where it is furthest behind."""
        waits = self.waits_for()
        late = [m for comm in self.members for m in self.behind(comm)]
        free = [m for m in late if not waits.get(m.node)]
        widest: dict[Hashable, CommMember] = {}
        for member in free:
            other = widest.get(member.node)
            if other is None or self._measure_lag(other) < self._measure_lag(member):
                widest[member.node] = member
        return list(widest.values())

    def _measure_lag(self, member: CommMember) -> int:
        return self.most(member.comm) - member.total

    @property
    def all_members(self) -> Iterable[CommMember]:
        return (m for members in self.members.values() for m in members.values())

    def unlike(self, comm: str) -> dict[str, list[int]]:
        """Return types that members have enqueued unequally often though they enqueued as many."""
        members = [m for m in self.members[comm].values() if m.counts]
        if len({m.total for m in members}) != 1:
            return {}
        kinds = {kind for m in members for kind in m.counts}
        return {
            kind: [
                m.rank for m in members if m.counts.get(kind, 0) != _find_usual_count(members, kind)
            ]
            for kind in sorted(kinds)
            if len({m.counts.get(kind, 0) for m in members}) > 1
        }


def _find_usual_count(members: list[CommMember], kind: str) -> int:
    values, times = np.unique([m.counts.get(kind, 0) for m in members], return_counts=True)
    return int(values[times.argmax()])


def count_logged_calls(collectives: pa.Table, processes: Processes) -> Counts:
    """Count the calls that NCCL's log holds, by communicator, rank and type."""
    calls = logged_calls(collectives)
    counts = Counts(NCCL_LOG, defaultdict(dict), dict(processes.sizes))
    if calls.num_rows:
        for (comm, rank), kind, count in _tally_calls(calls):
            fresh = CommMember(comm, rank, processes.of_member.get((comm, rank)))
            member = counts.members[comm].setdefault(rank, fresh)
            member.counts[kind] = count
            member.polled = 1
    for comm in [comm for comm in counts.members if processes.have_ended(comm)]:
        del counts.members[comm]  # torn down: nobody waits in it
    for (comm, rank), process in processes.of_member.items():
        if comm in counts.members:  # whoever made it and never called is behind too
            kinds = dict.fromkeys({k for m in counts.members[comm].values() for k in m.counts}, 0)
            fresh = CommMember(comm, rank, process, kinds, polled=1)
            counts.members[comm].setdefault(rank, fresh)
    return counts


def logged_calls(collectives: pa.Table) -> pa.Table:
    """Return the collectives of NCCL's log whose communicator and rank are known, in order."""
    ours = match_texts(collectives["source"], NCCL_LOG.__eq__) & mark_valid(
        collectives["comm_rank"]
    )
    ours &= ~match_texts(collectives["type"], _MESSAGES.__contains__)
    ours &= mark_valid(collectives["comm_hash"]) | mark_valid(collectives["group"])
    return collectives.filter(pa.array(ours))


def member_codes(calls: pa.Table) -> tuple[Ints, list[str]]:
    """Return the communicator of each call as a number, and their names."""
    hashed = mark_valid(calls["comm_hash"])
    distinct, hash_code = np.unique(read_numbers(calls["comm_hash"], 0), return_inverse=True)
    group_code, names = codes_of(calls["group"])
    keys = np.where(hashed, hash_code.ravel(), -1), np.where(hashed, -1, group_code)
    groups = Groups.by_keys(keys)
    labels = [
        f"{int(distinct[of_hash]):#x}" if of_hash >= 0 else str(names[of_group].as_py())
        for of_hash, of_group in groups.keys.tolist()  # a few
    ]
    return groups.group_ids, labels


def _tally_calls(calls: pa.Table) -> Iterable[tuple[tuple[str, int], str, int]]:
    comms, names = member_codes(calls)
    kinds, kind_names = codes_of(calls["type"])
    rank = read_numbers(calls["comm_rank"])
    groups = Groups.by_keys([comms, rank, kinds])
    labels = [str(name) for name in kind_names.to_pylist()]
    for (comm, member, kind), count in zip(
        groups.keys.tolist(), groups.count.tolist(), strict=True
    ):
        yield (names[comm], member), labels[kind], count


def collect_ras_counts(comm_counts: pa.Table) -> Counts:
    """Collect what RAS counts. Counts only grow: of several reports the largest is the newest."""
    counts = Counts(RAS, defaultdict(dict), {})
    for row in comm_counts.to_pylist():  # a few for each rank
        comm = name_communicator(row["comm_hash"], None)
        if comm is None or row["comm_rank"] is None:
            continue
        process = (row["host"], row["process"]) if row["host"] and row["process"] else None
        members = counts.members[comm]
        fresh = CommMember(comm, row["comm_rank"], process)
        member = members.setdefault(row["comm_rank"], fresh)
        member.process = member.process or process
        counts.sizes[comm] = row["group_size"] or counts.sizes.get(comm, 0)
        if row["status"]:
            member.status.add(row["status"])
        if row["type"] is not None and row["count"] is not None:
            before = member.counts.get(row["type"])
            earlier = member.first.get(row["type"])
            member.first[row["type"]] = min(
                row["count"] if earlier is None else earlier, row["count"]
            )
            member.counts[row["type"]] = max(before or 0, row["count"])
            member.polled += before is not None or not member.polled
    return counts


def dead_processes(comm_counts: pa.Table) -> list[Mapping[str, str]]:
    """Return what RAS says of processes whose ranks it does not tell."""
    return [
        row
        for row in comm_counts.to_pylist()
        if row["comm_rank"] is None and row["status"] and row["process"]
    ]
