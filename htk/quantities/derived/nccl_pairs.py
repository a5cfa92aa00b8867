"""Which record of NCCL's own is which call of the profiler, rank by rank.

The two worlds share no name: NCCL's records say (communicator, rank in it, type, bytes, order), the
profiler (process group, global rank, …). A communicator is taken for the process group of its size
whose calls agree with its own best; of several that agree as well, for the one whose times do.
Calls are then paired by order, the shift between recordings told by time where the source has real
times; without them only where one shift fits. Records of one collective carry one sequence number
on all ranks, which corrects and completes what one rank's order says. What rests on order alone, or
on a choice between groups that agree equally well, is a guess.
"""

from collections import Counter, defaultdict
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from htk.base.columns.align import aligned_positions, fitting_shifts
from htk.base.columns.arrow import codes_of, match_texts, read_keys
from htk.base.columns.groups import Groups, row_of
from htk.base.columns.order import order_by
from htk.base.columns.types import NONE, Ints, Mask, fill_none, take_or
from htk.quantities.derived.collective_rows import CollectiveRows

PROFILER = "kineto"
BY = ("time", "order", "type and size", "sequence")
TIME, ORDER, TYPE_AND_SIZE, SEQUENCE = range(len(BY))
_NOT_JOINED = (PROFILER, "flight_recorder")
_LEAST_SHARE = 0.5  # of the profiler's calls that must agree with a communicator's
_NEAR_NS = 50_000_000  # real times of one call lie no farther apart
_CLEARLY = 2.0  # times as near as the next best group, where both agree as well

Sequence = tuple[Ints, Ints, Ints]


@dataclass
class RecordPairs:
    """For each call of the profiler its record; arrays over all rows of `collectives`."""

    row: Ints  # of the source; NONE: none
    by: Ints  # a number into BY
    guessed: Mask
    comm_guessed: Mask  # other groups fit the record's communicator as well

    @classmethod
    def none(cls, length: int) -> "RecordPairs":
        row = fill_none(length)
        by = fill_none(length)
        return cls(row, by, np.zeros(length, bool), np.zeros(length, bool))


@dataclass
class CallsByRank:
    """Calls of one source by (communicator or group, rank), in order."""

    rows: dict[tuple[int, int], Ints] = field(default_factory=dict)
    size: dict[int, int] = field(default_factory=dict)  # ranks of each communicator or group


@dataclass(frozen=True)
class CommunicatorOf:
    """The process group that a communicator is taken for."""

    group: int
    members: dict[int, int]  # global rank of each rank of the communicator
    guessed: bool


def sources_beside(collectives: pa.Table) -> list[str]:
    """Return the sources whose records may be of the profiler's calls."""
    codes, names = codes_of(collectives["source"])
    present = {names[k].as_py() for k in np.unique(codes[codes >= 0]).tolist()}
    return sorted(present - set(_NOT_JOINED))


def group_calls_by_rank(rows: CollectiveRows, source: str) -> CallsByRank:
    """Return the calls of a source, by communicator and rank in it; of the profiler by rank."""
    of_source = match_texts(rows.table["source"], source.__eq__)
    comm_rank = read_keys(rows.table["comm_rank"])
    by_rank = source == PROFILER
    rank = rows.rank if by_rank else np.where(comm_rank >= 0, comm_rank, rows.rank)
    chosen = np.flatnonzero(of_source & (rank >= 0) & ~rows.is_type("barrier", "coalesced"))
    side = CallsByRank()
    if not len(chosen):
        return side
    groups = Groups.by_keys([rows.group[chosen], rank[chosen]])
    order = order_by(groups.group_ids, rows.order[chosen])
    ends = np.cumsum(groups.count)
    for k, (group, member) in enumerate(groups.keys.tolist()):  # a few groups of each rank
        member_rows = chosen[order[ends[k] - groups.count[k] : ends[k]]]
        side.rows[group, member] = member_rows
        side.size[group] = int(rows.group_size[member_rows[0]])
    return side


def pair_records(
    rows: CollectiveRows,
    match: Ints,
    ours: CallsByRank,
    theirs: CallsByRank,
    taken_for: dict[int, CommunicatorOf],
) -> RecordPairs:
    """Return the record of each call; `match` says which calls of several ranks are one."""
    pairs = RecordPairs.none(rows.length)
    comm = fill_none(rows.length)
    comm_rank = fill_none(rows.length)
    for (communicator, member), source in theirs.rows.items():
        named = taken_for.get(communicator)
        target = (
            None if named is None else ours.rows.get((named.group, named.members.get(member, NONE)))
        )
        if named is None or target is None:
            continue
        comm[target] = communicator
        comm_rank[target] = member
        _pair_rank(rows, target, source, pairs)
        pairs.guessed[target] |= named.guessed
        pairs.comm_guessed[target] = named.guessed
    _by_sequence(rows, match, (comm, comm_rank), theirs, pairs)
    return pairs


