"""What the host waits for, and what that costs the GPU."""

import re
from collections.abc import Callable
from typing import Annotated, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from htk.columns.arrow import codes_of, matching, number, numbers, texts, truths, valid
from htk.columns.groups import Groups, hosts, unpaired
from htk.columns.types import Ints
from htk.core.analysis import analysis, with_coverage
from htk.core.chart import Bar
from htk.derived.host_states import (
    ALLOCATION,
    COMPILATION,
    GC,
    LAZY,
    LOADING,
    PROFILER,
    START_UP,
    STATES,
    SYNC,
    call_states,
    overhead_state,
    span_state,
)
from htk.schema import TEXT, table

RETURNS = table(
    rank=(pa.int32(), "Global rank."),
    cause=(TEXT, "synchronising call, .item, copy that blocks, allocation, data loading, …"),
    name=(TEXT, "Call, range or function."),
    stack=(TEXT, "Operators round it, outermost first."),
    count=(pa.int64(), "Occurrences."),
    host_ns=(pa.int64(), "Their durations, added up."),
    gpu_idle_caused_ns=(
        pa.int64(),
        "GPU idle while they ran; after a blocking call also until the next launch arrived.",
    ),
)

_CAUSES = {
    PROFILER: "profiler overhead",
    GC: "garbage collection",
    COMPILATION: "compilation",
    START_UP: "start-up",
    LAZY: "lazy loading",
    ALLOCATION: "allocation",
    SYNC: "synchronising call",
    LOADING: "data loading",
}
_ITEM = re.compile(r"aten::(item|_local_scalar_dense|is_nonzero|equal|nonzero)$")
_LONG_COPY_NS = 50_000  # asynchronous copies return sooner, unless their memory is pageable
_OF_ITEM, _OF_COPY = 14, 15
_LABELS = _CAUSES | {_OF_ITEM: ".item", _OF_COPY: "copy that blocks"}
# What follows a blocking call until the GPU has work again.
_AFTER = ("host_sync", "host_operator", "host_python", "launch_latency")


class _Stalls(NamedTuple):
    host: Ints  # (rank, cycle)
    state: Ints
    name: Ints
    op: Ints  # row of the operator round it, or -1
    start: Ints
    end: Ints


@analysis(returns=RETURNS, chart=Bar("name", ("host_ns", "gpu_idle_caused_ns"), stacked=False))
def host_stalls(
    launches: pa.Table,
    launch_links: pa.Table,
    cpu_ops: pa.Table,
    op_links: pa.Table,
    annotations: pa.Table,
    python_calls: pa.Table,
    overheads: pa.Table,
    idle_causes: pa.Table,
    *,
    n: Annotated[int, "Stalls to show, those that cost most first; 0: all."] = 30,
) -> pa.Table:
    """What does the host wait for (synchronising, allocating, loading, compiling), at what cost?

    A blocking call costs the GPU what is idle during it, and also what is idle afterwards when
    the GPU ran dry meanwhile: until the next launch arrives. Each idle nanosecond of a device
    counts once.
    """
    recorded = any(t.num_rows for t in (launches, cpu_ops, annotations, python_calls))
    names = _Names()
    stalls = _stalls(launches, launch_links, cpu_ops, annotations, python_calls, overheads, names)
    caused = _caused(stalls, idle_causes)
    paths, labels = _paths(cpu_ops, op_links, np.unique(stalls.op[stalls.op >= 0]))
    path = np.append(paths, -1)[stalls.op]
    cause = _cause(stalls, cpu_ops, names)
    keys = np.stack([unpaired(stalls.host)[0], cause, stalls.name, path], axis=1)
    groups = Groups.by_keys(keys.astype(np.int64))
    idle, lasted = groups.sum(caused), groups.sum(stalls.end - stalls.start)
    order = np.lexsort((-lasted, -idle))[: n or None]
    rank, cause, name, path = groups.keys[order].reshape(-1, 4).T
    table = pa.table(
        [
            number(rank, pa.int32(), rank >= 0),
            texts([_LABELS[c] for c in cause.tolist()]),
            texts([names.known[k] for k in name.tolist()]),
            texts([labels.get(p) for p in path.tolist()]),
            number(groups.count[order], pa.int64()),
            number(lasted[order], pa.int64()),
            number(idle[order], pa.int64()),
        ],
        schema=RETURNS,
    )
    facts = {"stalls": len(groups), "gpu_idle_caused_ns": int(caused.sum())}
    facts |= {"host_recorded": recorded, "python_recorded": python_calls.num_rows > 0}
    return with_coverage(table, **facts)


