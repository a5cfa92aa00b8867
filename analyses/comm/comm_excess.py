"""Excess of transfers: the time that they take beyond what their size should cost."""

import json
from collections import Counter
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import build_numbers, build_table, build_texts, decode_texts
from htk.base.columns.groups import Groups
from htk.base.columns.order import order_by
from htk.base.columns.segments import repeat_rows
from htk.base.columns.types import NONE, Floats, Ints, Mask, fill_none
from htk.base.core.analysis import analysis, with_coverage
from htk.base.core.chart import Bar
from htk.base.schema import FLOAT64, INT32, INT64, STRING, TEXT, table
from htk.quantities.measures.breakdown import build_percent, build_ratio
from htk.quantities.measures.collective_calls import (
    CollectiveCalls,
    clock_facts,
    size_facts,
    with_nccl_facts,
)
from htk.quantities.measures.complete_collectives import CompleteCollectives
from htk.quantities.measures.transfer_excess import BASELINES, TransferBaseline, baseline_of
from htk.quantities.measures.transfer_times import LinkRates, TransferTimes

_SCOPES = ("node", "across nodes")

RETURNS = table(
    rank=(INT32, "Global rank, by rank."),
    node=(TEXT, "Node, by node."),
    rail=(INT32, "Index of the GPUs within their nodes that a group joins, by rail."),
    scope=(TEXT, "Within a node or across nodes; null: hosts are not known."),
    type=(TEXT, "all_reduce, all_gather, … by size and by call."),
    algorithm=(TEXT, "RING, TREE, …, by size and by call, where recorded."),
    size_bytes=(INT64, "Size, as bandwidth counts it, by size and by call."),
    group=(TEXT, "Process group name, by group and by call."),
    group_ranks=(TEXT, "Its global ranks, compact JSON, by group and by call."),
    match=(INT64, "Number of the collective over all ranks, by call."),
    aligned_start_ns=(INT64, "Its last start, on the common clock, by call."),
    collectives=(INT64, "Collectives that have a baseline."),
    span_ns=(INT64, "From last start to last end, added up; its share, by rank, rail and node."),
    expected_ns=(INT64, "The same by the baseline."),
    excess_ns=(INT64, "What it takes longer; negative: it was faster."),
    excess_ns_sigma=(
        INT64,
        "Standard deviation of it that the clocks leave, at most; null: unknown.",
    ),
    excess_pct=(FLOAT64, "Excess, of what was expected."),
    busbw_gbps=(FLOAT64, "Bus bandwidth over that time."),
    expected_gbps=(FLOAT64, "Bus bandwidth by the baseline."),
    baseline=(TEXT, "What says what to expect; of several that of most of the time."),
)
_WANTED = {
    "best": range(len(BASELINES)),
    "benchmark": (0,),
    "trace": (1, 2),
    "links": (3,),
}


@analysis(returns=RETURNS, chart=Bar("scope", "excess_ns", "type"), needs=("collectives",))
def comm_excess(
    collectives: pa.Table,
    collective_matches: pa.Table,
    aligned_matches: pa.Table,
    ranks: pa.Table,
    collective_facts: pa.Table,
    bench_points: pa.Table,
    *,
    by: Annotated[
        Literal["group", "size", "rank", "rail", "node", "call"],
        "What a row stands for: a group of ranks, a size, a rank, the GPUs of one index, a node, "
        "a collective.",
    ] = "group",
    baseline: Annotated[
        Literal["best", "benchmark", "trace", "links"],
        "What collectives are compared with: benchmarks in the folder, the trace's fastest like "
        "calls, the rates of links, or the first of these.",
    ] = "best",
    intra_gbps: Annotated[
        float | None, "Rate between GPUs of a node, GB/s one way; by default the GPU's."
    ] = None,
    inter_gbps: Annotated[float | None, "Rate of a node to the others, GB/s one way."] = None,
    n: Annotated[int, "Rows to show, most excess first; 0: all."] = 20,
    align: Annotated[bool, "Align the clocks of all ranks."] = True,
) -> pa.Table:
    """Which transfers take longer than their size should cost, in which groups, rails and nodes?

    Waiting for ranks is left out: a transfer lasts from the last start to the last end. Expected
    is what a benchmark says of that size, else the fastest tenth of like calls, else what links
    usually reach. Ranks, rails and nodes have equal shares of the collectives that they take part
    in, so that rows add up; which of them is the cause, `slow_links` tells.
    """
    matches = aligned_matches if align else collective_matches
    named = with_nccl_facts(collectives, collective_facts)
    calls = CollectiveCalls.of_one_source(named, matches, ranks)
    sizes = size_facts(calls)
    complete = CompleteCollectives.from_calls(calls)
    rates = LinkRates.from_calls(calls, intra_gbps, inter_gbps)
    compared = baseline_of(complete, bench_points, rates, np.array(list(_WANTED[baseline])))
    rows = _PARTS[by](complete)
    answer = _build_answer(complete, compared, rows)
    facts = _collect_facts(complete, compared, align)
    facts["bound_by_latency"] = TransferTimes(complete, rates).bound_by_latency
    return with_coverage(answer.slice(0, n or None), **sizes, **facts)


