"""How long the iterations of a server take: quantiles by phase, batch and context."""

from typing import Annotated, Literal

import numpy as np
import pyarrow as pa

from htk.analyses.run.serving_iterations import serving_iterations
from htk.base.columns.arrow import mark_valid, read_numbers
from htk.base.columns.types import Floats, Mask
from htk.base.core.analysis import analysis, coverage_of, with_coverage
from htk.base.core.chart import Bar
from htk.base.schema import FLOAT64, INT64, TEXT, table

RETURNS = table(
    phase=(TEXT, "prefill, decode, mixed, idle, draft or diffusion."),
    batch_from=(
        INT64,
        "Fewest requests answered, or tokens of prompts in prefill, of the row.",
    ),
    batch_to=(INT64, "Most of them."),
    context_from=(INT64, "Fewest tokens that a request looks back on; null: not told."),
    context_to=(INT64, "Most of them."),
    iterations=(INT64, "Iterations of all ranks."),
    elapsed_ns_p50=(INT64, "Median time, with the gap before each."),
    elapsed_ns_p90=(INT64, "The 90th percentile."),
    elapsed_ns_p99=(INT64, "The 99th percentile."),
    gap_ns_p50=(INT64, "Median gap before an iteration; null: none follows another."),
    gap_pct=(FLOAT64, "Share of the time in gaps between iterations."),
    exposed_comm_pct=(
        FLOAT64,
        "Share of the time in communication beside which nothing runs.",
    ),
    comm_wait_pct=(FLOAT64, "Share of the time in waits for other ranks; null: not told."),
    expert_imbalance_pct=(
        FLOAT64,
        "By how much the rank with most work for experts exceeds the mean of the ranks, over the "
        "iterations; null: no experts, or one rank.",
    ),
    padding_pct=(FLOAT64, "Share of the computed tokens that pad; null: not told."),
    tokens_per_s=(
        FLOAT64,
        "Tokens that a rank reads and gives, one a request, over the time; null: not told.",
    ),
)


@analysis(
    returns=RETURNS,
    chart=Bar("phase", ("elapsed_ns_p50", "elapsed_ns_p99")),
    needs=("annotations", "kernels"),
)
def iteration_times(
    annotations: pa.Table,
    kernels: pa.Table,
    kernel_links: pa.Table,
    idle_causes: pa.Table,
    collectives: pa.Table,
    collective_shares: pa.Table,
    *,
    by: Annotated[
        Literal["size", "phase"],
        "What a row stands for: a phase and, in powers of two, batch and context; or a phase.",
    ] = "size",
    match: Annotated[
        str | None, "Regular expression that names must match: ranges that are iterations."
    ] = None,
) -> pa.Table:
    """How long do a server's iterations take, by phase, batch and context, and how much is padding?

    Ranks that share a model count each iteration once a rank.
    """
    rows = serving_iterations.function(
        annotations, kernels, kernel_links, idle_causes, collectives, collective_shares, match=match
    )
    rows = rows.filter(pa.array(mark_valid(rows["elapsed_ns"])))
    phase = np.array([str(name) for name in rows["phase"].to_pylist()])
    answers = read_numbers(rows["decode_requests"], 0)
    read = read_numbers(rows["prefill_tokens"], 0)
    batch = np.where(answers > 0, answers, read)
    requests = answers + read_numbers(rows["prefill_requests"], 0)
    has_context = mark_valid(rows["context_tokens"]) & (requests > 0)
    context = np.where(
        has_context, read_numbers(rows["context_tokens"], 0) / np.maximum(requests, 1), -1.0
    )
    keys = [phase]
    if by == "size":
        keys += [_round_to_power(batch.astype(np.float64)), _round_to_power(context)]
    labels = np.array([" ".join(map(str, key)) for key in zip(*keys, strict=True)])
    groups = [np.flatnonzero(labels == label) for label in dict.fromkeys(labels.tolist())]
    groups.sort(key=lambda group: (phase[group[0]], batch[group[0]], context[group[0]]))
    answer = [
        {"phase": rows["phase"][int(group[0])].as_py()}
        | _find_extent("batch", batch[group].astype(np.float64), batch[group] > 0)
        | _find_extent("context", context[group], context[group] >= 0)
        | _summarise_rows(rows.take(pa.array(group)))
        for group in groups
    ]
    return with_coverage(pa.Table.from_pylist(answer, schema=RETURNS), **coverage_of(rows))


def _round_to_power(values: Floats) -> Floats:
    """Return the power of two that each value reaches; -1: nothing."""
    return np.where(values > 0, np.floor(np.log2(np.maximum(values, 1))), -1)


def _find_extent(name: str, values: Floats, present: Mask) -> dict[str, int | None]:
    if not present.any():
        return {f"{name}_from": None, f"{name}_to": None}
    return {
        f"{name}_from": round(float(values[present].min())),
        f"{name}_to": round(float(values[present].max())),
    }


def _summarise_rows(rows: pa.Table) -> dict[str, int | float | None]:
    elapsed = read_numbers(rows["elapsed_ns"])
    gaps = np.maximum(read_numbers(rows["gap_ns"])[mark_valid(rows["gap_ns"])], 0)
    total = max(int(elapsed.sum()), 1)
    padded = mark_valid(rows["padded_tokens"])
    read = read_numbers(rows["prefill_tokens"], 0)
    tokens = read + read_numbers(rows["decode_tokens"], 0)
    # Acceptance of drafted tokens is not recorded: a request is given one at least.
    answered = np.where(
        mark_valid(rows["decode_tokens"]), read_numbers(rows["decode_requests"], 0), 0
    )
    served = int(read.sum() + answered.sum())
    computed = int(read_numbers(rows["padded_tokens"])[padded].sum())
    wasted = computed - int(tokens[padded].sum())
    quantiles = {
        f"elapsed_ns_p{percent}": round(float(np.percentile(elapsed, percent)))
        for percent in (50, 90, 99)
    }
    return {
        "iterations": rows.num_rows,
        **quantiles,
        "gap_ns_p50": round(float(np.median(gaps))) if len(gaps) else None,
        "gap_pct": 100 * float(gaps.sum()) / total,
        "exposed_comm_pct": 100 * float(read_numbers(rows["exposed_comm_ns"]).sum()) / total,
        "comm_wait_pct": _wait_pct(rows, total),
        "expert_imbalance_pct": _imbalance_pct(rows),
        "padding_pct": 100 * max(wasted, 0) / computed if computed else None,
        "tokens_per_s": served / total * 1e9 if served else None,
    }


def _wait_pct(rows: pa.Table, total: int) -> float | None:
    matched = mark_valid(rows["comm_wait_ns"])
    return (
        100 * float(read_numbers(rows["comm_wait_ns"])[matched].sum()) / total
        if matched.any()
        else None
    )


def _imbalance_pct(rows: pa.Table) -> float | None:
    """Return by how much the most of the ranks exceeds their mean, iteration by iteration."""
    time = read_numbers(rows["expert_ns"]).astype(np.float64)
    _, number = np.unique(read_numbers(rows["iteration"]), return_inverse=True)
    ranks = np.bincount(number)
    if not time.sum() or ranks.max() < 2:
        return None
    most = np.zeros(len(ranks))
    np.maximum.at(most, number, time)
    mean = np.bincount(number, time) / ranks
    return 100 * (float(most[ranks > 1].sum()) / float(mean[ranks > 1].sum()) - 1)
