"""Collectives beside what NCCL's proxy threads did meanwhile."""

from typing import Annotated, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from htk.base.columns.arrow import (
    build_booleans,
    build_numbers,
    build_table,
    codes_of,
    decode_texts,
    match_texts,
    number_or_null,
    read_booleans,
)
from htk.base.columns.groups import Groups
from htk.base.columns.order import order_by
from htk.base.columns.types import NONE, Ints, Mask
from htk.base.core.analysis import analysis, with_coverage
from htk.base.core.chart import Bar
from htk.base.core.humanize import format_int_ranges
from htk.base.schema import BOOL, INT32, INT64, STRING, TEXT, table
from htk.quantities.derived.nccl_pairs import PROFILER
from htk.quantities.measures.collective_calls import CollectiveCalls, clock_facts
from htk.quantities.measures.proxy_time import DIRECTIONS, PARTS, ProxySteps, ProxyTime, proxy_time

PLUGIN = "profiler_plugin"
_SEND, _RECEIVE = range(len(DIRECTIONS))
_ONLY = {"peer_wait": _SEND, "network": _SEND, "data_wait": _RECEIVE, "flush": _RECEIVE}

RETURNS = table(
    rank=(INT32, "Global rank."),
    direction=(TEXT, "send or receive."),
    peer=(INT32, "Global rank at the other end, or in the communicator, by channel and link."),
    channel=(INT32, "Channel, by channel."),
    match=(INT64, "Number of the collective over all ranks, by call and channel."),
    group=(TEXT, "Process group name, by call and channel."),
    type=(TEXT, "all_reduce, all_gather, …, by call and channel."),
    joined_by=(TEXT, "How the record of the proxy was found: time, order, sequence."),
    guessed=(BOOL, "It may be another call's (by link: of some call)."),
    collectives=(INT64, "Collectives."),
    aligned_start_ns=(INT64, "Start, on the common clock; of several the first."),
    duration_ns=(INT64, "Duration of the collectives on the GPU."),
    wait_ns=(INT64, "Of it waiting for other ranks."),
    transfer_ns=(INT64, "Of it transfer."),
    proxy_ns=(INT64, "Time in which the proxy had a step open in this direction."),
    gpu_wait_ns=(INT64, "Of it waiting for the GPU: to fill a buffer, or to empty one."),
    peer_wait_ns=(INT64, "Of it waiting until the receiver has room."),
    network_ns=(INT64, "Of it waiting for the network to take what is sent."),
    data_wait_ns=(INT64, "Of it waiting for data: for the sender or the network, cannot be told."),
    flush_ns=(INT64, "Of it flushing received data to the GPU."),
    steps=(INT64, "Buffers that were moved."),
)


@analysis(returns=RETURNS, chart=Bar("rank", "proxy_ns", "direction"), needs=("proxy_steps",))
def comm_proxy(
    proxy_steps: pa.Table,
    collectives: pa.Table,
    collective_matches: pa.Table,
    aligned_matches: pa.Table,
    collective_facts: pa.Table,
    ranks: pa.Table,
    *,
    by: Annotated[
        Literal["call", "channel", "link"],
        "What a row stands for: a rank's part of a collective, its part to one peer on one "
        "channel, or all collectives to one peer; sends and receives apart.",
    ] = "call",
    n: Annotated[int, "Rows to show, most time outside the GPU first; 0: all."] = 20,
    align: Annotated[bool, "Align the clocks of all ranks."] = True,
) -> pa.Table:
    """What did NCCL's proxies wait for in each collective: the GPU, the peer, the network?

    Proxy steps of NCCL's profiler plugin beside the profiler's collectives of the same run, joined
    by communicator, rank and sequence number, where those are not enough by time and order: what
    order alone tells is marked as a guess. Each rank's proxy has a clock of its own: only its
    durations are used. Without the profiler, the plugin's own collectives.
    """
    profiled = pc.any(pc.equal(collectives["source"].cast(STRING), PROFILER)).as_py()
    source = PROFILER if profiled else PLUGIN
    of_source = pa.array(match_texts(collectives["source"], source.__eq__))
    rows = collectives.filter(of_source)
    matches = (aligned_matches if align else collective_matches).filter(of_source)
    records = _join_records(rows, collective_facts.filter(of_source))
    calls = CollectiveCalls.from_tables(rows, matches, ranks)
    steps = ProxySteps.from_records(proxy_steps, records)
    of_call = steps.only(steps.call != NONE)
    answer = _build_answer(calls, records, of_call, by)
    has_steps = np.unique(of_call.call)
    ways, names = codes_of(records["joined_by"])
    joined_by = {n: int((ways[has_steps] == k).sum()) for k, n in enumerate(names.to_pylist()) if n}
    facts = {
        "collectives": calls.rows.length,
        "with_proxy_steps": len(has_steps),
        "joined_by": joined_by or None,
        "guessed": int(read_booleans(records["guessed"])[has_steps].sum()),
        "ranks_without_proxy_steps": _ranks_without(calls, has_steps),
        "proxy_states": len(steps.call),
        "proxy_states_of_no_collective": int((steps.call == NONE).sum()),
        "proxy_states_without_end": steps.untimed,
        **clock_facts(align),
    }
    return with_coverage(answer.slice(0, n or None), **facts)


