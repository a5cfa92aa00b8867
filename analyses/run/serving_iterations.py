"""Iterations of an inference server."""

from collections.abc import Callable
from typing import Annotated

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import (
    build_numbers,
    build_texts,
    match_texts,
    number_or_null,
    read_keys,
    read_numbers,
    read_times,
)
from htk.base.columns.intervals import union_lengths
from htk.base.columns.types import Ints, Mask, take_or
from htk.base.core.analysis import analysis, with_coverage
from htk.base.core.chart import Bar
from htk.base.names.server_ranges import ServerRange
from htk.base.schema import INT32, INT64, TEXT, table
from htk.quantities.graph.nodes import collective_rows
from htk.quantities.measures.server_iterations import (
    LaunchedWork,
    ServerIterations,
    match_experts,
)

RETURNS = table(
    rank=(INT32, "Global rank."),
    iteration=(INT32, "Number of the iteration on its rank, from 0."),
    phase=(TEXT, "prefill, decode, mixed, idle, draft (of a draft model) or diffusion."),
    prefill_requests=(INT64, "Requests being read; null where not told."),
    prefill_tokens=(INT64, "Their tokens in this iteration."),
    decode_requests=(INT64, "Requests being answered."),
    decode_tokens=(INT64, "Tokens computed for them."),
    context_tokens=(INT64, "Tokens attended to, of all requests."),
    padded_tokens=(INT64, "Tokens computed, padding included."),
    traits=(TEXT, "chunked: prompts of which a part was read before; speculative; padded."),
    start_ns=(INT64, "Start on the CPU, absolute."),
    cpu_ns=(INT64, "Time on the CPU."),
    device_busy_ns=(INT64, "Time that something ran on the GPU, of what it launched."),
    gpu_span_ns=(INT64, "From the first of that to the last end; null: nothing."),
    gap_ns=(INT64, "From the GPU end of the iteration before; negative where they overlap."),
    elapsed_ns=(
        INT64,
        "From the GPU end of the iteration before (of the first: from its first start) to its own, "
        "without waits for work that was not recorded.",
    ),
    exposed_comm_ns=(INT64, "Time in which its communication ran and it computed nothing."),
    comm_wait_ns=(INT64, "Of that: waiting for other ranks; null: not told."),
    expert_ns=(INT64, "Time in products of experts."),
    kernels=(INT64, "GPU activities."),
)


@analysis(
    returns=RETURNS, chart=Bar("iteration", ("device_busy_ns", "gap_ns")), needs=("annotations",)
)
def serving_iterations(
    annotations: pa.Table,
    kernels: pa.Table,
    kernel_links: pa.Table,
    idle_causes: pa.Table,
    collectives: pa.Table,
    collective_shares: pa.Table,
    *,
    match: Annotated[
        str | None, "Regular expression that names must match: ranges that are iterations."
    ] = None,
) -> pa.Table:
    """What does each iteration of an inference server do, and how long does it take?

    Token counts come from the names of the ranges that vLLM, SGLang, ATOM, TensorRT-LLM and xDiT
    put round their iterations. Others need --match; its named groups prefill, prefill_tokens,
    decode, decode_tokens, padded and mode are understood.
    """
    iterations = ServerIterations.from_annotations(annotations, match)
    rank, facts = iterations.rank, iterations.facts
    iteration = iterations.launching(kernels, kernel_links)
    gpu = LaunchedWork(iteration, len(rank), kernels)
    cycle = iterations.cycle
    same = (rank[1:] == rank[:-1]) & (cycle[1:] == cycle[:-1])
    follows = np.append(False, same) & (gpu.count > 0)
    follows[1:] &= gpu.count[:-1] > 0
    before = np.append(0, gpu.last[:-1])
    span = gpu.last - gpu.first
    elapsed = np.where(follows, gpu.last - np.minimum(before, gpu.last), span)
    waited = _unrecorded_waits(idle_causes, rank, gpu.last - elapsed, gpu.last)
    answer = pa.table(
        {
            "rank": number_or_null(rank, INT32),
            "iteration": build_numbers(np.arange(len(rank)) - np.searchsorted(rank, rank), INT32),
            "phase": build_texts([fact.phase for fact in facts]),
            **{name: pa.array([of(fact) for fact in facts], INT64) for name, of in _COUNTS.items()},
            "traits": build_texts([", ".join(fact.traits) or None for fact in facts]),
            "start_ns": build_numbers(iterations.start, INT64),
            "cpu_ns": build_numbers(iterations.end - iterations.start, INT64),
            "device_busy_ns": build_numbers(gpu.busy, INT64),
            "gpu_span_ns": build_numbers(span, INT64, gpu.count > 0),
            "gap_ns": build_numbers(gpu.first - before, INT64, follows),
            "elapsed_ns": build_numbers(elapsed - waited, INT64, gpu.count > 0),
            **_shared_model(iteration, len(rank), kernels, collectives, collective_shares),
            "kernels": build_numbers(gpu.count, INT64),
        },
        schema=RETURNS,
    )
    outside = int((iteration < 0).sum())
    return with_coverage(answer, format=iterations.form, activities_in_no_iteration=outside)


