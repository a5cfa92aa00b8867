"""What bounds a step: the chain of work and waiting in which every delay delays the step."""

from typing import Annotated, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from htk.analysis import analysis, with_coverage
from htk.arrow import number, texts
from htk.chart import Bar
from htk.gate import Gate, gate
from htk.graph import Graph, build
from htk.graph_edges import KINDS
from htk.groups import Groups
from htk.replay import critical, replay
from htk.schema import TEXT, table

Ints = NDArray[np.int64]

RETURNS = table(
    what=(TEXT, "compute, communication, memory, waiting for a rank, host, launch, …"),
    name=(TEXT, "The activity or call at the end of the piece."),
    rank=(pa.int32(), "Global rank that it runs on."),
    count=(pa.int64(), "Pieces of the path that it stands for."),
    path_ns=(pa.int64(), "Their time on the path."),
    path_pct=(pa.float64(), "Of the whole path."),
    first_ns=(pa.int64(), "When the first of them begins, since the trace's first activity."),
    observed_pct=(pa.float64(), "Share of it on recorded, not inferred, dependencies."),
)

_WHAT = {
    "arrive": "communication",
    "transfer": "communication",
    "call": "host: launch and runtime calls",
    "think": "host: between calls",
    "handover": "host: from thread to thread",
    "launch": "launch latency",
    "stream": "gap between kernels",
    "event": "stream waits for stream",
    "sync": "host waits for GPU",
    "queue": "full queue",
}
_RUNS = ("compute", "communication", "memory")


@analysis(returns=RETURNS, chart=Bar("what", ("path_ns",)), needs=("kernels", "launches"))
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
    *,
    step: Annotated[int | None, "Which step; none: the steadiest."] = None,
    by: Annotated[Literal["kind", "event"], "Rows by kind or by event."] = "kind",
    n: Annotated[int, "Rows of events to show; 0: all."] = 30,
) -> pa.Table:
    """What bounds the step: which work lies on its critical path?

    The path ends with the step's last activity and goes back over whatever came last of what each
    piece waited for, over CPU threads, streams and, where they are at hand, all ranks.
    """
    given = locals()
    tables = {name: given[name] for name in critical_path.reads}
    graph = build(tables, step)
    replayed = replay(graph)
    path = critical(graph, replayed.time)
    judged = gate(tables, graph, replayed)
    rows = _rows(graph, path, replayed.time, by == "event", n)
    return with_coverage(rows, **_facts(graph, judged))


def _facts(graph: Graph, judged: Gate) -> dict[str, object]:
    return {
        "step": graph.step,
        "step_ns": graph.period_ns,
        "ranks": graph.ranks,
        "verdict": judged.verdict,
        "step_error_pct": round(judged.step_error_pct, 3),
        "exposed_error_points": round(judged.exposed_error_points, 3),
        "start_error_pct": round(judged.start_error_pct, 3),
        "held_out_error_pct": judged.held_out_error_pct,
        "observed_path_pct": round(judged.observed_path_pct, 1),
        "edges_against_the_clock": graph.dropped,
    }


def _rows(graph: Graph, path: Ints, time: Ints, by_event: bool, n: int) -> pa.Table:
    length = np.maximum(graph.weight[path], 0)
    what, names, rank = _described(graph, path)
    kinds, kind = np.unique(what, return_inverse=True)
    events, event = np.unique(names, return_inverse=True)
    keys = np.column_stack([kind, event, rank] if by_event else [kind])
    groups = Groups.of(keys.astype(np.int64))
    total = groups.sum(length)
    seen = groups.sum(np.where(graph.observed[path], length, 0))
    first = groups.min(time[graph.src[path]])
    order = np.lexsort((groups.keys[:, 0], -total)) if len(groups) else np.empty(0, np.int64)
    order = order[: n or None] if by_event else order
    at = groups.first[order]
    share = 100.0 / max(int(length.sum()), 1)
    columns = [
        texts([str(kinds[k]) for k in kind[at]]),
        texts([str(events[k]) if by_event else None for k in event[at]]),
        number(rank[at], pa.int32(), np.full(len(at), by_event)),
        number(groups.count[order], pa.int64()),
        number(total[order], pa.int64()),
        number(total[order] * share, pa.float64()),
        number(first[order], pa.int64()),
        number(100.0 * seen[order] / np.maximum(total[order], 1), pa.float64()),
    ]
    return pa.table(columns, schema=RETURNS)


def _described(graph: Graph, path: Ints) -> tuple[NDArray[np.str_], NDArray[np.str_], Ints]:
    """Kind, name and rank of each piece of the path: of the event at its head."""
    acts, calls = graph.activities, graph.calls
    of_act, of_call = np.full((2, len(graph.time)), -1, np.int64)
    of_act[graph.start] = of_act[graph.end] = np.arange(len(acts.row))
    of_call[graph.call_start] = of_call[graph.call_end] = np.arange(len(calls.row))
    what, names, ranks = [], [], []
    for edge in path.tolist():  # a path is a small part of the graph
        head, tail = int(graph.dst[edge]), int(graph.src[edge])
        node = head if of_act[head] >= 0 or of_call[head] >= 0 else tail
        kind = KINDS[int(graph.kind[edge])]
        act, call = int(of_act[node]), int(of_call[node])
        what.append(_RUNS[int(acts.kind[act])] if kind == "run" else _WHAT[kind])
        names.append(acts.names[acts.name[act]] if act >= 0 else calls.names[calls.name[call]])
        ranks.append(int(acts.rank[act] if act >= 0 else calls.rank[call]))
    return np.array(what, np.str_), np.array(names, np.str_), np.array(ranks, np.int64)
