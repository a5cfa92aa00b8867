"""A trace as lanes of spans that do not overlap: CPU threads by depth, streams of each GPU."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from htk.arrow import codes_of, numbers
from htk.groups import Groups
from htk.nesting import nest
from htk.trace import Trace

KINDS = ("compute", "comm", "memory", "cpu", "launch")
_CPU, _LAUNCH = 3, 4
_TABLES = ("kernels", "cpu_ops", "launches")


@dataclass(frozen=True)
class Lanes:
    """Spans of all lanes, and what each came from."""

    labels: list[str]
    lane: NDArray[np.int64]
    kind: NDArray[np.int64]
    name: NDArray[np.int64]
    names: list[str]
    start: NDArray[np.int64]  # since the trace began
    end: NDArray[np.int64]
    table: NDArray[np.int64]  # which of the tables
    row: NDArray[np.int64]


def lanes_of(trace: Trace) -> Lanes:
    """All GPU activities, operators and launching calls."""
    made = [_part(trace, place) for place in range(len(_TABLES))]
    parts = [part for part, _ in made if len(part["start"])]
    own_names = [own for part, own in made if len(part["start"])]
    if not parts:
        none = np.empty(0, np.int64)
        return Lanes([], none, none, none, [], none, none, none, none)
    names: list[str] = []
    for part, own in zip(parts, own_names, strict=True):
        part["name"] = part["name"] + len(names)
        names += own
    whole = {key: np.concatenate([p[key] for p in parts]) for key in parts[0]}
    keys = np.stack([whole[k] for k in ("rank", "side", "place")], axis=1)
    depth = _depth(Groups.of(keys).which, whole["start"], whole["end"])
    lanes = Groups.of(np.column_stack([keys, depth]))
    return Lanes(
        [_label(key, trace) for key in lanes.keys.tolist()],
        lanes.which,
        whole["kind"],
        whole["name"],
        names,
        whole["start"],
        whole["end"],
        whole["table"],
        whole["row"],
    )


def event(trace: Trace, table: int, row: int) -> dict[str, object]:
    """Everything known of one span."""
    found = trace.tables[_TABLES[table]].slice(row, 1).to_pylist()[0]
    found["duration_ns"] = found["end_ns"] - found["start_ns"]
    found["start_ns"] -= trace.origin_ns
    found["end_ns"] -= trace.origin_ns
    return {k: v for k, v in found.items() if v is not None}


def _part(trace: Trace, place: int) -> tuple[dict[str, NDArray[np.int64]], list[str]]:
    """Columns of the spans of one table, and their names."""
    table = trace.tables[_TABLES[place]]
    codes, names = codes_of(table["name"])
    part = {
        "rank": numbers(table["rank"], -1).astype(np.int64),
        "start": numbers(table["start_ns"]) - trace.origin_ns,
        "end": numbers(table["end_ns"]) - trace.origin_ns,
        "name": codes.astype(np.int64),
        "table": np.full(len(codes), place, np.int64),
        "row": np.arange(len(codes)),
    }
    where = _gpu_place(table) if place == 0 else _cpu_place(table, place)
    return part | where, names.to_pylist()


def _gpu_place(table: pa.Table) -> dict[str, NDArray[np.int64]]:
    kinds, words = codes_of(table["kind"])
    meaning = np.array([KINDS.index(w) for w in words.to_pylist()] + [0], np.int64)
    return {
        "side": np.ones(table.num_rows, np.int64),
        "place": numbers(table["stream"], -1).astype(np.int64),
        "kind": meaning[kinds],
    }


def _cpu_place(table: pa.Table, place: int) -> dict[str, NDArray[np.int64]]:
    codes, threads = codes_of(table["thread"])
    known = [int(t) if t.isdigit() else k for k, t in enumerate(threads.to_pylist())]
    return {
        "side": np.zeros(table.num_rows, np.int64),
        "place": np.array([*known, -1], np.int64)[codes],
        "kind": np.full(table.num_rows, _CPU if place == 1 else _LAUNCH, np.int64),
    }


def _depth(
    lane: NDArray[np.int64], start: NDArray[np.int64], end: NDArray[np.int64]
) -> NDArray[np.int64]:
    order = np.lexsort((-end, start, lane))
    _, depth = nest(lane[order].astype(np.int32), start[order], end[order])
    out = np.empty(len(order), np.int64)
    out[order] = depth
    return out


def _label(key: list[int], trace: Trace) -> str:
    rank, side, place, depth = key
    who = f"rank {rank} " if len(trace.ranks) > 1 else ""
    what = f"stream {place}" if side else f"thread {place}"
    return who + what + (f" ·{depth}" if depth else "")
