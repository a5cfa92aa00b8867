"""What the host waits for, and what that costs the GPU."""

import re
from typing import Annotated

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import (
    build_numbers,
    build_texts,
    codes_of,
    match_texts,
    number_or_null,
    read_numbers,
)
from htk.base.columns.groups import Groups, split_pairs
from htk.base.columns.order import order_by
from htk.base.columns.types import Ints, fill_none, take_or
from htk.base.core.analysis import analysis, with_coverage
from htk.base.core.chart import Bar
from htk.base.schema import INT32, INT64, TEXT, table
from htk.quantities.derived.explained_idle import CAUSES, Stalls, device_pieces, explain_idle
from htk.quantities.derived.host_states import OPERATOR, SYNC, SYSTEM

RETURNS = table(
    rank=(INT32, "Global rank."),
    cause=(
        TEXT,
        "synchronising call, .item, copy that blocks, allocation, data loading, system call, …; "
        "operator: an ordinary one that kept the host for at least 1 ms while a GPU was idle.",
    ),
    name=(TEXT, "Call, range or function."),
    stack=(TEXT, "Operators round it, outermost first."),
    count=(INT64, "Occurrences."),
    host_ns=(INT64, "Their durations, added up."),
    gpu_idle_caused_ns=(
        INT64,
        "GPU idle while they ran; after a blocking call also until the next launch arrived, at "
        "most as long as it blocked.",
    ),
)

_ITEM = re.compile(r"aten::(item|_local_scalar_dense|is_nonzero|equal|nonzero)$")
_OF_ITEM = 14
_OF_COPY = 15
_LABELS = CAUSES | {_OF_ITEM: ".item", _OF_COPY: "copy that blocks"}


@analysis(
    returns=RETURNS,
    chart=Bar("name", ("host_ns", "gpu_idle_caused_ns"), stacked=False, horizontal=True),
    null_without={"kernels": ("gpu_idle_caused_ns",)},
)
def host_stalls(
    stalls: pa.Table,
    launches: pa.Table,
    cpu_ops: pa.Table,
    op_links: pa.Table,
    annotations: pa.Table,
    python_calls: pa.Table,
    idle_causes: pa.Table,
    *,
    n: Annotated[int, "Rows to show, longest idle time first; 0: all."] = 20,
) -> pa.Table:
    """What does the host wait for (synchronising, allocating, loading, compiling), at what cost?

    A blocking call costs the GPU what is idle during it, and also what is idle afterwards when
    the GPU ran dry meanwhile: until the next launch arrives, but no longer than it blocked, since
    without it the host would have been no more than that ahead. What is idle beyond that is laid
    to what the host did then. Each idle nanosecond of a device counts once.
    """
    recorded = any(t.num_rows for t in (launches, cpu_ops, annotations, python_calls))
    shown, caused = _cost_stalls(Stalls.from_table(stalls), idle_causes)
    paths, labels = _number_call_paths(cpu_ops, op_links, np.unique(shown.op[shown.op >= 0]))
    path = take_or(paths, shown.op)
    cause = _find_causes(shown, cpu_ops)
    keys = np.stack([split_pairs(shown.host)[0], cause, shown.name, path], axis=1)
    groups = Groups.by_keys(keys.astype(np.int64))
    idle = groups.sum(caused)
    lasted = groups.sum(shown.end - shown.start)
    order = order_by(-idle, -lasted)[: n or None]
    rank, cause, name, path = groups.keys[order].reshape(-1, 4).T
    table = pa.table(
        [
            number_or_null(rank, INT32),
            build_texts([_LABELS[c] for c in cause.tolist()]),
            build_texts([shown.names[k] for k in name.tolist()]),
            build_texts([labels.get(p) for p in path.tolist()]),
            build_numbers(groups.count[order], INT64),
            build_numbers(lasted[order], INT64),
            build_numbers(idle[order], INT64),
        ],
        schema=RETURNS,
    )
    facts = {"stalls": len(groups), "gpu_idle_caused_ns": int(caused.sum())}
    facts |= {"host_recorded": recorded, "python_recorded": python_calls.num_rows > 0}
    return with_coverage(table, **facts)


def _cost_stalls(stalls: Stalls, idle_causes: pa.Table) -> tuple[Stalls, Ints]:
    """Return the stalls to show, and the idle time of devices that each explains; operators and
    calls of the operating system are shown where they explain some."""
    pieces = device_pieces(idle_causes)
    stall, idle = explain_idle(stalls, pieces)
    caused = np.zeros(len(stalls.start), np.int64)
    np.add.at(caused, stall[stall >= 0], idle[stall >= 0])
    shown = ~np.isin(stalls.state, (OPERATOR, SYSTEM)) | (caused > 0)
    return stalls.where(shown), caused[shown]


def _find_causes(stalls: Stalls, cpu_ops: pa.Table) -> Ints:
    """Return the state, with blocking calls told apart."""
    item = np.append(match_texts(cpu_ops["name"], lambda n: bool(_ITEM.search(n))), False)
    copies = np.array([bool(name and "emcpy" in name) for name in stalls.names])
    block = stalls.state == SYNC
    kinds = [block & item[stalls.op], block & copies[stalls.name]]
    return np.select(kinds, [_OF_ITEM, _OF_COPY], stalls.state).astype(np.int64)


def _number_call_paths(
    cpu_ops: pa.Table, op_links: pa.Table, wanted: Ints
) -> tuple[Ints, dict[int, str]]:
    """Number of each wanted operator's chain of callers, and the chains in words."""
    parent = read_numbers(op_links["parent_row"], -1)
    depth = read_numbers(op_links["depth"]).astype(np.int64)
    codes, dictionary = codes_of(cpu_ops["name"])
    path = fill_none(cpu_ops.num_rows)
    rows = needed = wanted
    while len(rows):  # as often as operators are nested
        rows = np.unique(parent[rows])
        rows = rows[rows >= 0]
        needed = np.concatenate([needed, rows])
    needed = np.unique(needed)
    labels: dict[int, str] = {}
    for level in np.unique(depth[needed]).tolist():
        of_level = needed[depth[needed] == level]
        above = take_or(path, parent[of_level])
        groups = Groups.by_keys(np.stack([above, codes[of_level].astype(np.int64)], axis=1))
        first = len(labels)
        for k, (outer, name) in enumerate(groups.keys.tolist()):  # distinct chains
            own = dictionary[name].as_py() if name >= 0 else "?"
            labels[first + k] = f"{labels[outer]} > {own}" if outer >= 0 else own
        path[of_level] = first + groups.group_ids
    return path, labels