def _pair_rank(rows: CollectiveRows, target: Ints, source: Ints, pairs: RecordPairs) -> None:
    """Calls of one rank by order; the shift by time, or because no other fits."""
    places, timed = _find_places(rows, target, source)
    if places is None:
        return
    paired_calls = places != NONE
    own = target[paired_calls]
    other = source[places[paired_calls]]
    overlaps = (rows.start[own] < rows.end[other]) & (rows.start[other] < rows.end[own])
    pairs.row[own] = other
    pairs.by[own] = TIME if timed else ORDER
    pairs.guessed[own] = ~overlaps if timed else True


def _find_places(rows: CollectiveRows, target: Ints, source: Ints) -> tuple[Ints | None, bool]:
    """Return where in the source each call of a rank is, and whether times told it."""
    base = _read_sequence(rows, source)
    own = _read_sequence(rows, target)
    timed = bool(rows.timed[source].all() and rows.timed[target].all())
    if timed:
        places = aligned_positions(base, own)
        far = np.abs(base[2][places] - own[2]) > _NEAR_NS
        return np.where(far, NONE, places), True
    shifts = fitting_shifts(base, own)
    if len(shifts) != 1:
        return None, False
    places = np.arange(len(target)) + shifts[0]
    return np.where((places >= 0) & (places < len(source)), places, NONE), False


def _read_sequence(rows: CollectiveRows, chosen: Ints) -> Sequence:
    time = np.where(rows.timed[chosen], rows.end[chosen], NONE)
    return rows.type[chosen], rows.size[chosen], time


# Which group a communicator is.


@dataclass(frozen=True)
class _Candidate:
    share: float  # of the group's calls that the communicator has made
    distance_ns: float  # median, between the ends of what pairs; inf: no times
    comm: int
    group: int


def groups_of_communicators(
    rows: CollectiveRows, ours: CallsByRank, theirs: CallsByRank
) -> dict[int, CommunicatorOf]:
    """Return the group of each communicator that has one: no group is that of two."""
    candidates = [
        candidate
        for comm in sorted({c for c, _ in theirs.rows})
        for group in sorted({g for g, _ in ours.rows})
        if (candidate := _build_candidate(rows, ours, theirs, comm, group)) is not None
    ]
    contested = _count_contested(candidates)
    candidates.sort(key=lambda c: (-c.share, c.distance_ns, contested[c], c.comm, c.group))
    taken: dict[int, CommunicatorOf] = {}
    groups: set[int] = set()
    for chosen in candidates:
        if chosen.comm in taken or chosen.group in groups:
            continue
        rivals = [
            c
            for c in candidates
            if c != chosen and (c.comm == chosen.comm or c.group == chosen.group)
        ]
        members = members_of(rows, ours, chosen.group)
        guessed = any(_as_good(c, chosen) for c in rivals)
        taken[chosen.comm] = CommunicatorOf(chosen.group, members, guessed)
        groups.add(chosen.group)
    return taken


def _count_contested(candidates: list[_Candidate]) -> Counter[_Candidate]:
    """Return for each candidate how many of its communicator or its group are as good: of equals
    the one is taken first that leaves the others most to choose from."""
    alike: dict[tuple[str, int], list[_Candidate]] = defaultdict(list)
    for candidate in candidates:
        alike["comm", candidate.comm].append(candidate)
        alike["group", candidate.group].append(candidate)
    return Counter({
        chosen: sum(
            _as_good(rival, chosen)
            for key in (("comm", chosen.comm), ("group", chosen.group))
            for rival in alike[key]
        )
        for chosen in candidates
    })  # fmt: skip


def _as_good(rival: _Candidate, chosen: _Candidate) -> bool:
    near = not np.isfinite(chosen.distance_ns) or rival.distance_ns <= _CLEARLY * chosen.distance_ns
    return rival.share >= chosen.share and near


def _build_candidate(
    rows: CollectiveRows, ours: CallsByRank, theirs: CallsByRank, comm: int, group: int
) -> _Candidate | None:
    if len({ours.size[group], theirs.size[comm]} - {NONE}) > 1:
        return None
    members = members_of(rows, ours, group)
    lanes = [
        (ours.rows[group, rank], source)
        for (communicator, comm_rank), source in theirs.rows.items()
        if communicator == comm and (group, rank := members.get(comm_rank, NONE)) in ours.rows
    ]
    share = _measure_agreement(rows, lanes)
    if share < _LEAST_SHARE:
        return None
    return _Candidate(share, _measure_end_distance(rows, lanes), comm, group)


def members_of(rows: CollectiveRows, ours: CallsByRank, group: int) -> dict[int, int]:
    """Global rank of each rank of a group; the same where the group is not recorded."""
    first = next(member_rows[0] for (g, _), member_rows in sorted(ours.rows.items()) if g == group)
    codes, listed = rows.group_ranks
    recorded = listed[codes[first]] if codes[first] != NONE else ()
    ranks = recorded or sorted(r for g, r in ours.rows if g == group)
    return dict(enumerate(ranks)) if recorded else {r: r for r in ranks}