@dataclass(frozen=True)
class _Parts:
    """Parts of collectives, and the row of the answer that each belongs to."""

    collective: Ints
    keys: Ints  # a column each
    share: Floats  # of the collective
    columns: tuple[str, ...]  # that rows are told apart by


def _by_group(complete: CompleteCollectives) -> _Parts:
    rows = np.arange(len(complete))
    return _Parts(rows, complete.group[:, None], np.ones(len(rows)), ("group", "scope"))


def _by_call(complete: CompleteCollectives) -> _Parts:
    rows = np.arange(len(complete))
    columns = ("match", "group", "scope", "type", "algorithm", "size_bytes")
    return _Parts(rows, rows[:, None], np.ones(len(rows)), columns)


def _by_size(complete: CompleteCollectives) -> _Parts:
    rows = np.arange(len(complete))
    keys = np.column_stack([complete.like, complete.moved.astype(np.int64)])
    return _Parts(rows, keys, np.ones(len(rows)), ("scope", "type", "algorithm", "size_bytes"))


def _by_member(complete: CompleteCollectives, code: dict[int, int], column: str) -> _Parts:
    """Return an equal share of each collective for what `code` maps each member to, if anything."""
    collective, group, sizes = _list_memberships(complete)
    flat = np.array([code.get(r, NONE) for m in complete.members for r in m], np.int64)
    owner = flat[group]
    keys = np.column_stack([owner, _find_group_scope(complete)[complete.group[collective]]])
    chosen = owner != NONE
    share = 1 / sizes[complete.group[collective]]
    return _Parts(collective[chosen], keys[chosen], share[chosen], (column, "scope"))


def _list_memberships(complete: CompleteCollectives) -> tuple[Ints, Ints, Ints]:
    """Return each collective once for each member, the member's place among all groups' members,
    and the size of each group."""
    sizes = np.array([len(m) for m in complete.members], np.int64)
    first = np.cumsum(sizes) - sizes
    count = sizes[complete.group]
    collective, within = repeat_rows(count)
    return collective, first[complete.group[collective]] + within, sizes


def _by_rank(complete: CompleteCollectives) -> _Parts:
    ranks = {rank for members in complete.members for rank in members}
    return _by_member(complete, {rank: rank for rank in ranks}, "rank")


def _by_node(complete: CompleteCollectives) -> _Parts:
    nodes = sorted(set(complete.calls.hosts.of_rank.values()))
    number_of = {node: k for k, node in enumerate(nodes)}
    hosts = complete.calls.hosts.of_rank
    return _by_member(complete, {r: number_of[h] for r, h in hosts.items()}, "node")


def _by_rail(complete: CompleteCollectives) -> _Parts:
    """Return the collectives across nodes whose members all have one index within their nodes."""
    index = complete.calls.hosts.index_within
    rail = fill_none(len(complete.members))
    for k, members in enumerate(complete.members):  # a few groups
        seen = {index.get(rank, NONE) for rank in members}
        if len(complete.nodes[k]) > 1 and len(seen) == 1:
            rail[k] = seen.pop()
    chosen = np.flatnonzero(rail[complete.group] != NONE)
    keys = np.column_stack([rail[complete.group], _find_group_scope(complete)[complete.group]])[
        chosen
    ]
    return _Parts(chosen, keys, np.ones(len(chosen)), ("rail", "scope"))


_PARTS = {
    "group": _by_group,
    "size": _by_size,
    "rank": _by_rank,
    "rail": _by_rail,
    "node": _by_node,
    "call": _by_call,
}


def _find_group_scope(complete: CompleteCollectives) -> Ints:
    """Return the place of each group in `_SCOPES` (`NONE`: hosts are not known)."""
    count = np.array([len(nodes) for nodes in complete.nodes], np.int64)
    return np.where(count == 0, NONE, np.minimum(count - 1, 1))


