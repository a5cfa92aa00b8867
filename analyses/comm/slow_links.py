"""Adapters, links, nodes or GPUs that slow communication down."""

import json
from typing import Annotated

import numpy as np
import pyarrow as pa

from htk.base.columns.types import Ints
from htk.base.core.analysis import analysis, with_coverage
from htk.base.core.humanize import format_int_ranges, pluralize_count
from htk.base.schema import FLOAT64, INT32, INT64, TEXT, table
from htk.quantities.measures.collective_calls import CollectiveCalls, clock_facts, with_nccl_facts
from htk.quantities.measures.link_paces import (
    LinkPaces,
    judged_calls,
    long_groups_left_out,
    reasons_not_judged,
)
from htk.quantities.measures.slow_links import (
    ADAPTER,
    ADAPTERS,
    GPU,
    NETWORK,
    NODE,
    PAIR,
    PATH,
    Alike,
    NcclRecords,
    Suspect,
    find_slow_links,
    logged_paces,
)
from htk.quantities.measures.transfer_times import UNKNOWN, LinkRates

RETURNS = table(
    suspect=(TEXT, "What is slow: an adapter, a link, a node's, a GPU's, a path, the network."),
    probability=(FLOAT64, "That it is this, or one of those that cannot be told from it."),
    may_be=(TEXT, "All that the same calls fit, each with its probability, compact JSON."),
    slowdown=(FLOAT64, "Factor by which the bytes of the transfers that use it take longer."),
    direction=(TEXT, "From which rank to which, of messages that go one way."),
    busbw_gbps=(FLOAT64, "Bus bandwidth of those transfers; of several kinds, of the slowest."),
    expected_gbps=(FLOAT64, "That of like groups that do not use it, else of such links usually."),
    compared_with=(TEXT, "like groups, measured, data sheet, usual installations, given."),
    group_count=(INT32, "Groups of ranks that use it."),
    collectives=(INT64, "Collectives of that bandwidth, which it was seen in."),
    excess_ns=(INT64, "What those take longer, added up over them."),
    slow_ranks=(TEXT, "Ranks of those groups: late for it, not stragglers. Compact JSON."),
    test=(TEXT, "What would decide it."),
)
_LEAST = 0.01  # probability of what is shown
_DECIDED = 0.5
_NAMED = 4  # suspects by name; of more, the kinds
_WIDEST = (NETWORK, PAIR, ADAPTERS, NODE, ADAPTER, GPU, PATH)


@analysis(returns=RETURNS, needs=("collectives",))
def slow_links(
    collectives: pa.Table,
    collective_matches: pa.Table,
    aligned_matches: pa.Table,
    ranks: pa.Table,
    collective_facts: pa.Table,
    comm_transports: pa.Table,
    comm_inits: pa.Table,
    *,
    intra_gbps: Annotated[
        float | None, "Rate between GPUs of a node, GB/s one way; by default the GPU's."
    ] = None,
    inter_gbps: Annotated[float | None, "Rate of a node to the others, GB/s one way."] = None,
    align: Annotated[bool, "Align the clocks of all ranks."] = True,
) -> pa.Table:
    """Which adapter, link, node or GPU slows communication down, and what would decide it?

    Transfers alone are compared, from the last start to the last end: waiting plays no part.
    What is slow slows all groups that use it and no other: all links and adapters of its ranks, or
    where NCCL's log lies beside the trace those of its rings and trees. Latency is left out: a
    call that it bounds tells nothing of links. Nothing is shown where it is likelier that nothing
    is slow; `judged` says which calls were.
    """
    matches = aligned_matches if align else collective_matches
    named = with_nccl_facts(collectives, collective_facts)
    calls = CollectiveCalls.of_one_source(named, matches, ranks)
    records = NcclRecords(collectives, collective_facts, comm_transports, comm_inits)
    paces = logged_paces(calls, LinkRates.from_calls(calls, intra_gbps, inter_gbps), records)
    classes, nothing = find_slow_links(paces, calls.hosts.of_rank)
    shown = [c for c in classes if c.probability >= _LEAST] if nothing < _DECIDED else []
    rows = [_build_suspect_row(paces, alike) for alike in shown]
    judged = judged_calls(calls, paces)
    facts = {
        "verdict": _write_verdict(shown, nothing, judged),
        "groups": len(paces),
        "collectives": int(paces.collectives.sum()),
        "probability_that_nothing_is_slow": round(nothing, 3) if len(paces) else None,
        "judged": {sort: f"{count} of {every} calls" for sort, (count, every) in judged.items()},
        "not_judged_because": reasons_not_judged(calls, paces),
        "not_judged_but_long": long_groups_left_out(calls, paces),
        "rings_from_nccl_log": sum(h is not None for h in paces.hops or ()),
        **calls.hosts.facts(),
        **clock_facts(align),
    }
    return with_coverage(pa.Table.from_pylist(rows, schema=RETURNS), **facts)


