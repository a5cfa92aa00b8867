"""What NCCL's own records know of the profiler's collectives: algorithm, protocol, channels.

The two worlds share no name: NCCL's records say (communicator, rank in it, type, bytes, order), the
profiler (process group, global rank, …). A communicator is taken for the process group of its size
whose calls agree with its own best. Calls are then paired by order, the shift between recordings
told by time where the source has real times; without them only where one shift fits. What cannot
be paired still takes algorithm and protocol where the source has one answer for its type and size.
"""

from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from htk.columns.align import aligned_positions, fitting_shifts
from htk.columns.arrow import build, codes_of, number, numbers, text, texts, valid
from htk.columns.groups import Groups
from htk.columns.types import NONE, Ints
from htk.derived.match import CollectiveRows
from htk.schema.comm import COLLECTIVE_FACTS

Sequence = tuple[Ints, Ints, Ints]

PROFILER = "kineto"
_NOT_JOINED = (PROFILER, "flight_recorder")
_LEAST_SHARE = 0.5  # of the profiler's calls that must agree with a communicator's
_NEAR_NS = 50_000_000  # real times of one call lie no farther apart
BY = ("time", "order", "type and size")


@dataclass
class _Joined:
    row: Ints  # of the source
    by: Ints  # a number into BY
    source: Ints  # row whose facts are taken, be it another call of that type and size


@dataclass
class _Side:
    """Calls of one source by (communicator or group, rank), in order."""

    rows: dict[tuple[int, int], Ints] = field(default_factory=dict)
    size: dict[int, int] = field(default_factory=dict)  # ranks of each communicator or group


def collective_facts(collectives: pa.Table, comm_channels: pa.Table) -> pa.Table:
    """For each collective of the profiler the facts of the others, row by row; null elsewhere."""
    if not _sources(collectives):
        return build(COLLECTIVE_FACTS, {}, collectives.num_rows)
    rows = CollectiveRows(collectives)
    joined = _Joined(*(np.full(rows.length, NONE, np.int64) for _ in range(3)))
    ours = _sides(rows, collectives, {PROFILER}, by_rank=True)
    for source in _sources(collectives):
        theirs = _sides(rows, collectives, {source}, by_rank=False)
        _join(rows, collectives, ours, theirs, joined)
    return _facts(collectives, comm_channels, joined)


def _sources(collectives: pa.Table) -> list[str]:
    codes, names = codes_of(collectives["source"])
    present = {names[k].as_py() for k in np.unique(codes[codes >= 0]).tolist()}
    return sorted(present - set(_NOT_JOINED))


def _sides(
    rows: CollectiveRows, collectives: pa.Table, wanted: set[str], *, by_rank: bool
) -> _Side:
    codes, names = codes_of(collectives["source"])
    listed = names.to_pylist()
    of_source = np.isin(codes, [k for k, n in enumerate(listed) if n in wanted])
    comm_rank = numbers(collectives["comm_rank"], NONE).astype(np.int64)
    rank = rows.rank if by_rank else np.where(comm_rank >= 0, comm_rank, rows.rank)
    chosen = np.flatnonzero(of_source & (rank >= 0) & ~rows.is_type("barrier", "coalesced"))
    side = _Side()
    if not len(chosen):
        return side
    keys = np.column_stack([rows.group[chosen], rank[chosen]])
    groups = Groups.by_keys(keys)
    order = np.lexsort((rows.order[chosen], groups.group_ids))
    ends = np.cumsum(groups.count)
    for k, (group, member) in enumerate(groups.keys.tolist()):  # a few groups of each rank
        member_rows = chosen[order[ends[k] - groups.count[k] : ends[k]]]
        side.rows[group, member] = member_rows
        side.size[group] = int(rows.group_size[member_rows[0]])
    return side