class _Names:
    """Texts of several tables under common numbers."""

    def __init__(self) -> None:
        self.known: list[str | None] = []
        self._number: dict[str | None, int] = {}

    def of(self, column: pa.ChunkedArray, rows: Ints) -> Ints:
        codes, dictionary = codes_of(column)
        used, name_of_row = np.unique(codes[rows], return_inverse=True)
        texts_ = [*dictionary.to_pylist(), None]
        own_numbers = []
        for code in used.tolist():  # distinct names
            name = texts_[code]
            if name not in self._number:
                self._number[name] = len(self.known)
                self.known.append(name)
            own_numbers.append(self._number[name])
        return np.array(own_numbers, np.int64)[name_of_row]


def _stalls(
    launches: pa.Table,
    launch_links: pa.Table,
    cpu_ops: pa.Table,
    annotations: pa.Table,
    python_calls: pa.Table,
    overheads: pa.Table,
    names: _Names,
) -> _Stalls:
    on_host = ~truths(annotations["on_gpu"])
    parts = [
        _calls(launches, launch_links, names),
        _spans(cpu_ops, span_state, np.ones(cpu_ops.num_rows, bool), names),
        _spans(annotations, span_state, on_host, names),
        _spans(python_calls, span_state, np.ones(python_calls.num_rows, bool), names),
        _spans(overheads, overhead_state, np.ones(overheads.num_rows, bool), names),
    ]
    return _outermost(_Stalls(*(np.concatenate(c) for c in zip(*parts, strict=True))))


def _calls(launches: pa.Table, launch_links: pa.Table, names: _Names) -> _Stalls:
    """Calls that block, allocate or load code."""
    length = numbers(launches["end_ns"]) - numbers(launches["start_ns"])
    state = call_states(launches)
    quick = matching(launches["name"], lambda n: "Memcpy" in n and "Async" in n)
    chosen = np.isin(state, list(_CAUSES)) & ~(quick & (length < _LONG_COPY_NS))
    rows = np.flatnonzero(chosen)
    return _picked(launches, rows, state[rows], numbers(launch_links["op_row"], -1)[rows], names)


def _spans(
    spans: pa.Table, rule: Callable[[str], int], chosen: NDArray[np.bool_], names: _Names
) -> _Stalls:
    codes, dictionary = codes_of(spans["name"])
    state = np.array([*(rule(name) for name in dictionary.to_pylist()), -1], np.int64)[codes]
    rows = np.flatnonzero(chosen & np.isin(state, list(_CAUSES)))
    return _picked(spans, rows, state[rows], np.full(len(rows), -1, np.int64), names)


def _picked(spans: pa.Table, rows: Ints, state: Ints, op: Ints, names: _Names) -> _Stalls:
    start, end = (numbers(spans[c])[rows] for c in ("start_ns", "end_ns"))
    return _Stalls(hosts(spans)[rows], state, names.of(spans["name"], rows), op, start, end)


def _outermost(stalls: _Stalls) -> _Stalls:
    """Without those inside another of the same kind: a range and the function in it are one."""
    lane = _lane(stalls.host, stalls.state)
    order = np.lexsort((-stalls.end, stalls.start, lane))
    lanes = lane[order]
    reach = np.full(len(order), np.iinfo(np.int64).min)
    for track in np.unique(lanes).tolist():  # a few for each rank
        on_lane = slice(*np.searchsorted(lanes, [track, track + 1]))
        ends = stalls.end[order[on_lane]]
        reach[on_lane] = np.append(reach[on_lane.start], np.maximum.accumulate(ends)[:-1])
    kept = order[stalls.end[order] > reach]
    return _Stalls(*(column[kept] for column in stalls))


def _lane(host: Ints, state: Ints) -> Ints:
    return np.asarray(host * 16 + state)


