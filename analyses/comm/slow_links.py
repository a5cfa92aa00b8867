"""Adapters, links, nodes or GPUs that slow communication down."""

import json
from typing import Annotated

import numpy as np
import pyarrow as pa

from htk.base.columns.types import Ints
from htk.base.core.analysis import analysis, with_coverage
from htk.base.core.humanize import format_int_ranges, pluralize
from htk.base.schema import table
from htk.base.schema.columns import TEXT
from htk.quantities.measures.collective_calls import CollectiveCalls, clock_facts, with_nccl_facts
from htk.quantities.measures.link_paces import UNKNOWN, USUAL, LinkPaces, LinkRates
from htk.quantities.measures.slow_links import (
    ADAPTER,
    ADAPTERS,
    GPU,
    NETWORK,
    NODE,
    PAIR,
    Alike,
    NcclRecords,
    Suspect,
    logged_paces,
    suspected,
)

_I32, _I64, _F64 = pa.int32(), pa.int64(), pa.float64()

RETURNS = table(
    suspect=(TEXT, "What is slow: an adapter, a link, a node's, a GPU's, the network."),
    probability=(_F64, "That it is this, or one of those that cannot be told from it."),
    may_be=(TEXT, "All that the same calls fit, each with its probability, compact JSON."),
    slowdown=(_F64, "Factor by which the transfers that use it take longer."),
    busbw_gbps=(_F64, "Bus bandwidth of those transfers."),
    expected_gbps=(_F64, "That of like groups that do not use it, else of such links usually."),
    compared_with=(TEXT, "like groups, data sheet, usual installations, given."),
    group_count=(_I32, "Groups of ranks that use it."),
    collectives=(_I64, "Their large collectives, which it was seen in."),
    excess_ns=(_I64, "What those take longer, added up over them."),
    slow_ranks=(TEXT, "Ranks of those groups: late for it, not stragglers. Compact JSON."),
    test=(TEXT, "What would decide it."),
)
_LEAST = 0.01  # probability of what is shown
_DECIDED = 0.5
_NAMED = 4  # suspects by name; of more, the kinds
_WIDEST = (NETWORK, PAIR, ADAPTERS, NODE, ADAPTER, GPU)


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
    where NCCL's log lies beside the trace those of its rings and trees. Nothing is shown where it
    is likelier that nothing is slow.
    """
    matches = aligned_matches if align else collective_matches
    named = with_nccl_facts(collectives, collective_facts)
    calls = CollectiveCalls.of_one_source(named, matches, ranks)
    records = NcclRecords(collectives, collective_facts, comm_transports, comm_inits)
    paces = logged_paces(calls, LinkRates.of(calls, intra_gbps, inter_gbps), records)
    classes, nothing = suspected(paces, calls.hosts.of_rank)
    shown = [c for c in classes if c.probability >= _LEAST] if nothing < _DECIDED else []
    rows = [_row(paces, alike) for alike in shown]
    facts = {
        "groups": len(paces),
        "collectives": int(paces.collectives.sum()),
        "probability_that_nothing_is_slow": round(nothing, 3),
        "rings_from_nccl_log": sum(h is not None for h in paces.hops or ()),
        "verdict": _verdict(shown, nothing) if len(paces) else "no collective of known size",
        **calls.hosts.facts(),
        **clock_facts(align),
    }
    return with_coverage(pa.Table.from_pylist(rows, schema=RETURNS), **facts)


def _verdict(shown: list[Alike], nothing: float) -> str:
    if not shown:
        return f"no slow link ({100 * nothing:.0f} %)"
    likeliest = shown[0]
    rest = "" if len(likeliest.suspects) == 1 else "; which part of it, cannot be told"
    return f"{names_of(likeliest.suspects)} ({100 * likeliest.probability:.0f} %){rest}"


def _row(paces: LinkPaces, alike: Alike) -> dict[str, object]:
    use = alike.groups
    time = float(paces.time_ns[use].sum())
    pace, expected, basis = expected_rate(paces, use)
    parts = {_name(s): round(s.probability, 4) for s in alike.suspects}
    return {
        "suspect": names_of(alike.suspects),
        "probability": alike.probability,
        "may_be": json.dumps(parts, separators=(",", ":")),
        "slowdown": alike.slowdown,
        "busbw_gbps": pace,
        "expected_gbps": expected,
        "compared_with": basis,
        "group_count": len(use),
        "collectives": int(paces.collectives[use].sum()),
        "excess_ns": round(time * (1 - 1 / alike.slowdown)),
        "slow_ranks": json.dumps(
            sorted({r for k in use.tolist() for r in paces.members[k]}), separators=(",", ":")
        ),
        "test": _test({s.kind for s in alike.suspects}, len(alike.suspects)),
    }


def expected_rate(paces: LinkPaces, use: Ints) -> tuple[float, float | None, str | None]:
    """Bandwidth of the groups that use it, what it should be, and what says so."""
    pace = float(np.average(paces.busbw_gbps[use], weights=paces.time_ns[use]))
    others = np.setdiff1d(np.flatnonzero(np.isin(paces.kind, paces.kind[use])), use)
    if len(others):
        return pace, float(np.median(paces.busbw_gbps[others])), "like groups"
    limit = paces.limit_gbps[use]
    if np.isnan(limit).all() or (paces.unsure[use] >= UNKNOWN).all():
        return pace, None, None
    return pace, float(USUAL * np.nanmedian(limit)), paces.limit_from[int(use[0])]


def names_of(suspects: list[Suspect]) -> str:
    """Suspects that cannot be told apart: by name, else the widest and what else it may be."""
    if len(suspects) <= _NAMED:
        return ", or ".join(_name(suspect) for suspect in suspects)
    widest = min(suspects, key=lambda s: (_WIDEST.index(s.kind), s.ranks))
    kinds = {s.kind for s in suspects}
    if widest.kind in (NETWORK, PAIR):
        return _name(widest) + (", or one rank's links" if GPU in kinds else "")
    return f"one of {pluralize(len(suspects), 'suspect')}: {', '.join(sorted(kinds))}"


def _name(suspect: Suspect) -> str:
    nodes = " and ".join(suspect.nodes)
    if suspect.kind == NETWORK:
        return f"network between {pluralize(len(suspect.nodes), 'node')}"
    if suspect.kind == PAIR:
        return f"link between {nodes}"
    if suspect.kind in (ADAPTERS, NODE):
        return f"{'network adapters' if suspect.kind == ADAPTERS else 'GPU links'} of {nodes}"
    what = "network adapter" if suspect.kind == ADAPTER else "links"
    what = f"{what} {suspect.device}" if suspect.device else what
    where = f" on {nodes}" if nodes else ""
    ranks = format_int_ranges(suspect.ranks)
    return f"{what} of rank{'s' if len(suspect.ranks) > 1 else ''} {ranks}{where}"


def _test(kinds: set[str], count: int) -> str:
    """Return what tells suspects from one another, or makes the one certain."""
    if kinds <= {GPU, NODE}:
        return (
            "all_reduce_perf (nccl-tests) on that node alone and on another; nvidia-smi nvlink -e"
        )
    if count == 1:
        return "all_reduce_perf (nccl-tests) with it and without it; ibstat, its error counters"
    return (
        "all_reduce_perf (nccl-tests) on each pair of nodes, then by one adapter at a time "
        "(NCCL_IB_HCA): slow wherever the slow part is in it; ibstat and error counters there"
    )
