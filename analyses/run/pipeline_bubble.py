"""The bubble of pipeline parallelism, stage by stage."""

import json

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import (
    build_numbers,
    codes_of,
    decode_texts,
    mark_valid,
    match_texts,
    number_or_null,
    read_keys,
    read_numbers,
    read_times,
)
from htk.base.columns.intervals import clip_spans, union_lengths
from htk.base.columns.order import order_by
from htk.base.columns.types import NONE, Ints, Mask
from htk.base.core.analysis import analysis, with_coverage
from htk.base.core.chart import Bar
from htk.base.errors import MissingTable
from htk.base.schema import FLOAT64, INT32, INT64, TEXT, table
from htk.quantities.measures.breakdown import build_percent
from htk.quantities.measures.passes import is_backward

PARTS = ("warm-up", "steady", "cool-down", "rest")

RETURNS = table(
    rank=(INT32, "Global rank."),
    cycle=(INT32, "Recording of the rank that the step is of; null without a step."),
    step=(INT32, "GPU step; null: no steps are recorded."),
    stage=(INT32, "Place of the rank in its pipeline; null where no group tells it."),
    part=(TEXT, "warm-up, steady, cool-down; rest: after the last compute of the backward pass."),
    length_ns=(INT64, "Length of the part."),
    compute_ns=(INT64, "Time that something is computed."),
    bubble_ns=(INT64, "Time that nothing is: waiting for other stages, or for the host."),
    bubble_pct=(FLOAT64, "Share of the part."),
    bubble_of_step_pct=(FLOAT64, "Share of the step."),
    p2p_ns=(INT64, "Of the bubble, with a send or receive in flight."),
)


@analysis(
    returns=RETURNS,
    chart=Bar("rank", ("compute_ns", "bubble_ns")),
    needs=("kernels",),
)
def pipeline_bubble(
    kernels: pa.Table,
    kernel_passes: pa.Table,
    collectives: pa.Table,
    rank_windows: pa.Table,
    step_windows: pa.Table,
) -> pa.Table:
    """How much of a step does each pipeline stage stand idle?

    Warm-up ends with the first compute of the backward pass, the steady part with the last of the
    forward, the cool-down with the last of the backward. Bubble is whatever of a part holds no
    compute.
    """
    p2p = _select_messages(collectives)
    if not p2p.num_rows:
        raise MissingTable("no sends or receives between ranks: no pipeline seen")
    if not mark_valid(kernel_passes["basis"]).any():
        raise MissingTable("no kernel's pass is known: that needs CPU operators", "cpu_ops")
    windows = step_windows if step_windows.num_rows else rank_windows
    stages = _find_stages(p2p)
    windows = windows.filter(pa.array(np.isin(_read_ranks(windows), np.unique(_read_ranks(p2p)))))
    back = is_backward(kernel_passes)
    compute = match_texts(kernels["kind"], "compute".__eq__)
    edges = _find_edges(windows, kernels, compute, back)
    length = np.diff(edges, axis=1)
    busy = _measure_covered_parts(
        edges, windows, _read_ranks(kernels)[compute], _read_spans(kernels, compute)
    )
    sent = np.ones(p2p.num_rows, bool)
    both_ranks = np.append(_read_ranks(kernels)[compute], _read_ranks(p2p))
    spans = [
        np.append(a, b)
        for a, b in zip(_read_spans(kernels, compute), _read_spans(p2p, sent), strict=True)
    ]
    either = _measure_covered_parts(edges, windows, both_ranks, (spans[0], spans[1]))
    row, part = np.nonzero(length > 0)
    rank = read_numbers(windows["rank"], NONE)[row]
    cycle = read_numbers(windows["cycle"], NONE)[row]
    step = read_numbers(windows["step"], NONE)[row]
    window_length = (edges[:, -1] - edges[:, 0])[row]
    stage = np.array([stages.get(r, NONE) for r in rank.tolist()], np.int64)
    bubble = (length - busy)[row, part]
    answer = pa.table(
        [
            number_or_null(rank, INT32),
            build_numbers(cycle, INT32, step >= 0),
            number_or_null(step, INT32),
            number_or_null(stage, INT32),
            decode_texts(part, pa.array(PARTS), compact=False),
            build_numbers(length[row, part], INT64),
            build_numbers(busy[row, part], INT64),
            build_numbers(bubble, INT64),
            build_percent(bubble, length[row, part]),
            build_percent(bubble, window_length),
            build_numbers((either - busy)[row, part], INT64),
        ],
        schema=RETURNS,
    )
    return with_coverage(answer, sends_and_receives=p2p.num_rows, stages=len(set(stages.values())))


