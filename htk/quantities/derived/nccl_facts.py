"""What NCCL's own records know of the profiler's collectives: algorithm, protocol, channels.

Which record is which call, `nccl_pairs` tells. What cannot be paired still takes algorithm and
protocol where the source has one answer for its type and size.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from htk.base.columns.arrow import (
    build_booleans,
    build_numbers,
    build_table,
    build_texts,
    codes_of,
    decode_texts,
    mark_valid,
    number_or_null,
    read_lengths,
    read_numbers,
)
from htk.base.columns.groups import Groups
from htk.base.columns.types import NONE, Ints, fill_none, take_or
from htk.base.schema import INT64
from htk.base.schema.comm import COLLECTIVE_FACTS
from htk.quantities.derived.collective_rows import CollectiveRows
from htk.quantities.derived.nccl_pairs import (
    BY,
    PROFILER,
    TYPE_AND_SIZE,
    CallsByRank,
    RecordPairs,
    common_answers,
    group_calls_by_rank,
    groups_of_communicators,
    list_signatures,
    pair_records,
    sources_beside,
)


@dataclass
class _Joined:
    pairs: RecordPairs
    source: Ints  # row whose facts are taken, be it another call of that type and size


def collective_facts(
    collectives: pa.Table, collective_matches: pa.Table, comm_channels: pa.Table
) -> pa.Table:
    """For each collective of the profiler the facts of the others, row by row; null elsewhere."""
    sources = sources_beside(collectives)
    if not sources:
        return build_table(COLLECTIVE_FACTS, {}, collectives.num_rows)
    rows = CollectiveRows(collectives)
    joined = _Joined(RecordPairs.none(rows.length), fill_none(rows.length))
    match = read_numbers(collective_matches["match"], NONE)
    ours = group_calls_by_rank(rows, PROFILER)
    for source in sources:
        theirs = group_calls_by_rank(rows, source)
        taken_for = groups_of_communicators(rows, ours, theirs)
        pairs = pair_records(rows, match, ours, theirs, taken_for)
        there = pairs.row != NONE
        joined.source[there] = joined.pairs.row[there] = pairs.row[there]
        joined.pairs.by[there] = pairs.by[there]
        joined.pairs.guessed[there] = pairs.guessed[there]
        joined.pairs.comm_guessed[there] = pairs.comm_guessed[there]
        for comm, named in taken_for.items():
            _by_size(rows, ours, theirs, (named.group, comm), joined)
    return _build_fact_table(collectives, comm_channels, joined)


def _by_size(
    rows: CollectiveRows,
    ours: CallsByRank,
    theirs: CallsByRank,
    owners: tuple[int, int],
    joined: _Joined,
) -> None:
    """Calls without facts take those that all calls of their type and size have in common.

    Also of a paired call, where the record of another rank tells and its own does not. `owners`:
    a group and its communicator.
    """
    group, comm = owners
    algorithm = codes_of(rows.table["algorithm"])[0].astype(np.int64)
    protocol = codes_of(rows.table["protocol"])[0].astype(np.int64)
    example = common_answers(rows, theirs, comm, (algorithm, protocol))
    by = joined.pairs.by
    for (owner, _), member_rows in ours.rows.items():
        if owner != group:
            continue
        for row, key in zip(member_rows.tolist(), list_signatures(rows, member_rows), strict=True):
            has = joined.source[row] != NONE and algorithm[joined.source[row]] >= 0
            if not has and key in example:
                joined.source[row] = example[key]
                by[row] = TYPE_AND_SIZE if by[row] == NONE else by[row]


def _build_fact_table(collectives: pa.Table, channels: pa.Table, joined: _Joined) -> pa.Table:
    pairs = joined.pairs
    has_facts = joined.source != NONE
    source = build_numbers(np.maximum(joined.source, 0), INT64, has_facts)
    low, high = _channel_times(collectives, channels)
    low = take_or(low, pairs.row)
    high = take_or(high, pairs.row)
    names, listed = codes_of(collectives["source"])
    has_record = pairs.row != NONE
    columns = {
        "joined_by": decode_texts(pairs.by, pa.array(BY)),
        "guessed": build_booleans(pairs.guessed, has_record),
        "comm_guessed": build_booleans(pairs.comm_guessed, has_record),
        "facts_from": decode_texts(take_or(names, joined.source), listed),
        "channel_ns_min": number_or_null(low, INT64),
        "channel_ns_max": number_or_null(high, INT64),
    }
    there = build_numbers(np.maximum(pairs.row, 0), INT64, has_record)
    other = collectives.take(there) if len(has_facts) else collectives
    columns |= {name: other[name] for name in ("comm_hash", "comm_rank", "seq")}
    columns["record_from"] = other["source"]
    columns["record_event"] = other["event"]
    columns["source_duration_ns"] = pc.coalesce(
        other["duration_ns"], pc.subtract(other["end_ns"], other["start_ns"])
    )
    for column in ("algorithm", "protocol", "channels"):
        taken = collectives[column].take(source) if len(has_facts) else collectives[column]
        columns[column] = build_texts(taken.to_pylist()) if column != "channels" else taken
    return build_table(COLLECTIVE_FACTS, columns, len(has_facts))


def _channel_times(collectives: pa.Table, channels: pa.Table) -> tuple[Ints, Ints]:
    """Shortest and longest channel of each call (NONE: not recorded)."""
    length = collectives.num_rows
    empty = fill_none(length)
    timed = mark_valid(channels["start_ns"]) & mark_valid(channels["end_ns"])
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
    hashed = np.unique(read_numbers(both["comm_hash"], 0), return_inverse=True)[1].ravel()
    rank = read_numbers(both["comm_rank"], NONE)
    seq = read_numbers(both["seq"], NONE)
    key = np.column_stack([source, hashed, rank, kind, seq]).astype(np.int64)
    groups = Groups.by_keys(key)
    took = read_lengths(channels)
    low = np.full(len(groups), np.iinfo(np.int64).max)
    high = fill_none(len(groups))
    np.minimum.at(low, groups.group_ids[length:], took)
    np.maximum.at(high, groups.group_ids[length:], took)
    low = np.where(high == NONE, NONE, low)
    return low[groups.group_ids[:length]], high[groups.group_ids[:length]]