def _shared_model(
    iteration: Ints, length: int, kernels: pa.Table, collectives: pa.Table, shares: pa.Table
) -> dict[str, pa.Array]:
    """Return what each iteration spends on sharing a model with other ranks."""

    def measure_busy(chosen: Mask) -> Ints:
        rows = np.flatnonzero(chosen & (iteration >= 0))
        begin, end = read_times(kernels, rows)
        return union_lengths(iteration[rows], begin, end, length)

    computes = match_texts(kernels["kind"], "compute".__eq__)
    comm = match_texts(kernels["kind"], "comm".__eq__)
    of_kernel = collective_rows(
        {"kernels": kernels, "collectives": collectives}, np.arange(kernels.num_rows)
    )
    waited = take_or(read_numbers(shares["exposed_wait_ns"], 0), of_kernel, 0)
    timed = (of_kernel >= 0) & (iteration >= 0)
    waits = np.bincount(iteration[timed], waited[timed], length).astype(np.int64)
    has_waits = np.bincount(iteration[timed], minlength=length) > 0
    exposed = measure_busy(computes | comm) - measure_busy(computes)
    return {
        "exposed_comm_ns": build_numbers(exposed, INT64),
        "comm_wait_ns": build_numbers(waits, INT64, has_waits),
        "expert_ns": build_numbers(measure_busy(match_experts(kernels)), INT64),
    }


def _sum_context(fact: ServerRange) -> int | None:
    present = [side.keys for side in (fact.prompts, fact.answers) if side.requests]
    return sum(keys for keys in present if keys) if present and None not in present else None


_COUNTS: dict[str, Callable[[ServerRange], int | None]] = {
    "prefill_requests": lambda fact: fact.prompts.requests,
    "prefill_tokens": lambda fact: fact.prompts.tokens,
    "decode_requests": lambda fact: fact.answers.requests,
    "decode_tokens": lambda fact: fact.answers.tokens,
    "context_tokens": _sum_context,
    "padded_tokens": lambda fact: fact.computed,
}


def _unrecorded_waits(idle_causes: pa.Table, rank: Ints, start: Ints, end: Ints) -> Ints:
    """Return how long each iteration's GPU waited for work that was not recorded."""
    suspected = match_texts(idle_causes["cause"], "unrecorded_gpu_work_suspected".__eq__)
    rows = np.flatnonzero(suspected)
    waited = np.zeros(len(start), np.int64)
    idle_rank = read_keys(idle_causes["rank"])[rows]
    idle_start, idle_end = read_times(idle_causes, rows)
    for k in range(len(rows)):  # such waits are few
        own = rank == idle_rank[k]
        shared = np.minimum(end, idle_end[k]) - np.maximum(start, idle_start[k])
        waited += np.where(own, np.maximum(shared, 0), 0)
    return waited