def _join(
    rows: CollectiveRows, table: pa.Table, ours: _Side, theirs: _Side, joined: _Joined
) -> None:
    for comm in sorted({c for c, _ in theirs.rows}):  # a few communicators
        group = _group_of(rows, ours, theirs, comm)
        if group is None:
            continue
        members = _members(rows, ours, group)
        for (communicator, comm_rank), source in theirs.rows.items():
            target = ours.rows.get((group, members.get(comm_rank, NONE)))
            if communicator == comm and target is not None:
                _pair(rows, target, source, joined)
        _by_size(rows, table, ours, theirs, group, comm, joined)


def _members(rows: CollectiveRows, ours: _Side, group: int) -> dict[int, int]:
    """Global rank of each rank of a group; the same where the group is not recorded."""
    first = next(member_rows[0] for (g, _), member_rows in sorted(ours.rows.items()) if g == group)
    codes, listed = rows.group_ranks
    recorded = listed[codes[first]] if codes[first] != NONE else ()
    ranks = recorded or sorted(r for g, r in ours.rows if g == group)
    return dict(enumerate(ranks)) if recorded else {r: r for r in ranks}


def _group_of(rows: CollectiveRows, ours: _Side, theirs: _Side, comm: int) -> int | None:
    """Return the process group whose calls agree best with a communicator's."""
    best: tuple[float, int] | None = None
    for group in sorted({g for g, _ in ours.rows}):
        sizes = {ours.size[group], theirs.size[comm]} - {NONE}
        if len(sizes) > 1:
            continue
        share = _agreement(rows, ours, theirs, group, comm)
        if share >= _LEAST_SHARE and (best is None or share > best[0]):
            best = (share, group)
    return best[1] if best else None


def _agreement(rows: CollectiveRows, ours: _Side, theirs: _Side, group: int, comm: int) -> float:
    """Share of the profiler's calls whose type and size the communicator has made."""
    members = _members(rows, ours, group)
    agreed = total = 0
    for (communicator, comm_rank), source in theirs.rows.items():
        target = ours.rows.get((group, members.get(comm_rank, NONE)))
        if communicator == comm and target is not None:
            signatures = set(_signatures(rows, source))
            agreed += sum(s in signatures for s in _signatures(rows, target))
            total += len(target)
    return agreed / total if total else 0.0


def _signatures(rows: CollectiveRows, chosen: Ints) -> list[tuple[int, int]]:
    kind, size, _ = _sequence(rows, chosen)
    return list(zip(kind.tolist(), size.tolist(), strict=True))


def _sequence(rows: CollectiveRows, chosen: Ints) -> Sequence:
    time = np.where(rows.timed[chosen], rows.end[chosen], NONE)
    return rows.type[chosen], rows.size[chosen], time


def _pair(rows: CollectiveRows, target: Ints, source: Ints, joined: _Joined) -> None:
    """Calls of one rank by order; the shift by time, or because no other fits."""
    base, own = _sequence(rows, source), _sequence(rows, target)
    timed = bool(rows.timed[source].all() and rows.timed[target].all())
    if not timed:
        shifts = fitting_shifts(base, own)
        if len(shifts) != 1:
            return
        places = np.arange(len(target)) + shifts[0]
        places = np.where((places >= 0) & (places < len(source)), places, NONE)
    else:
        places = aligned_positions(base, own)
        far = np.abs(base[2][places] - own[2]) > _NEAR_NS
        places = np.where(far, NONE, places)
    paired = places != NONE
    joined.row[target[paired]] = source[places[paired]]
    joined.source[target[paired]] = source[places[paired]]
    joined.by[target[paired]] = 0 if timed else 1


