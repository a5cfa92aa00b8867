"""Time in which communication runs and no compute does, shared by those that run at that time.

An instant with k collectives active belongs to each of them by 1/k, so that rows add up to the
whole. A nanosecond is never split: what a division leaves over goes to the first ones.
"""

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import (
    build_numbers,
    mark_valid,
    match_texts,
    read_keys,
    read_numbers,
    read_times,
)
from htk.base.columns.groups import Groups, rows_by_number
from htk.base.columns.intervals import Spans, clip_spans, merge_spans, subtract_spans
from htk.base.columns.order import order_by
from htk.base.columns.segments import repeat_rows
from htk.base.columns.types import NONE, Ints, Mask
from htk.base.schema import INT64
from htk.base.schema.links import COLLECTIVE_SHARES
from htk.quantities.derived.collective_rows import CollectiveRows
from htk.quantities.derived.sources import each_source


def collective_shares(
    collectives: pa.Table, aligned_matches: pa.Table, activities: pa.Table
) -> pa.Table:
    """Return what of a device's time each collective takes, row by row; sources apart."""
    columns = np.zeros((4, collectives.num_rows), np.int64)
    timed = np.zeros(collectives.num_rows, bool)
    for among in each_source(collectives):
        own = collectives.filter(pa.array(among))
        matches = aligned_matches.filter(pa.array(among))
        rows = CollectiveRows(own)
        waiting, unknown, moving = shares_of(rows, matches, activities)
        of_source = np.flatnonzero(among)[rows.timed]
        columns[0, of_source] = waiting[:, 0] + unknown[:, 0] + moving[:, 0]
        columns[1:, of_source] = waiting[:, 1], moving[:, 1], unknown[:, 1]
        timed[of_source] = True
    named = zip(COLLECTIVE_SHARES.names, columns, strict=True)
    return pa.table({name: build_numbers(c, INT64, timed) for name, c in named}, COLLECTIVE_SHARES)


def shares_of(rows: CollectiveRows, matches: pa.Table, activities: pa.Table) -> Ints:
    """Return the shared time of each timed row, and that without compute: while it waits, while it
    waits or transfers, while it transfers. On a rank's own clock, as compute is.

    A group of one rank has nobody to wait for: all of it is transfer.
    """
    timed = np.flatnonzero(rows.timed)
    start = rows.start[timed]
    end = rows.end[timed]
    wait = read_numbers(matches["wait_ns"], NONE)[timed]
    transfer = read_numbers(matches["transfer_ns"], NONE)[timed]
    alone = rows.group_size[timed] == 1
    wait = np.where(alone, 0, wait)
    transfer = np.where(alone, end - start, transfer)
    has_wait = wait != NONE
    after_wait = start + np.where(has_wait, wait, 0)
    edges = (start, after_wait, end - np.where(has_wait, transfer, 0), end)
    lane = lanes_of(rows.table)
    lane[:, 0] = rows.rank
    lane = np.tile(lane[timed], (3, 1))
    begin = np.concatenate(edges[:3])
    finish = np.concatenate(edges[1:])
    finish = np.where(np.tile(on_gpu(rows)[timed], 3), finish, begin)
    return comm_shares(activities, lane, begin, finish).reshape(3, len(timed), 2)


def on_gpu(rows: CollectiveRows) -> Mask:
    """Return which rows ran on a GPU."""
    return np.asarray(
        (read_numbers(rows.table["device"], NONE) != NONE) | mark_valid(rows.table["stream"])
    )


def comm_shares(activities: pa.Table, lane: Ints, start: Ints, end: Ints) -> Ints:
    """For each span: its shared part of the time that spans run, and of that without compute.

    A column each. Spans are collectives or parts of them; what shares its time with what is told by
    rank, cycle and device, the columns of `lane`.
    """
    shares = np.zeros((len(start), 2), np.int64)
    compute = np.flatnonzero(match_texts(activities["kind"], "compute".__eq__))
    begin, finish = read_times(activities, compute)
    lanes = Groups.by_keys(np.concatenate([lane, lanes_of(activities)[compute]])).group_ids
    ours = lanes[: len(lane)]
    theirs = lanes[len(lane) :]
    own_rows = rows_by_number(ours)
    busy_rows = rows_by_number(theirs)
    for lane_id in np.unique(ours).tolist():  # one device after the other
        spans = own_rows(lane_id)
        spans = spans[end[spans] > start[spans]]
        busy = busy_rows(lane_id)
        computing = merge_spans(begin[busy], finish[busy])
        shares[spans, 0] = share_out_time(start[spans], end[spans], None)
        shares[spans, 1] = share_out_time(start[spans], end[spans], computing)
    return shares


def lanes_of(table: pa.Table) -> Ints:
    """Rank, cycle and device of each row."""
    columns = (read_keys(table[c]) for c in ("rank", "cycle", "device"))
    return np.column_stack(list(columns))


def share_out_time(start: Ints, end: Ints, covered: Spans | None) -> Ints:
    """Shared time of each span outside what is covered."""
    if not len(start):
        return np.empty(0, np.int64)
    if covered is None:
        return _split_spans(np.arange(len(start)), start, end, len(start))
    extent = Spans(np.array([start.min()]), np.array([end.max()]))
    free = subtract_spans(extent, covered)
    pieces = clip_spans(start, end, free.start, free.end)
    some = pieces.end > pieces.start
    return _split_spans(pieces.row[some], pieces.start[some], pieces.end[some], len(start))


def _split_spans(row: Ints, start: Ints, end: Ints, length: int) -> Ints:
    """Pieces of rows cut where any of them begins or ends, each cut shared by those that run in
    it."""
    total = np.zeros(length, np.int64)
    if not len(row):
        return total
    edges = np.unique(np.concatenate([start, end]))
    first = np.searchsorted(edges, start)
    last = np.searchsorted(edges, end)
    count = last - first
    owner, nth = repeat_rows(count)
    segment = first[owner] + nth
    order = order_by(segment, row[owner])
    owner = owner[order]
    segment = segment[order]
    active = np.bincount(segment, minlength=len(edges))[segment]
    new = np.append(True, segment[1:] != segment[:-1])
    rank_in_segment = np.arange(len(segment)) - np.maximum.accumulate(
        np.where(new, np.arange(len(segment)), 0)
    )
    width = edges[np.minimum(segment + 1, len(edges) - 1)] - edges[segment]
    share = width // active + (rank_in_segment < width % active)
    np.add.at(total, row[owner], share)
    return total