def _join_records(rows: pa.Table, facts: pa.Table) -> pa.Table:
    """Return the plugin's record of each call, and how it was found; the call itself is one where
    the plugin recorded it."""
    own = match_texts(rows["source"], PLUGIN.__eq__)
    other = match_texts(facts["record_from"], PLUGIN.__eq__)
    names = {"comm_hash": "comm_hash", "comm_rank": "comm_rank", "event": "record_event"}
    keys = [
        pc.if_else(pa.array(own), rows[n], pc.if_else(pa.array(other), facts[of_fact], None))
        for n, of_fact in names.items()
    ]
    has = pa.array(other)
    how = [pc.if_else(has, facts[n], None) for n in ("joined_by", "guessed")]
    return pa.table([*keys, *how], names=[*names, "joined_by", "guessed"])


def _ranks_without(calls: CollectiveCalls, has_steps: Ints) -> str | None:
    """Return the ranks of which no collective has steps."""
    ranks = np.unique(calls.rows.rank[calls.rows.rank >= 0])
    without = np.setdiff1d(ranks, calls.rows.rank[has_steps]).tolist()
    return format_int_ranges(without) if without else None


def _build_answer(
    calls: CollectiveCalls, records: pa.Table, steps: ProxySteps, by: str
) -> pa.Table:
    peer = _global_peers(calls, steps)
    keys = [steps.call, steps.direction]
    if by == "channel":
        keys += [steps.channel, peer]
    if by == "link":
        keys += [peer]
    groups = Groups.by_keys(keys)
    spent = proxy_time(steps, groups)
    call = groups.keys[:, 0]
    direction = groups.keys[:, 1]
    guessed = read_booleans(records["guessed"])[call]
    rows = Groups.by_keys(np.arange(len(groups)))
    if by == "link":
        rows = Groups.by_keys([calls.rows.rank[call], direction, peer[groups.first_row]])
    first = call[rows.first_row]
    columns = {
        **_build_name_columns(calls, records, first, by),
        "direction": decode_texts(direction[rows.first_row], pa.array(DIRECTIONS)),
        "collectives": build_numbers(rows.count, INT64),
        "guessed": build_booleans(rows.max(guessed.astype(np.int64)) > 0),
        **_build_gpu_times(calls, call, rows),
        **_build_proxy_times(spent, direction, rows, steps),
    }
    if by != "call":
        own_peer = peer[groups.first_row][rows.first_row]
        columns["peer"] = build_numbers(own_peer, INT32, own_peer != NONE)
    if by == "channel":
        own_channel = steps.channel[groups.first_row]
        columns["channel"] = build_numbers(own_channel, INT32, own_channel != NONE)
    answer = build_table(RETURNS, columns, len(rows))
    outside = rows.sum(spent.open_ns - spent.part_ns[:, PARTS.index("gpu_wait")])
    return answer.take(pa.array(order_by(-outside)))


def _global_peers(calls: CollectiveCalls, steps: ProxySteps) -> Ints:
    """Return the peer of each step as a global rank where the group's ranks are known."""
    codes, listed = calls.rows.group_ranks
    peer = steps.peer.copy()
    code = codes[steps.call]
    for k, members in enumerate(listed):  # a few groups
        inside = np.flatnonzero((code == k) & (peer >= 0) & (peer < len(members)))
        peer[inside] = np.array(members, np.int64)[peer[inside]]
    return peer


def _build_name_columns(
    calls: CollectiveCalls, records: pa.Table, first: Ints, by: str
) -> dict[str, pa.Array | pa.ChunkedArray]:
    """Return who each row is of, from its first call."""
    rank = calls.rows.rank[first]
    columns: dict[str, pa.Array | pa.ChunkedArray] = {"rank": number_or_null(rank, INT32)}
    if by != "link":
        taken = pa.array(first)
        match = calls.match[first]
        columns["match"] = build_numbers(match, INT64, match != NONE)
        columns |= {name: calls.table[name].take(taken) for name in ("group", "type")}
        columns["joined_by"] = records["joined_by"].take(taken)
    return columns


def _build_gpu_times(calls: CollectiveCalls, call: Ints, rows: Groups) -> dict[str, pa.Array]:
    """Return what the recording of the GPU says of the calls of each row."""
    timed = calls.rows.timed[call]
    has_wait = calls.waits.has_wait[call]
    start = calls.rows.start[call] + calls.correction[call]
    duration = np.where(timed, calls.rows.end[call] - calls.rows.start[call], 0)
    every = rows.min(timed.astype(np.int64)) > 0
    waited = rows.min(has_wait.astype(np.int64)) > 0
    return {
        "aligned_start_ns": build_numbers(rows.min(start), INT64, every),
        "duration_ns": build_numbers(rows.sum(duration), INT64, every),
        "wait_ns": build_numbers(rows.sum(calls.waits.wait[call]), INT64, waited),
        "transfer_ns": build_numbers(rows.sum(calls.waits.transfer[call]), INT64, waited),
    }


def _build_proxy_times(
    spent: ProxyTime, direction: Ints, rows: Groups, steps: ProxySteps
) -> dict[str, pa.Array]:
    """Return the proxy's time and its parts; null: a direction has no such part, or NCCL is too old
    to record that a sender waits for its peer."""
    every = np.ones(len(rows), bool)
    columns = {
        "proxy_ns": build_numbers(rows.sum(spent.open_ns), INT64, every),
        "steps": build_numbers(rows.sum(spent.steps), INT64, every),
    }
    of_row = direction[rows.first_row]
    for k, part in enumerate(PARTS):
        has: Mask = of_row == _ONLY.get(part, of_row)
        if part == "peer_wait":
            has = has & bool((steps.part == k).any())
        columns[f"{part}_ns"] = build_numbers(rows.sum(spent.part_ns[:, k]), INT64, has)
    return columns
