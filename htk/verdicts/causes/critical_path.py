"""What bounds a step: the chain of work and waiting in which every delay delays the step."""

from typing import Annotated, Literal

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import build_numbers, build_texts
from htk.base.columns.groups import Groups
from htk.base.core.analysis import analysis, with_coverage
from htk.base.core.chart import Bar
from htk.base.core.spread import AtCollectives
from htk.base.schema import FLOAT64, INT32, INT64, TEXT, table
from htk.quantities.graph.critical_path import StepPath
from htk.quantities.graph.fidelity import step_path

RETURNS = table(
    what=(TEXT, "compute, communication, memory, waiting for a rank, host, launch, …"),
    name=(TEXT, "The activity or call at the end of the piece."),
    rank=(INT32, "Global rank that it runs on."),
    count=(INT64, "Pieces of the path that it stands for."),
    path_ns=(INT64, "Their time on the path."),
    path_pct=(FLOAT64, "Of the whole path."),
    start_ns=(
        INT64,
        "When the first of them begins, on aligned clocks; the step's start at least.",
    ),
    end_ns=(INT64, "When the last of them ends."),
    event=(INT64, "Of pieces: row of the event in its rank's trace."),
    observed_pct=(FLOAT64, "Share of it on recorded, not inferred, dependencies."),
)


def _build_answer(path: StepPath, *, by: str, n: int, step: int | None = None) -> pa.Table:
    rows = _build_path_rows(path, by)
    if by == "event":
        rows = rows.slice(0, n or None)
    return with_coverage(rows, **path.facts)


@analysis(
    returns=RETURNS,
    chart=Bar("what", "path_ns", horizontal=True),
    needs=("kernels", "launches"),
    spread=AtCollectives(finish=_build_answer),
)
def critical_path(
    kernels: pa.Table,
    kernel_links: pa.Table,
    launches: pa.Table,
    launch_links: pa.Table,
    step_windows: pa.Table,
    rank_windows: pa.Table,
    syncs: pa.Table,
    cpu_ops: pa.Table,
    op_links: pa.Table,
    collectives: pa.Table,
    collective_matches: pa.Table,
    rank_clocks: pa.Table,
    annotations: pa.Table,
    *,
    step: Annotated[int | None, "Number of the step; by default the steadiest."] = None,
    by: Annotated[
        Literal["kind", "event", "piece"],
        "What a row stands for: a kind of time, an event, or a piece of the path.",
    ] = "kind",
    n: Annotated[int, "Rows to show of events; 0: all."] = 20,
) -> pa.Table:
    """What bounds the step: which work lies on its critical path?

    The path ends with the step's last activity and goes back over whatever came last of what each
    piece waited for, over CPU threads, streams and, where recorded, all ranks, as far as the
    step's start. The time before its first call is a piece of its own, named data loading where
    recorded ranges of that fill half of it. Pieces are all there, first to last; `htk overlay`
    draws them into the trace.
    """
    arguments = locals()
    tables = {name: arguments[name] for name in critical_path.reads}
    return _build_answer(step_path(tables, step), by=by, n=n)


def _build_path_rows(path: StepPath, by: str) -> pa.Table:
    edges = path.edges
    pieces = np.flatnonzero(edges.end > path.low)
    begin = np.maximum(edges.begin[pieces], path.low)
    end = edges.end[pieces]
    length = edges.within(path.low)[pieces]
    what = path.events.whats()[pieces]
    event_name = path.events.name[pieces]
    rank = path.events.rank[pieces]
    event = path.events.event[pieces]
    observed = edges.observed[pieces]
    if len(pieces) and begin[0] > path.low:
        begin, end = np.append(path.low, begin), np.append(begin[0], end)
        length = np.append(end[0] - begin[0], length)
        what = np.append(path.lead, what)
        event_name = np.append(event_name[0], event_name)
        rank = np.append(rank[0], rank)
        event = np.append(event[0], event)
        observed = np.append(False, observed)
    kinds, kind = np.unique(what, return_inverse=True)
    names, name = np.unique(event_name, return_inverse=True)
    position = np.arange(len(length))
    keys = {"kind": [kind], "event": [kind, name, rank], "piece": [position]}[by]
    groups = Groups.by_keys(keys)
    total = groups.sum(length)
    seen = groups.sum(np.where(observed, length, 0))
    order = np.lexsort((groups.keys[:, 0], *([] if by == "piece" else [-total])))
    first = groups.first_row[order]
    one_rank = np.full(len(first), by != "kind")
    rows = event[first]
    columns = [
        build_texts([str(kinds[k]) for k in kind[first]]),
        build_texts([str(names[k]) if by != "kind" else None for k in name[first]]),
        build_numbers(rank[first], INT32, one_rank),
        build_numbers(groups.count[order], INT64),
        build_numbers(total[order], INT64),
        build_numbers(total[order] * (100.0 / max(int(length.sum()), 1)), FLOAT64),
        build_numbers(groups.min(begin)[order] + path.origin_ns, INT64),
        build_numbers(groups.max(end)[order] + path.origin_ns, INT64),
        build_numbers(rows, INT64, (rows >= 0) & (by == "piece")),
        build_numbers(100.0 * seen[order] / np.maximum(total[order], 1), FLOAT64),
    ]
    return pa.table(columns, schema=RETURNS)
