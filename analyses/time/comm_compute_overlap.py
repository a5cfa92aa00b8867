"""How much communication hides behind compute."""

from typing import Annotated, Literal

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import (
    build_numbers,
    build_table,
    codes_of,
    decode_texts,
    number_or_null,
    rank_alphabetically,
    read_keys,
    read_numbers,
)
from htk.base.columns.groups import Groups, event_keys, row_of
from htk.base.columns.types import NONE, Ints, take_or
from htk.base.core.analysis import Later, analysis
from htk.base.core.chart import Bar
from htk.base.core.spread import BY_RANK
from htk.base.schema import BOOL, FLOAT64, INT32, INT64, TEXT, table
from htk.quantities.derived.exposure import share_out_time
from htk.quantities.derived.window_times import kind_times
from htk.quantities.derived.windows import fill_windows, kinds_of
from htk.quantities.measures import hta_conventions
from htk.quantities.measures.breakdown import (
    Compat,
    Per,
    build_percent,
    chosen_times,
    step_cycles,
    sum_windows,
)

By = Literal["total", "group", "collective"]

RETURNS = table(
    rank=(INT32, "Global rank."),
    device=(INT32, "GPU index within the process."),
    cycle=(INT32, "Recording of the rank that the step is of; null without a step."),
    step=(INT32, "GPU step; null for the whole window, or for what follows the last step."),
    complete=(BOOL, "False for a step that the recording holds a part of."),
    group=(TEXT, "Process group, when asked by group or collective; null: not recorded."),
    group_ranks=(TEXT, "Its global ranks, compact JSON."),
    type=(TEXT, "all_reduce, all_gather, …, when asked by collective."),
    event=(INT64, "Row of the collective in its rank's trace, when asked by collective."),
    comm_ns=(INT64, "At least one communication kernel runs."),
    compute_ns=(INT64, "At least one compute kernel runs; null by group or collective."),
    overlap_ns=(INT64, "Both run."),
    overlap_pct=(FLOAT64, "Overlap, of communication; null without communication."),
    exposed_comm_ns=(INT64, "Communication runs and no compute does."),
)


@analysis(
    returns=RETURNS,
    chart=Bar("rank", ("overlap_ns", "exposed_comm_ns")),
    needs=("rank_windows",),
    spread=BY_RANK,
)
def comm_compute_overlap(
    rank_window_times: Later,
    step_window_times: Later,
    activities: Later,
    collectives: Later,
    kernels: Later,
    kernel_links: Later,
    syncs: Later,
    launches: Later,
    annotations: Later,
    *,
    per: Annotated[Per, "What a row covers: a rank, or each of its GPU steps."] = "rank",
    by: Annotated[
        By, "What a row stands for: all communication, a process group, or a collective."
    ] = "total",
    compat: Annotated[Compat | None, "Count as HTA does, to compare with it."] = None,
) -> pa.Table:
    """How much of the communication is hidden behind compute?

    By group or collective, an instant with k of them active is shared 1/k between them, so that
    the rows of a window add up to its communication.
    """
    if compat == "hta":
        tables = (kernels, kernel_links, syncs, launches, annotations)
        counted, windows = hta_conventions.class_gpu_time(per, *(table() for table in tables))
        if by != "total":
            return _split_overlap(by, per, windows, counted, collectives())
        times = kind_times(counted, windows)
    else:
        windows, times = chosen_times(per, rank_window_times, step_window_times)
        if by != "total":
            return _split_overlap(by, per, windows, activities(), collectives())
    who, sums = sum_windows(
        per,
        windows,
        {
            "comm": times.any("comm"),
            "compute": times.any("compute"),
            "exposed": times.exposed("comm", "compute"),
        },
    )
    return _build_overlap_table(who, sums["comm"], sums["exposed"], sums["compute"])


def _build_overlap_table(
    who: dict[str, pa.Array], comm: Ints, exposed: Ints, compute: Ints | None = None
) -> pa.Table:
    columns = who | {
        "comm_ns": build_numbers(comm, INT64),
        "overlap_ns": build_numbers(comm - exposed, INT64),
        "overlap_pct": build_percent(comm - exposed, comm),
        "exposed_comm_ns": build_numbers(exposed, INT64),
    }
    if compute is not None:
        columns["compute_ns"] = build_numbers(compute, INT64)
    return build_table(RETURNS, columns, len(comm))


def _split_overlap(
    by: By, per: Per, windows: pa.Table, activities: pa.Table, collectives: pa.Table
) -> pa.Table:
    """Shared times of communication, added up by group or collective within each window."""
    filled = fill_windows(activities, windows)
    kinds = kinds_of(activities, filled.row)
    chosen = kinds.equals("comm")
    computing = filled.union(kinds.equals("compute"))
    start = filled.start[chosen]
    end = filled.end[chosen]
    row = filled.row[chosen]
    window = filled.window[chosen]
    of = row_of(event_keys(collectives), event_keys(activities))[row]
    group, groups = codes_of(collectives["group"])
    members, listed = codes_of(collectives["group_ranks"])
    kind, types = codes_of(collectives["type"])
    group = take_or(group, of)
    members = take_or(members, of)
    kind = take_or(kind, of)
    event = read_numbers(activities["event"])[row]
    step = read_numbers(windows["step"], NONE)[window]
    rank = read_keys(windows["rank"])[window]
    device = read_numbers(windows["device"], NONE)[window]
    cycle = step_cycles(windows, read_numbers(windows["step"], NONE))[window]
    single = by == "collective"
    keys = [
        rank,
        device,
        cycle,
        np.where((step < 0) & (per == "step"), np.iinfo(np.int32).max, step),
        rank_alphabetically(group, groups),
        rank_alphabetically(members, listed),
        event if single else np.full(len(row), -1),
    ]
    by_key = Groups.by_keys(np.stack(keys, axis=1).astype(np.int64))
    incomplete = (~np.asarray(windows["complete"].to_numpy(), bool))[window]
    first = by_key.first_row
    codes = kind[first] if single else np.full(len(first), -1)
    who = {
        "rank": number_or_null(rank[first], INT32),
        "device": number_or_null(device[first], INT32),
        "cycle": build_numbers(cycle[first], INT32, (step[first] >= 0) & (per == "step")),
        "step": build_numbers(step[first], INT32, (step[first] >= 0) & (per == "step")),
        "complete": pa.array(by_key.max(incomplete.astype(np.int64)) == 0),
        "group": decode_texts(group[first], groups),
        "group_ranks": decode_texts(members[first], listed),
        "type": decode_texts(codes, types),
        "event": build_numbers(event[first], INT64, np.full(len(first), single)),
    }
    comm = by_key.sum(share_out_time(start, end, None))
    return _build_overlap_table(who, comm, by_key.sum(share_out_time(start, end, computing)))
