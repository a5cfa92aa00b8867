"""What bounds a step: the chain of work and waiting in which every delay delays the step."""

from typing import Annotated, Literal

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import number, texts
from htk.base.columns.groups import Groups
from htk.base.core.analysis import analysis, with_coverage
from htk.base.core.chart import Bar
from htk.base.core.spread import AtCollectives
from htk.base.schema import FLOAT64, INT32, INT64, TEXT, table
from htk.quantities.graph.critical_path import PathEdges, PathEvents, StepPath
from htk.quantities.graph.fidelity import step_path

RETURNS = table(
    what=(TEXT, "compute, communication, memory, waiting for a rank, host, launch, …"),
    name=(TEXT, "The activity or call at the end of the piece."),
    rank=(INT32, "Global rank that it runs on."),
    count=(INT64, "Pieces of the path that it stands for."),
    path_ns=(INT64, "Their time on the path."),
    path_pct=(FLOAT64, "Of the whole path."),
    first_ns=(INT64, "When the first of them begins, since the trace's first activity."),
    last_ns=(INT64, "When the last of them ends."),
    event=(INT64, "Of pieces: row of the event in its rank's trace."),
    observed_pct=(FLOAT64, "Share of it on recorded, not inferred, dependencies."),
)


def _answer(path: StepPath, *, by: str, n: int, step: int | None = None) -> pa.Table:
    rows = _rows(path.edges, path.events, by)
    if by == "event":
        rows = rows.slice(0, n or None)
    return with_coverage(rows, **path.facts)


@analysis(
    returns=RETURNS,
    chart=Bar("what", ("path_ns",)),
    needs=("kernels", "launches"),
    spread=AtCollectives(finish=_answer),
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
    piece waited for, over CPU threads, streams and, where recorded, all ranks. Pieces are
    all there, first to last; `htk overlay` draws them into the trace.
    """
    arguments = locals()
    tables = {name: arguments[name] for name in critical_path.reads}
    return _answer(step_path(tables, step), by=by, n=n)


def _rows(path: PathEdges, events: PathEvents, by: str) -> pa.Table:
    length = np.maximum(path.weight, 0)
    kinds, kind = np.unique(events.whats(), return_inverse=True)
    names, name = np.unique(events.name, return_inverse=True)
    position = np.arange(len(length))
    keys = {"kind": [kind], "event": [kind, name, events.rank], "piece": [position]}[by]
    groups = Groups.by_keys(keys)
    total = groups.sum(length)
    seen = groups.sum(np.where(path.observed, length, 0))
    order = np.lexsort((groups.keys[:, 0], *([] if by == "piece" else [-total])))
    first = groups.first_row[order]
    one_rank = np.full(len(first), by != "kind")
    rows = events.event[first]
    columns = [
        texts([str(kinds[k]) for k in kind[first]]),
        texts([str(names[k]) if by != "kind" else None for k in name[first]]),
        number(events.rank[first], INT32, one_rank),
        number(groups.count[order], INT64),
        number(total[order], INT64),
        number(total[order] * (100.0 / max(int(length.sum()), 1)), FLOAT64),
        number(groups.min(path.begin)[order], INT64),
        number(groups.max(path.end)[order], INT64),
        number(rows, INT64, (rows >= 0) & (by == "piece")),
        number(100.0 * seen[order] / np.maximum(total[order], 1), FLOAT64),
    ]
    return pa.table(columns, schema=RETURNS)
