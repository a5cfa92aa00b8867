"""What a rank does between two collectives of a group, and how that exceeds the fastest rank's."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import build_numbers, match_texts, read_keys, read_numbers, read_times
from htk.base.columns.groups import Groups, pair_columns, rows_by_number
from htk.base.columns.intervals import Spans, measure_covered, merge_spans, subtract_spans
from htk.base.columns.order import order_by
from htk.base.columns.types import NONE, Ints, Mask, fill_none
from htk.base.schema import INT64
from htk.base.schema.links import OWN_TIMES
from htk.quantities.derived.collective_rows import CollectiveRows
from htk.quantities.derived.sources import each_source

KINDS = ("compute", "comm", "memory")


@dataclass(frozen=True)
class OwnTime:
    """Time between collectives of a group on a rank; a row for each of `collectives`."""

    start: Ints
    end: Ints
    lane: Ints  # rank and device
    has_previous: Mask  # on this rank, in this group

    def parts(self, activities: pa.Table) -> Ints:
        """Return compute, other communication, other copies, and idle time of each, in ns."""
        start, end = read_times(activities)
        is_comm = match_texts(activities["kind"], "comm".__eq__)
        is_copy = match_texts(activities["kind"], "memory".__eq__)
        kinds = [~is_comm & ~is_copy, is_comm, is_copy]  # whole graphs are mostly computation
        parts = np.zeros((len(self.start), 4), np.int64)
        follows = np.flatnonzero(self.has_previous)
        own_of = rows_by_number(self.lane[follows])
        rows_of = rows_by_number(lanes_of(activities))
        for device in np.unique(self.lane).tolist():
            own = follows[own_of(device)]
            rows = rows_of(device)
            taken = Spans(np.empty(0, np.int64), np.empty(0, np.int64))
            for k, kind in enumerate(kinds):  # what runs beside an earlier kind is that kind's
                chosen = rows[kind[rows]]
                alone = subtract_spans(merge_spans(start[chosen], end[chosen]), taken)
                parts[own, k] = measure_covered(alone, self.end[own]) - measure_covered(
                    alone, self.start[own]
                )
                taken = merge_spans(
                    *(np.concatenate(pair) for pair in zip(taken, alone, strict=True))
                )
            parts[own, 3] = self.end[own] - self.start[own] - parts[own, :3].sum(axis=1)
        return parts


def own_times(collectives: pa.Table, activities: pa.Table) -> pa.Table:
    """Return what each rank did before each collective, row by row; sources apart."""
    return own_times_of(collectives, activities)


def own_times_of(
    collectives: pa.Table, activities: pa.Table, group: Ints | None = None
) -> pa.Table:
    """Return the own times of some ranks; `group` tells which calls are of one group where that
    takes the calls of all ranks."""
    parts = np.zeros((collectives.num_rows, len(OWN_TIMES)), np.int64)
    for among in each_source(collectives):
        table = collectives.filter(pa.array(among))
        rows = CollectiveRows(table)
        if group is not None:
            rows.group = group[among]
        parts[among] = own_time(rows, table).parts(activities)
    columns = [build_numbers(parts[:, k], INT64) for k in range(len(OWN_TIMES))]
    return pa.table(columns, OWN_TIMES)


def own_time(rows: CollectiveRows, collectives: pa.Table) -> OwnTime:
    """Return the time from the end of the group's previous collective on the rank to the start of
    each."""
    lane = _number_lanes(rows.rank, collectives)
    order = order_by(lane, rows.cycle, rows.group, rows.start)
    other = np.zeros(len(order), bool)
    for column in (lane, rows.cycle, rows.group):
        other[1:] |= column[order][1:] != column[order][:-1]
    first = np.append(True, other[1:])[: len(order)]
    before = np.append(NONE, order[:-1])[: len(order)]
    begin = rows.start.copy()
    begin[order] = np.where(first, rows.start[order], rows.end[before])
    has_previous = np.zeros(len(order), bool)
    has_previous[order] = ~first
    return OwnTime(np.minimum(begin, rows.start), rows.start, lane, has_previous & rows.timed)


def fastest_member(own: OwnTime, match: Ints, matched: Mask) -> Ints:
    """Return the row of the same collective with the least own time (NONE: not known)."""
    fastest = fill_none(len(match))
    chosen = np.flatnonzero(matched & own.has_previous)
    if len(chosen):
        members = Groups.by_keys(match[chosen])
        order = order_by(members.group_ids, own.end[chosen] - own.start[chosen])
        first = np.searchsorted(members.group_ids[order], np.arange(len(members)))
        fastest[chosen] = chosen[order[first]][members.group_ids]
    return fastest


def subtract_fastest(parts: Ints, fastest: Ints) -> Ints:
    """Return the parts less those of the fastest member; 0 where that is not known."""
    return np.where((fastest != NONE)[:, None], parts - parts[fastest], 0)


def lanes_of(table: pa.Table) -> Ints:
    """Return one number for each device of each rank, the same in every table."""
    return _number_lanes(read_numbers(table["rank"], NONE), table)


def _number_lanes(rank: Ints, table: pa.Table) -> Ints:
    return pair_columns(rank, read_keys(table["device"]))