def _build_answer(
    complete: CompleteCollectives, compared: TransferBaseline, parts: _Parts
) -> pa.Table:
    use = compared.basis[parts.collective] != NONE
    collective = parts.collective[use]
    share = parts.share[use]
    groups = Groups.by_keys(parts.keys[use])
    weigh = {
        "span": complete.time_ns.astype(np.float64),
        "expected": compared.expected_ns,
        "moved": complete.moved,
    }
    sums: dict[str, Floats] = {
        name: np.bincount(groups.group_ids, values[collective] * share, len(groups)).astype(
            np.float64
        )
        for name, values in weigh.items()
    }
    span = np.rint(sums["span"]).astype(np.int64)
    expected = np.rint(sums["expected"]).astype(np.int64)
    some = np.ones(len(groups), bool)
    columns = {
        "collectives": build_numbers(groups.distinct(collective), INT64, some),
        "span_ns": build_numbers(span, INT64, some),
        "expected_ns": build_numbers(expected, INT64, some),
        "excess_ns": build_numbers(span - expected, INT64, some),
        "excess_ns_sigma": _build_sigma_column(complete, compared, groups, collective, share),
        "excess_pct": build_percent(sums["span"] - sums["expected"], sums["expected"]),
        "busbw_gbps": build_ratio(sums["moved"], sums["span"]),
        "expected_gbps": build_ratio(sums["moved"], sums["expected"]),
        "baseline": _find_main_baseline(groups, compared, collective, share),
        **_build_name_columns(complete, groups, collective[groups.first_row], parts.columns),
    }
    order = order_by(expected - span)
    return build_table(RETURNS, columns, len(groups)).take(pa.array(order))


def _build_sigma_column(
    complete: CompleteCollectives,
    compared: TransferBaseline,
    groups: Groups,
    collective: Ints,
    share: Floats,
) -> pa.Array:
    """Return what the clocks leave to each row's excess. A clock is off by as much in all of its
    collectives, so that deviations add up."""
    each = np.hypot(complete.sigma_ns, compared.sigma_ns)[collective] * share
    total = np.bincount(groups.group_ids, each, len(groups))
    has_sigma = ~np.isnan(total)
    return build_numbers(np.rint(np.where(has_sigma, total, 0)).astype(np.int64), INT64, has_sigma)


def _find_main_baseline(
    groups: Groups, compared: TransferBaseline, collective: Ints, share: Floats
) -> pa.Array:
    """Return the baseline of most of each row's expected time."""
    time = np.zeros((len(groups), len(BASELINES)))
    np.add.at(
        time,
        (groups.group_ids, compared.basis[collective]),
        compared.expected_ns[collective] * share,
    )
    codes = time.argmax(axis=1) if len(groups) else np.empty(0, int)
    return decode_texts(codes, pa.array(BASELINES))


def _build_name_columns(
    complete: CompleteCollectives, groups: Groups, first: Ints, wanted: tuple[str, ...]
) -> dict[str, pa.Array]:
    """Return what a row stands for, from its first collective."""
    calls = complete.calls
    row = complete.row[first]
    group = complete.group[first]
    rows = pa.array(row)
    key = groups.keys[:, 0]
    every: Mask = np.ones(len(groups), bool)
    hosts = sorted(set(calls.hosts.of_rank.values()))
    size = np.rint(calls.moved[0][row]).astype(np.int64)
    makers = {
        "rank": lambda: build_numbers(key, INT32, every),
        "rail": lambda: build_numbers(key, INT32, every),
        "node": lambda: decode_texts(key, pa.array(hosts, STRING)),
        "match": lambda: build_numbers(calls.match[row], INT64, every),
        "aligned_start_ns": lambda: build_numbers(_last_start(complete)[first], INT64, every),
        "scope": lambda: decode_texts(_find_group_scope(complete)[group], pa.array(_SCOPES)),
        "type": lambda: calls.table["type"].take(rows).combine_chunks(),
        "algorithm": lambda: calls.table["algorithm"].take(rows).combine_chunks(),
        "size_bytes": lambda: build_numbers(size, INT64, every),
        "group": lambda: calls.table["group"].take(rows).combine_chunks(),
        "group_ranks": lambda: build_texts(
            [json.dumps(complete.members[k], separators=(",", ":")) for k in group.tolist()]
        ),
    }
    also = {"group": ("group_ranks",), "match": ("aligned_start_ns",)}
    names = [name for column in wanted for name in (column, *also.get(column, ()))]
    return {name: makers[name]() for name in names}


def _last_start(complete: CompleteCollectives) -> Ints:
    """Return when the transfer of each collective began, at its last start, in ns."""
    calls = complete.calls
    start = calls.rows.start + calls.correction
    matched = np.flatnonzero(calls.match != NONE)
    by_match = Groups.by_keys(calls.match[matched])
    latest = fill_none(calls.rows.length)
    latest[matched] = by_match.max(start[matched])[by_match.group_ids]
    return np.asarray(latest[complete.row])


def _collect_facts(
    complete: CompleteCollectives, compared: TransferBaseline, align: bool
) -> dict[str, object]:
    counts = Counter(compared.basis[compared.basis != NONE].tolist())
    has = compared.basis != NONE
    span = complete.time_ns[has]
    matched = np.unique(complete.calls.match[complete.calls.match != NONE])
    return {
        "collectives": len(complete),
        "matched": len(matched),
        "compared_with": {BASELINES[k]: counts[k] for k in sorted(counts)},
        "without_baseline": int((~has).sum()),
        "compared_with_their_own_group_alone": compared.with_themselves,
        "excess_ns": int(span.sum() - np.rint(compared.expected_ns[has]).sum()),
        **complete.calls.hosts.facts(),
        **clock_facts(align),
    }
