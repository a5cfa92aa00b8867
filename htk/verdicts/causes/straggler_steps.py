"""Stragglers over steps: one rank, one node, or another each time."""

from typing import Annotated

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import (
    build_booleans,
    build_numbers,
    build_texts,
    mark_valid,
    read_numbers,
    read_times,
)
from htk.base.columns.groups import Groups
from htk.base.columns.order import order_by
from htk.base.columns.segments import SegmentTimes
from htk.base.columns.types import NONE, Ints, take_or
from htk.base.core.analysis import Later, analysis, with_coverage
from htk.base.core.chart import Heatmap
from htk.base.core.humanize import format_int_ranges
from htk.base.schema import BOOL, INT32, INT64, TEXT, table
from htk.quantities.derived.own_time import KINDS
from htk.quantities.derived.window_times import KindTimes
from htk.quantities.measures.blame import blame_ranks, need_waits
from htk.quantities.measures.collective_calls import CollectiveCalls, clock_facts

RETURNS = table(
    rank=(INT32, "Global rank."),
    host=(TEXT, "Its node, recorded or inferred; null: not known."),
    cycle=(INT32, "Recording of the rank that the step is of; null without a step."),
    step=(INT32, "GPU step that the collectives began in."),
    lateness_ns=(
        INT64,
        "Own time beyond the fastest rank's where the others waited for it; of compute no more "
        "than all of the step's is beyond theirs.",
    ),
    cost_to_others_ns=(
        INT64,
        "What all others waited because of it, for itself or for ranks that it held up.",
    ),
    times_blamed=(INT64, "Collectives that they waited in."),
    costliest=(BOOL, "It cost the others most in this step."),
)
_MOST = 0.5  # of the cost, or of the steps: a rank or node that persists
_NODE = 0.7  # of the cost, by the ranks of one node of several


@analysis(
    returns=RETURNS,
    chart=Heatmap("step", "rank", "lateness_ns", missing="no collective recorded"),
    needs=("collectives", "step_window_times"),
)
def straggler_steps(
    collectives: pa.Table,
    collective_matches: pa.Table,
    aligned_matches: pa.Table,
    own_times: Later,
    step_window_times: pa.Table,
    ranks: pa.Table,
    *,
    align: Annotated[bool, "Align the clocks of all ranks."] = True,
) -> pa.Table:
    """Is it the same rank that is late in every step, one node, or another rank each time?

    A collective belongs to the GPU step that it begins in, on each rank's own clock; what others
    wait belongs to the step in which its cause was late. Ranks that a slow link or other groups
    held up are not late. The coverage names the pattern.
    """
    calls = CollectiveCalls.of_one_source(
        collectives, aligned_matches if align else collective_matches, ranks
    )
    need_waits(calls)
    blames = blame_ranks(calls, own_times)
    step = _find_steps(calls, step_window_times)
    matched = calls.waits.has_wait
    chosen = np.flatnonzero(matched & (step != NONE) & (calls.rows.rank >= 0))
    keys = np.column_stack([calls.rows.rank, calls.rows.cycle, step]).astype(np.int64)[chosen]
    cells = Groups.by_keys(keys)
    blamed = blames.blamed[chosen]
    excess = np.where(blamed[:, None], blames.excess[chosen], 0)
    compute = KINDS.index("compute")
    computed = cells.sum(excess[:, compute])
    most = np.minimum(computed, _compute_beyond_least(cells.keys, step_window_times))
    late = cells.sum(np.where(blamed, blames.lateness[chosen], 0))
    late = np.minimum(late, cells.sum(excess.sum(axis=1)) - computed + most)
    cost = cells.sum(blames.cost[chosen])
    rank = cells.keys[:, 0]
    of_step = cells.keys[:, 1:]
    costliest = _find_costliest(of_step, cost)
    hosts = calls.hosts
    columns = [
        build_numbers(rank, INT32),
        build_texts([hosts.of_rank.get(k) for k in rank.tolist()]),
        *(build_numbers(column, INT32) for column in of_step.T),
        build_numbers(late, INT64),
        build_numbers(cost, INT64),
        build_numbers(cells.sum(blames.collectives[chosen]), INT64),
        build_booleans(costliest),
    ]
    answer = pa.table(columns, schema=RETURNS)
    pattern = _describe_pattern(rank, cost, costliest, hosts.of_rank)
    return with_coverage(
        answer,
        pattern=pattern,
        steps=len(np.unique(of_step, axis=0)),
        outside_steps=int((matched & (step == NONE)).sum()),
        **hosts.facts(),
        **clock_facts(align),
    )