def _caused(stalls: _Stalls, idle_causes: pa.Table) -> Ints:
    """Idle time of devices that each stall explains."""
    pieces = idle_causes.filter(pa.array(~valid(idle_causes["stream"])))
    start, end = (numbers(pieces[c]) for c in ("start_ns", "end_ns"))
    host = hosts(pieces)
    codes, causes = codes_of(pieces["cause"])
    state = np.array([*(_state_of(c) for c in causes.to_pylist()), -1], np.int64)[codes]
    after_sync = np.array([*(c in _AFTER for c in causes.to_pylist()), False], bool)[codes]
    stall = _during(stalls, host, state, start, end)
    dry = numbers(pieces["gap_start_ns"])
    drained = _during(stalls, host, np.full(len(host), SYNC), dry, dry + 1)
    stall = np.where((stall < 0) & after_sync, drained, stall)
    caused = np.zeros(len(stalls.start), np.int64)
    np.add.at(caused, stall[stall >= 0], (end - start)[stall >= 0])
    return caused


def _state_of(cause: str) -> int:
    """The state of the host that a cause of idleness speaks of."""
    if cause == "unrecorded_gpu_work_suspected":
        return SYNC
    state = STATES.index(cause) if cause in STATES else -1
    return state if state in _CAUSES else -1


def _during(stalls: _Stalls, host: Ints, state: Ints, start: Ints, end: Ints) -> Ints:
    """The last stall of that host and state that is under way in each span, or -1."""
    lane = _lane(stalls.host, stalls.state)
    stall = np.full(len(start), -1, np.int64)
    wanted = _lane(host, state)
    order = np.argsort(lane, kind="stable")
    asked = np.flatnonzero(state >= 0)
    asked = asked[np.argsort(wanted[asked], kind="stable")]
    lanes, wanted = lane[order], wanted[asked]
    for track in np.unique(lane).tolist():  # a few for each rank
        of_stalls = order[slice(*np.searchsorted(lanes, [track, track + 1]))]
        spans = asked[slice(*np.searchsorted(wanted, [track, track + 1]))]
        position = np.searchsorted(stalls.start[of_stalls], end[spans], side="left") - 1
        inside = (position >= 0) & (stalls.end[of_stalls][np.maximum(position, 0)] >= start[spans])
        stall[spans[inside]] = of_stalls[position[inside]]
    return stall


def _cause(stalls: _Stalls, cpu_ops: pa.Table, names: _Names) -> Ints:
    """The state, with blocking calls told apart."""
    item = np.append(matching(cpu_ops["name"], lambda n: bool(_ITEM.search(n))), False)
    copies = np.array([bool(name and "emcpy" in name) for name in names.known] + [False])
    block = stalls.state == SYNC
    kinds = [block & item[stalls.op], block & copies[stalls.name]]
    return np.select(kinds, [_OF_ITEM, _OF_COPY], stalls.state).astype(np.int64)


def _paths(cpu_ops: pa.Table, op_links: pa.Table, wanted: Ints) -> tuple[Ints, dict[int, str]]:
    """Number of each wanted operator's chain of callers, and the chains in words."""
    parent = numbers(op_links["parent_row"], -1)
    depth = numbers(op_links["depth"]).astype(np.int64)
    codes, dictionary = codes_of(cpu_ops["name"])
    path = np.full(cpu_ops.num_rows, -1, np.int64)
    rows = needed = wanted
    while len(rows):  # as often as operators are nested
        rows = np.unique(parent[rows])
        rows = rows[rows >= 0]
        needed = np.concatenate([needed, rows])
    needed = np.unique(needed)
    labels: dict[int, str] = {}
    for level in np.unique(depth[needed]).tolist():
        of_level = needed[depth[needed] == level]
        above = np.append(path, -1)[parent[of_level]]
        groups = Groups.by_keys(np.stack([above, codes[of_level].astype(np.int64)], axis=1))
        first = len(labels)
        for k, (outer, name) in enumerate(groups.keys.tolist()):  # distinct chains
            own = dictionary[name].as_py() if name >= 0 else "?"
            labels[first + k] = f"{labels[outer]} > {own}" if outer >= 0 else own
        path[of_level] = first + groups.group_ids
    return path, labels