def _by_size(
    rows: CollectiveRows,
    table: pa.Table,
    ours: _Side,
    theirs: _Side,
    group: int,
    comm: int,
    joined: _Joined,
) -> None:
    """Calls without facts take those that all calls of their type and size have in common.

    Also of a paired call, where the record of another rank tells and its own does not.
    """
    algorithm, _ = codes_of(table["algorithm"])
    protocol, _ = codes_of(table["protocol"])
    answers: dict[tuple[int, int], set[tuple[int, int]]] = defaultdict(set)
    example: dict[tuple[int, int], int] = {}
    for (owner, _), member_rows in theirs.rows.items():
        if owner != comm:
            continue
        with_facts = member_rows[algorithm[member_rows] >= 0]
        for row, key in zip(with_facts.tolist(), _signatures(rows, with_facts), strict=True):
            answers[key].add((int(algorithm[row]), int(protocol[row])))
            example[key] = row
    for (owner, _), member_rows in ours.rows.items():
        if owner != group:
            continue
        for row, key in zip(member_rows.tolist(), _signatures(rows, member_rows), strict=True):
            has = joined.source[row] != NONE and algorithm[joined.source[row]] >= 0
            if not has and len(answers.get(key, ())) == 1:
                joined.source[row] = example[key]
                joined.by[row] = 2 if joined.by[row] == NONE else joined.by[row]


def _facts(collectives: pa.Table, channels: pa.Table, joined: _Joined) -> pa.Table:
    has_facts = joined.source != NONE
    source = number(np.maximum(joined.source, 0), pa.int64(), has_facts)
    low, high = _channel_times(collectives, channels)
    low, high = (np.append(x, NONE)[joined.row] for x in (low, high))
    names, listed = codes_of(collectives["source"])
    columns = {
        "joined_by": text(joined.by, pa.array(BY)),
        "facts_from": text(np.append(names, -1)[joined.source], listed),
        "channel_ns_min": number(low, pa.int64(), low >= 0),
        "channel_ns_max": number(high, pa.int64(), high >= 0),
    }
    there = number(np.maximum(joined.row, 0), pa.int64(), joined.row != NONE)
    other = collectives.take(there) if len(has_facts) else collectives
    columns["comm_hash"], columns["seq"] = other["comm_hash"], other["seq"]
    columns["source_duration_ns"] = pc.coalesce(
        other["duration_ns"], pc.subtract(other["end_ns"], other["start_ns"])
    )
    for column in ("algorithm", "protocol", "channels"):
        taken = collectives[column].take(source) if len(has_facts) else collectives[column]
        columns[column] = texts(taken.to_pylist()) if column != "channels" else taken
    return build(COLLECTIVE_FACTS, columns, len(has_facts))


def _channel_times(collectives: pa.Table, channels: pa.Table) -> tuple[Ints, Ints]:
    """Shortest and longest channel of each call (NONE: not recorded)."""
    length = collectives.num_rows
    empty = np.full(length, NONE, np.int64)
    timed = valid(channels["start_ns"]) & valid(channels["end_ns"])
    channels = channels.filter(pa.array(timed))
    if not channels.num_rows:
        return empty, empty
    both = pa.concat_tables(
        [
            t.select(["source", "comm_hash", "comm_rank", "type", "seq"])
            for t in (collectives, channels)
        ]
    )
    source, _ = codes_of(both["source"])
    kind, _ = codes_of(both["type"])
    hashed = np.unique(numbers(both["comm_hash"], 0), return_inverse=True)[1].ravel()
    rank, seq = numbers(both["comm_rank"], NONE), numbers(both["seq"], NONE)
    key = np.column_stack([source, hashed, rank, kind, seq]).astype(np.int64)
    groups = Groups.by_keys(key)
    took = numbers(channels["end_ns"]) - numbers(channels["start_ns"])
    low = np.full(len(groups), np.iinfo(np.int64).max)
    high = np.full(len(groups), NONE, np.int64)
    np.minimum.at(low, groups.group_ids[length:], took)
    np.maximum.at(high, groups.group_ids[length:], took)
    low = np.where(high == NONE, NONE, low)
    return low[groups.group_ids[:length]], high[groups.group_ids[:length]]