def _select_messages(collectives: pa.Table) -> pa.Table:
    sent = match_texts(collectives["type"], lambda kind: kind in ("send", "recv", "send_recv"))
    ours = match_texts(collectives["source"], "kineto".__eq__)
    return collectives.filter(pa.array(sent & ours))


def _read_ranks(rows: pa.Table) -> Ints:
    return read_keys(rows["rank"])


def _read_spans(rows: pa.Table, chosen: Mask) -> tuple[Ints, Ints]:
    return read_numbers(rows["start_ns"])[chosen], read_numbers(rows["end_ns"])[chosen]


def _find_stages(p2p: pa.Table) -> dict[int, int]:
    """Place of each rank in the smallest group that it sends in."""
    codes, groups = codes_of(p2p["group_ranks"])
    stages: dict[int, int] = {}
    listed = [json.loads(g) for g in groups.to_pylist()]
    for members in sorted(listed, key=len, reverse=True):  # a few groups; the smallest says it last
        if isinstance(members, list):
            stages |= {int(rank): position for position, rank in enumerate(members)}
    present = set(_read_ranks(p2p)[codes != NONE].tolist())
    return {rank: position for rank, position in stages.items() if rank in present}


def _find_edges(windows: pa.Table, kernels: pa.Table, compute: Mask, back: Mask) -> Ints:
    """Start of each window, first backward, last forward, last backward, end."""
    start, end = read_times(windows)
    first = end.copy()
    last_forward = start.copy()
    last = start.copy()
    begin, finish = read_times(kernels)
    owner = _read_ranks(kernels)
    stage = _read_ranks(windows)
    for rank in np.unique(stage).tolist():
        of_rank = np.flatnonzero(compute & (owner == rank))
        of_rank = of_rank[order_by(begin[of_rank])]
        for k in np.flatnonzero(stage == rank).tolist():  # its steps
            low, high = np.searchsorted(begin[of_rank], [start[k], end[k]])
            inside = of_rank[low:high]
            backward = inside[back[inside]]
            forward = inside[~back[inside]]
            if not len(backward):
                continue
            first[k] = begin[backward].min()
            last[k] = min(finish[backward].max(), end[k])
            before = forward[begin[forward] < last[k]]  # the optimizer comes after
            last_forward[k] = finish[before].max() if len(before) else first[k]
    steady = np.clip(last_forward, first, np.maximum(last, first))
    return np.column_stack([start, first, steady, np.maximum(last, steady), end])


def _measure_covered_parts(
    edges: Ints, windows: pa.Table, rank: Ints, spans: tuple[Ints, Ints]
) -> Ints:
    """Time of each part of each window in which some span runs."""
    covered = np.zeros((len(edges), edges.shape[1] - 1), np.int64)
    stage = _read_ranks(windows)
    for own_rank in np.unique(stage).tolist():  # ranks
        rows = np.flatnonzero(stage == own_rank)
        rows = rows[order_by(edges[rows, 0])]
        low = edges[rows, :-1].ravel()
        high = edges[rows, 1:].ravel()
        of_rank = rank == own_rank
        pieces = clip_spans(spans[0][of_rank], spans[1][of_rank], low, high)
        length = union_lengths(pieces.window, pieces.start, pieces.end, len(low))
        covered[rows] = length.reshape(len(rows), -1)
    return covered