def _measure_agreement(rows: CollectiveRows, lanes: list[tuple[Ints, Ints]]) -> float:
    """Share of the profiler's calls whose type and size the communicator has made."""
    agreed = total = 0
    for target, source in lanes:
        recorded = set(list_signatures(rows, source))
        agreed += sum(s in recorded for s in list_signatures(rows, target))
        total += len(target)
    return agreed / total if total else 0.0


def _measure_end_distance(rows: CollectiveRows, lanes: list[tuple[Ints, Ints]]) -> float:
    """Return how far the ends of paired calls are apart, of the middle call of the middle rank."""
    apart = []
    for target, source in lanes:
        places, timed = _find_places(rows, target, source)
        if places is not None and timed and (places != NONE).any():
            hit = places != NONE
            apart.append(np.median(np.abs(rows.end[source[places[hit]]] - rows.end[target[hit]])))
    return float(np.median(apart)) if apart else float("inf")


def list_signatures(rows: CollectiveRows, chosen: Ints) -> list[tuple[int, int]]:
    """Return type and size of calls."""
    kind, size, _ = _read_sequence(rows, chosen)
    return list(zip(kind.tolist(), size.tolist(), strict=True))


# What the records of other ranks say.


def _by_sequence(
    rows: CollectiveRows,
    match: Ints,
    member: tuple[Ints, Ints],
    theirs: CallsByRank,
    pairs: RecordPairs,
) -> None:
    """Let the ranks of a collective agree on its sequence number, and find its record on each.

    `member`: communicator of each call, and its rank there.
    """
    numbered = match_texts(rows.table["seq_kind"], lambda kind: kind in ("function", "collective"))
    numbered &= rows.seq >= 0
    seq = take_or(np.where(numbered, rows.seq, NONE), pairs.row)
    voting = np.flatnonzero((match != NONE) & (seq != NONE))
    if not len(voting):
        return
    comm, comm_rank = member
    votes = Groups.by_keys([match[voting], comm[voting], seq[voting]])
    sure = votes.sum((~pairs.guessed[voting]).astype(np.int64))
    decided = _decide_votes(votes, sure)
    verdict = row_of(votes.keys[decided, :2], np.column_stack([match, comm]))
    settled = np.flatnonzero((verdict != NONE) & (comm != NONE))
    elected = decided[verdict[settled]]
    wanted = votes.keys[elected, 2]
    record = np.concatenate([*theirs.rows.values()])
    record = record[numbered[record]]
    own_rank = read_keys(rows.table["comm_rank"])
    own_rank = np.where(own_rank >= 0, own_rank, rows.rank)
    every = np.column_stack([rows.group, own_rank, rows.type, rows.seq])[record]
    asked = np.column_stack([comm, comm_rank, rows.type])[settled]
    place_of = row_of(every, np.column_stack([asked, wanted]))
    same = seq[settled] == wanted
    changed = settled[~same]
    pairs.row[changed] = take_or(record, place_of[~same])
    pairs.by[changed] = np.where(pairs.row[changed] == NONE, NONE, SEQUENCE)
    alone = (votes.count[elected] - same) == 0  # nobody else says so
    pairs.guessed[settled] = np.where(alone, pairs.guessed[settled], sure[elected] == 0)
    pairs.guessed[pairs.row == NONE] = False


def _decide_votes(votes: Groups, sure: Ints) -> Ints:
    """Return the votes that win: of each collective and communicator the number that most ranks are
    sure of, else that most have."""
    order = order_by(votes.keys[:, 0], votes.keys[:, 1], -sure, -votes.count)
    collective = votes.keys[order, :2]
    first = np.append(True, (collective[1:] != collective[:-1]).any(axis=1))
    strength = np.column_stack([sure, votes.count])[order]
    tied = np.append((strength[1:] == strength[:-1]).all(axis=1) & ~first[1:], False)
    return np.asarray(order[first & ~tied], np.int64)


def common_answers(
    rows: CollectiveRows, theirs: CallsByRank, comm: int, values: tuple[Ints, Ints]
) -> dict[tuple[int, int], int]:
    """Return a record for each type and size of which all of a communicator say the same."""
    answers: dict[tuple[int, int], set[tuple[int, int]]] = defaultdict(set)
    example: dict[tuple[int, int], int] = {}
    for (owner, _), member_rows in theirs.rows.items():
        if owner != comm:
            continue
        with_facts = member_rows[values[0][member_rows] >= 0]
        for row, key in zip(with_facts.tolist(), list_signatures(rows, with_facts), strict=True):
            answers[key].add((int(values[0][row]), int(values[1][row])))
            example[key] = row
    return {key: row for key, row in example.items() if len(answers[key]) == 1}
