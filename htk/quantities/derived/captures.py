"""Which operator launched each node of a CUDA graph, when the graph was captured.

A replay shows its kernels and one call. Where the capture was recorded too, in the same recording
or in another of the rank that was opened with it, its launches stand between BeginCapture and
EndCapture in the order in which a replay on one stream runs them. A replay is that of the capture
that has as many nodes; of several the one captured next after the replay before. Where that does
not decide, nothing is linked.
"""

import re
from typing import Annotated

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import (
    codes_of,
    mark_valid,
    match_texts,
    number_or_null,
    read_keys,
    read_numbers,
    with_column,
)
from htk.base.columns.groups import Groups
from htk.base.columns.nesting import FILE, files_of
from htk.base.columns.order import order_by
from htk.base.columns.segments import mark_heads
from htk.base.columns.types import NONE, Ints, fill_none
from htk.base.core.analysis import TablesLater
from htk.base.schema import INT64

CaptureTables = Annotated[TablesLater, ("launches", "launch_links", "launch_callers")]

_NODE = re.compile(r"Launch\w*Kernel|Mem(cpy|set)\w*Async")


def captured_ops(
    kernels: pa.Table, kernel_links: pa.Table, launches: pa.Table, launch_links: pa.Table
) -> tuple[Ints, Ints]:
    """For each activity of a replay the operator that launched it in the capture, and the call
    that replays it; NONE for all others."""
    op = fill_none(kernels.num_rows)
    call = op.copy()
    captures = _group_captures(launches)
    if not captures:
        return op, call
    launched_by = read_numbers(launch_links["op_row"], NONE)
    for replay, rows, capture in _match_replays(
        captures, _group_replays(kernels, kernel_links, launches)
    ):
        op[rows] = launched_by[capture]
        call[rows] = replay
    captured = op != NONE
    return op, np.where(captured, call, NONE)


def links_of_captures(kernels: pa.Table, kernel_links: pa.Table, tables: TablesLater) -> pa.Table:
    """Return the links of activities; those of a replay to the operator that was captured, and to
    its launch if the Python calls round that were recorded, where they are known."""
    launches = tables["launches"]()
    captures = _group_captures(launches)
    if not captures:
        return kernel_links
    linked = {
        name: read_numbers(kernel_links[name], NONE).copy() for name in ("launch_row", "op_row")
    }
    operator = read_numbers(tables["launch_links"]()["op_row"], NONE)
    has_python = mark_valid(tables["launch_callers"]()["python_row"])
    for _, rows, capture in _match_replays(
        captures, _group_replays(kernels, kernel_links, launches)
    ):
        replay = linked["launch_row"][rows]
        linked["launch_row"][rows] = np.where(has_python[capture], capture, replay)
        linked["op_row"][rows] = operator[capture]
    for name, links in linked.items():
        kernel_links = with_column(kernel_links, name, number_or_null(links, INT64))
    return kernel_links


def captured_calls(launches: pa.Table) -> Ints:
    """Return the rows of the calls whose work a capture kept for the replays of its graph."""
    kept = [rows for captures in _group_captures(launches).values() for rows in captures]
    return np.concatenate(kept) if kept else np.empty(0, np.int64)


def _group_captures(launches: pa.Table) -> dict[int, list[Ints]]:
    """Return the rows of the launches of each capture, of each rank, in order."""
    begins = match_texts(launches["name"], lambda n: "BeginCapture" in n)
    if not begins.any():
        return {}
    ends = match_texts(launches["name"], lambda n: "EndCapture" in n)
    nodes = match_texts(launches["name"], lambda n: bool(_NODE.search(n)))
    rank = _read_column(launches, "rank")
    cycle = _read_column(launches, "cycle")
    threads = [codes_of(launches[c])[0].astype(np.int64) for c in ("process", "thread")]
    lane = Groups.by_keys([rank, cycle, *threads]).group_ids
    order = order_by(lane, read_numbers(launches["start_ns"]))
    change = begins[order].astype(np.int64) - ends[order]
    depth = np.cumsum(change)
    first = mark_heads(lane[order])
    inside = depth > (depth - change)[first][np.cumsum(first) - 1]  # than where its lane begins
    number = np.cumsum(begins[order])
    rows = order[inside & nodes[order]]
    capture_of = number[inside & nodes[order]]
    by_rank: dict[int, list[Ints]] = {}
    for capture in np.split(rows, np.flatnonzero(np.diff(capture_of)) + 1):  # graphs are few
        if len(capture):
            by_rank.setdefault(int(rank[capture[0]]), []).append(capture)
    for several in by_rank.values():
        several.sort(key=lambda launched: int(read_numbers(launches["start_ns"])[launched[0]]))
    return by_rank


def _group_replays(
    kernels: pa.Table, kernel_links: pa.Table, launches: pa.Table
) -> dict[int, list[tuple[int, Ints]]]:
    """Calls that replay a graph and the rows of their activities, of each rank, in order."""
    graph = match_texts(kernel_links["launch_by"], "graph".__eq__)
    rows = np.flatnonzero(graph)
    call = read_numbers(kernel_links["launch_row"], NONE)[rows]
    called = read_numbers(launches["start_ns"])[call]
    order = order_by(called, call, read_numbers(kernels["start_ns"])[rows])
    rows = rows[order]
    call = call[order]
    rank = _read_column(kernels, "rank")
    by_rank: dict[int, list[tuple[int, Ints]]] = {}
    for replay in np.split(np.arange(len(rows)), np.flatnonzero(np.diff(call)) + 1):  # replays
        if len(replay):
            by_rank.setdefault(int(rank[rows[replay[0]]]), []).append(
                (int(call[replay[0]]), rows[replay])
            )
    return by_rank


def _read_column(rows: pa.Table, name: str) -> Ints:
    """Return the rank or cycle of each row; those of one file, being one, have none, and of several
    files the file stands for the rank."""
    if name == "rank" and FILE in rows.column_names:
        return files_of(rows)
    if name not in rows.column_names:
        return np.zeros(rows.num_rows, np.int64)
    return read_keys(rows[name])


def _match_replays(
    captures: dict[int, list[Ints]], replays: dict[int, list[tuple[int, Ints]]]
) -> list[tuple[int, Ints, Ints]]:
    """Replays with their activities and the launches of their capture."""
    matches = []
    for rank, calls in replays.items():
        recorded = captures.get(rank, [])
        before: int | None = None
        for call, rows in calls:
            alike = [k for k, capture in enumerate(recorded) if len(capture) == len(rows)]
            after = None if before is None else (before + 1) % len(recorded)
            before = after if after in alike else alike[0] if len(alike) == 1 else None
            if before is not None:
                matches.append((call, rows, recorded[before]))
    return matches
