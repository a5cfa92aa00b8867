"""How a step divides into data loading, forward, backward and optimizer."""

from typing import Annotated

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import (
    build_booleans,
    build_numbers,
    codes_of,
    decode_texts,
    mark_valid,
    match_texts,
    number_or_null,
    read_times,
)
from htk.base.columns.groups import Groups
from htk.base.columns.intervals import union_lengths
from htk.base.columns.types import NONE, Ints
from htk.base.core.analysis import analysis, with_coverage
from htk.base.core.chart import Bar
from htk.base.core.spread import ByRank
from htk.base.errors import MissingTable
from htk.base.names.phases import PHASES
from htk.base.schema import BOOL, FLOAT64, INT32, INT64, TEXT, table
from htk.quantities.measures.breakdown import Per, build_percent
from htk.quantities.measures.host_phases import NO_STEP, host_phase_spans, phase_keys
from htk.quantities.measures.passes import phase_codes

RETURNS = table(
    rank=(INT32, "Global rank."),
    cycle=(INT32, "Recording of the rank that the step is of; null without a step."),
    step=(INT32, "Step that launched it; null per rank, or for what no step launched."),
    phase=(TEXT, "dataloader, forward, backward, optimizer, other; null: launch not recorded."),
    inferred=(
        BOOL,
        "Operators, not user ranges, tell it for most of its GPU time; null: nothing tells it.",
    ),
    cpu_ns=(INT64, "Host time in its outermost operators, and in its ranges between these."),
    device_busy_ns=(
        INT64,
        "At least one activity that it launched runs; null: no GPU work.",
    ),
    device_ns=(INT64, "Durations of those, added up."),
    kernels=(INT64, "Activities that it launched."),
    device_busy_pct=(FLOAT64, "Share of the GPU time of all phases."),
)


@analysis(
    returns=RETURNS,
    chart=Bar("phase", ("cpu_ns", "device_busy_ns"), stacked=False),
    null_without={
        "kernels": ("device_busy_ns", "device_ns", "kernels"),
        "cpu_ops": ("cpu_ns",),
    },
    spread=ByRank(totals=("phases_from",)),
)
def phase_breakdown(
    kernels: pa.Table,
    kernel_links: pa.Table,
    cpu_ops: pa.Table,
    op_links: pa.Table,
    op_passes: pa.Table,
    kernel_passes: pa.Table,
    annotations: pa.Table,
    *,
    per: Annotated[Per, "What a row covers: a rank, or each of its steps."] = "rank",
) -> pa.Table:
    """How does the time divide into data loading, forward, backward and optimizer?

    Told by autograd's sequence numbers and threads, then by user ranges, names and order;
    `phases_from` counts which. GPU work belongs to the phase that launched it.
    """
    if not kernels.num_rows and not cpu_ops.num_rows and not annotations.num_rows:
        raise MissingTable("no operators were recorded", "cpu_ops")
    phase = phase_codes(kernel_passes)
    gpu = phase_keys(kernels, kernel_links["step"], np.where(phase == NONE, _UNKNOWN, phase))
    host, host_start, host_end = host_phase_spans(cpu_ops, op_links, op_passes, annotations)
    if per == "rank":
        gpu[:, 1] = host[:, 1] = NO_STEP
    groups = Groups.by_keys(_by_cycle(np.concatenate([gpu, host])))
    count = len(groups)
    of_gpu = groups.group_ids[: len(gpu)]
    of_host = groups.group_ids[len(gpu) :]
    start, end = read_times(kernels)
    device_busy_ns = union_lengths(of_gpu, start, end, count)
    device_ns = np.bincount(of_gpu, end - start, minlength=count)[:count].astype(np.int64)
    many = np.bincount(of_gpu, minlength=count)[:count]
    by_range = match_texts(kernel_passes["basis"], "user range".__eq__)
    guessed = np.bincount(of_gpu, ~by_range * (end - start), minlength=count)[:count]
    based = np.bincount(of_gpu, mark_valid(kernel_passes["basis"]), minlength=count)[:count]
    rank, cycle, step, phase = groups.keys.reshape(-1, 4).T
    of_step = Groups.by_keys(groups.keys[:, :3])
    total = of_step.sum(device_busy_ns)[of_step.group_ids] if count else device_busy_ns
    table = pa.table(
        [
            number_or_null(rank, INT32),
            build_numbers(cycle, INT32, step < NO_STEP),
            build_numbers(step, INT32, step < NO_STEP),
            decode_texts(np.where(phase < len(PHASES), phase, -1), pa.array(PHASES)),
            build_booleans(2 * guessed > device_ns, based > 0),
            build_numbers(union_lengths(of_host, host_start, host_end, count), INT64),
            build_numbers(device_busy_ns, INT64, np.full(count, kernels.num_rows > 0)),
            build_numbers(device_ns, INT64),
            build_numbers(many, INT64),
            build_percent(device_busy_ns, total),
        ],
        schema=RETURNS,
    )
    return with_coverage(table, phases_from=_count_sources(kernel_passes))


_UNKNOWN = len(PHASES)


def _count_sources(kernel_passes: pa.Table) -> dict[str, int]:
    """Return how many activities each kind of evidence gives their phase."""
    codes, bases = codes_of(kernel_passes["basis"])
    counts = np.bincount(codes[codes >= 0], minlength=len(bases))
    return dict(zip(bases.to_pylist(), counts.tolist(), strict=True))


def _by_cycle(keys: Ints) -> Ints:
    """Return rank, cycle, step and phase; what has no step is of no cycle, and comes last."""
    cycle = np.where(keys[:, 1] == NO_STEP, NO_STEP, keys[:, 3])
    return np.column_stack([keys[:, 0], cycle, keys[:, 1], keys[:, 2]]).astype(np.int64)
