"""Histories of calls from what flight recorders dumped.

Of a rank without a dump, the lines of PyTorch's watchdog tell the call that timed out, and how far
its groups had come.
"""

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from htk.base.mappings import Facts, Fields
from htk.quantities.measures.call_history import (
    RECORDER,
    WATCHDOG,
    CallSite,
    GroupId,
    Histories,
    RecordedCall,
    group_id,
)
from htk.quantities.measures.flight_rows import (
    CALL_COLUMNS,
    STATUS_COLUMNS,
    call_state,
    enqueued_and_completed,
    enqueued_by_all,
    recorder_rows,
    resolve_groups,
    watchdog_as_recorder,
)
from htk.quantities.measures.polls import moved_between_polls, newest_polls


def collect_histories(
    collectives: pa.Table, comm_groups: pa.Table, world_size: int | None = None
) -> Histories:
    """Return calls by rank and by place. A loop: dumps hold some thousand records, not millions."""
    records = recorder_rows(collectives, CALL_COLUMNS)
    states = recorder_rows(comm_groups, STATUS_COLUMNS)
    sources = {r["rank"]: WATCHDOG for r in (*records, *states)}
    sources |= {r["rank"]: RECORDER for r in (*records, *states) if r["source"] == RECORDER}
    records = [r for r in records if r["source"] == sources[r["rank"]]]
    states = [r for r in states if r["source"] == sources[r["rank"]]]
    moved = moved_between_polls(records, states)
    records, states = newest_polls(records, states)
    records, states, lone_messages = watchdog_as_recorder(records, states)
    inferred, open_ended = resolve_groups(records, states, world_size)
    calls: dict[int, list[RecordedCall]] = {r["rank"]: [] for r in states}
    by_site: dict[CallSite, dict[int, RecordedCall]] = defaultdict(dict)
    first: dict[tuple[int, GroupId], int] = {}
    descriptions: dict[GroupId, str] = {}
    status: dict[tuple[int, GroupId], Facts] = {(r["rank"], group_id(r)): r for r in states}
    alive = enqueued_and_completed(records)
    common = enqueued_by_all(records, states)
    for row in records:
        key = (row["rank"], group_id(row))
        came = common.get(key[1], 0)
        row["state"] = call_state(row, status.get(key, {}), alive.get(key, 0), came)
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
        _add_record(call, row)
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
        open_ended,
        libraries,
        moved,
        sources,
        lone_messages,
    )


def _from_status(
    row: Facts,
    calls: dict[int, list[RecordedCall]],
    by_site: dict[CallSite, dict[int, RecordedCall]],
    first: Mapping[tuple[int, GroupId], int],
) -> None:
    """Add the call where a rank waits, told by counters, if its dump lost all or oldest records."""
    enqueued = row["last_enqueued"]
    done = row["last_completed"]
    if enqueued is None or done is None or enqueued <= max(done, 0):
        return
    rank = row["rank"]
    call_site = CallSite(group_id(row), max(done, 0) + 1)
    oldest = first.get((rank, call_site.group))
    if calls[rank] and (oldest is None or oldest <= call_site.seq or done <= 0):
        return
    if oldest is not None and by_site[CallSite(call_site.group, oldest)][rank].completed:
        return  # the counter lags behind
    call = RecordedCall(rank, call_site, 0, states={"scheduled"})
    by_site[call_site][rank] = call
    calls[rank].insert(0, call)


def _call_site(row: Facts, group: GroupId) -> CallSite | None:
    return None if row["seq"] is None else CallSite(group, row["seq"])


class _Messages:
    """Numbers point-to-point calls: the order between two ranks is kept, p2p counters are not.

    Where the ring of one of the two has lost its beginning, both count from their first call that
    has not completed.
    """

    def __init__(self, records: list[Fields]) -> None:
        self._made: dict[tuple[Any, ...], int] = defaultdict(int)
        self._completed: dict[tuple[Any, ...], int] = defaultdict(int)
        self._first: dict[int, int] = {}
        for row in records:
            self._first.setdefault(row["rank"], row["event"] or 0)
            pair = _find_pair(row)
            if pair and row["state"] == "completed":
                self._completed[row["rank"], group_id(row), pair] += 1

    def call_site(self, row: Facts, group: GroupId) -> CallSite | None:
        pair = _find_pair(row)
        if pair is None:
            return None  # the closing record of a batch: its members stand for it
        key = (row["rank"], group, pair)
        self._made[key] += 1
        lost = any(self._first.get(rank, 0) for rank in pair)
        return CallSite(group, self._made[key] - (self._completed[key] if lost else 0), pair)


def _find_pair(row: Facts) -> tuple[int, int] | None:
    """Return sender and receiver (None: no message, or unknown)."""
    if row["type"] not in ("send", "recv") or row["peer"] is None:
        return None
    rank = row["rank"]
    peer = row["peer"]
    return (rank, peer) if row["type"] == "send" else (peer, rank)


def _add_record(call: RecordedCall, row: Facts) -> None:
    """Add a record to a call, unless it closes a coalesced group: it would say nothing new."""
    closing = row["type"] == "coalesced" or (call.operations and row["in_shapes"] == "[]")
    if not (closing and call.operations):
        call.operations.append(row)
    call.states.add(row["state"] or "scheduled")