def _compute_beyond_least(cells: Ints, window_times: pa.Table) -> Ints:
    """Return how much longer each rank computes in a step than the one that does so least: others
    compute while they wait for it."""
    keys = np.column_stack([read_numbers(window_times[c], NONE) for c in ("rank", "cycle", "step")])
    compute = KindTimes.from_windows(window_times).any("compute")
    every = Groups.by_keys(np.concatenate([cells, keys.astype(np.int64)]))
    computed = every.sum(np.append(np.zeros(len(cells), np.int64), compute))
    steps = Groups.by_keys(every.keys[:, 1:])
    beyond = computed - steps.min(computed)[steps.group_ids]
    return beyond[every.group_ids[: len(cells)]]


def _find_steps(calls: CollectiveCalls, windows: pa.Table) -> Ints:
    """Return the GPU step that each row begins in (NONE: outside all steps)."""
    windows = windows.filter(pa.array(mark_valid(windows["step"])))
    own = (calls.rows.rank, *(read_numbers(calls.table[c], NONE) for c in ("cycle", "device")))
    theirs = (read_numbers(windows[c], NONE) for c in ("rank", "cycle", "device"))
    keys = [
        np.append(window, call).astype(np.int64) for window, call in zip(theirs, own, strict=True)
    ]
    lane = Groups.by_keys(keys).group_ids
    begin, end = read_times(windows)
    start = calls.rows.start
    last = SegmentTimes(lane[: len(begin)], begin).last(lane[len(begin) :], start)
    is_inside = (last != NONE) & calls.rows.timed & (start < take_or(end, last, 0))
    step = np.append(read_numbers(windows["step"]), NONE).astype(np.int64)
    return np.where(is_inside, step[last], NONE)


def _find_costliest(step: Ints, cost: Ints) -> np.ndarray:
    """Return the rank that cost most in each step, where any did."""
    costliest = np.zeros(len(step), bool)
    if len(step):
        steps = Groups.by_keys(step)
        order = order_by(steps.group_ids, cost, -np.arange(len(step)))
        costliest[order[np.cumsum(steps.count) - 1]] = True
    return costliest & (cost > 0)


def _describe_pattern(rank: Ints, cost: Ints, costliest: np.ndarray, hosts: dict[int, str]) -> str:
    """Return in words who holds the others up over the steps."""
    total = int(cost.sum())
    steps = int(costliest.sum())
    if not total:
        return "nobody is late"
    by_rank = Groups.by_keys(rank)
    share = by_rank.sum(cost) / total
    first = by_rank.sum(costliest.astype(np.int64))
    top = int(order_by(first, share)[-1])
    who = int(by_rank.keys[top, 0])
    if first[top] > _MOST * steps and share[top] > _MOST:
        times = f"{first[top]} of {steps} steps"
        return f"rank {who} in {times}: {100 * share[top]:.0f} % of what others wait"
    node = {h: sum(share[k] for k, r in enumerate(by_rank.keys[:, 0].tolist()) if hosts.get(r) == h)
            for h in set(hosts.values())}  # fmt: skip
    if len(node) > 1 and max(node.values()) > _NODE:
        name = max(node, key=lambda h: node[h])
        return f"ranks of {name}: {100 * node[name]:.0f} % of what others wait"
    turns = sorted(by_rank.keys[first > 0, 0].tolist())
    if len(turns) > 1:
        return f"another rank each time: {format_int_ranges(turns)} are the costliest in turn"
    return f"rank {who} most, but {100 * (1 - share[top]):.0f} % of the waiting is for others"