def _write_verdict(shown: list[Alike], nothing: float, judged: dict[str, tuple[int, int]]) -> str:
    """Return what is slow or that nothing is, of which calls, and which ones were not judged."""
    if not any(count for count, _ in judged.values()):
        return "nothing could be judged"
    left = [
        f"{n - count} of {n} calls of {sort}" for sort, (count, n) in judged.items() if count < n
    ]
    rest = f"; not judged: {', '.join(left)}" if left else ""
    if not shown:
        sorts = [f"{count} calls of {sort}" for sort, (count, _) in judged.items() if count]
        return f"no slow link ({100 * nothing:.0f} %) by {', '.join(sorts)}{rest}"
    likeliest = shown[0]
    parts = "" if len(likeliest.suspects) == 1 else "; which part of it, cannot be told"
    return f"{names_of(likeliest.suspects)} ({100 * likeliest.probability:.0f} %){parts}{rest}"


def _build_suspect_row(paces: LinkPaces, alike: Alike) -> dict[str, object]:
    seen = slowest_like(paces, alike.groups)
    time = float(paces.time_ns[seen].sum())
    pace, expected, basis = expected_rate(paces, alike.groups)
    parts = {_name_suspect(s): round(s.probability, 4) for s in alike.suspects}
    ways = {way for k in seen.tolist() for way in paces.ways[k] or [()]}
    way = ways.pop() if len(ways) == 1 else ()
    return {
        "suspect": names_of(alike.suspects),
        "probability": alike.probability,
        "may_be": json.dumps(parts, separators=(",", ":")),
        "slowdown": alike.slowdown,
        "direction": f"from {way[0]} to {way[1]}" if way else None,
        "busbw_gbps": pace,
        "expected_gbps": expected,
        "compared_with": basis,
        "group_count": len(alike.groups),
        "collectives": int(paces.collectives[seen].sum()),
        "excess_ns": round(time * (1 - 1 / alike.slowdown)),
        "slow_ranks": json.dumps(
            sorted({r for k in seen.tolist() for r in paces.members[k]}), separators=(",", ":")
        ),
        "test": _suggest_test({s.kind for s in alike.suspects}, len(alike.suspects)),
    }


def slowest_like(paces: LinkPaces, use: Ints) -> Ints:
    """Return those of the groups that make the same calls, of the calls that lose most time."""
    lost = {}
    for kind in np.unique(paces.kind[use]).tolist():  # a few kinds
        of_kind = np.flatnonzero(paces.kind == kind)
        others = np.setdiff1d(of_kind, use)
        usual = float(np.median(paces.excess[others])) if len(others) else 0.0
        own = np.intersect1d(of_kind, use)
        lost[kind] = float((paces.time_ns[own] * (paces.excess[own] - usual)).sum())
    slowest = max(lost, key=lambda kind: lost[kind])
    return np.asarray(use[paces.kind[use] == slowest])


def expected_rate(paces: LinkPaces, groups: Ints) -> tuple[float, float | None, str | None]:
    """Bandwidth of the slowest like calls of these groups, what it should be, what says so."""
    use = slowest_like(paces, groups)
    pace = float(np.average(paces.busbw_gbps[use], weights=paces.time_ns[use]))
    others = np.setdiff1d(np.flatnonzero(np.isin(paces.kind, paces.kind[use])), groups)
    if len(others):
        return pace, float(np.median(paces.busbw_gbps[others])), "like groups"
    if (paces.unsure[use] >= UNKNOWN).all():
        return pace, None, None
    return pace, float(np.median(paces.usual_gbps[use])), paces.usual_from[int(use[0])]


def names_of(suspects: list[Suspect]) -> str:
    """Suspects that cannot be told apart: by name, else the widest and what else it may be."""
    if len(suspects) <= _NAMED:
        return ", or ".join(_name_suspect(suspect) for suspect in suspects)
    widest = min(suspects, key=lambda s: (_WIDEST.index(s.kind), s.ranks))
    kinds = {s.kind for s in suspects}
    if widest.kind in (NETWORK, PAIR):
        return _name_suspect(widest) + (", or one rank's links" if GPU in kinds else "")
    return f"one of {pluralize_count(len(suspects), 'suspect')}: {', '.join(sorted(kinds))}"


def _name_suspect(suspect: Suspect) -> str:
    nodes = " and ".join(suspect.nodes)
    if suspect.kind == NETWORK:
        return f"network between {pluralize_count(len(suspect.nodes), 'node')}"
    if suspect.kind == PAIR:
        return f"link between {nodes}"
    if suspect.kind in (ADAPTERS, NODE):
        return f"{'network adapters' if suspect.kind == ADAPTERS else 'GPU links'} of {nodes}"
    if suspect.kind == PATH:
        return f"path from rank {suspect.ranks[0]} to rank {suspect.ranks[1]}"
    what = "network adapter" if suspect.kind == ADAPTER else "links"
    what = f"{what} {suspect.device}" if suspect.device else what
    where = f" on {nodes}" if nodes else ""
    ranks = format_int_ranges(suspect.ranks)
    return f"{what} of rank{'s' if len(suspect.ranks) > 1 else ''} {ranks}{where}"


def _suggest_test(kinds: set[str], count: int) -> str:
    """Return what tells suspects from one another, or makes the one certain."""
    if kinds <= {GPU, NODE, PATH}:
        return (
            "all_reduce_perf (nccl-tests) on that node alone and on another; nvidia-smi nvlink -e"
        )
    if count == 1:
        return "all_reduce_perf (nccl-tests) with it and without it; ibstat, its error counters"
    return (
        "all_reduce_perf (nccl-tests) on each pair of nodes, then by one adapter at a time "
        "(NCCL_IB_HCA): slow wherever the slow part is in it; ibstat and error counters there"
    )
