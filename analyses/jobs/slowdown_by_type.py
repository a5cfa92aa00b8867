"""Which type of operation slows a job."""

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import build_numbers, build_texts
from htk.base.columns.types import Ints
from htk.base.core.analysis import analysis
from htk.base.core.chart import Bar
from htk.base.schema import FLOAT64, INT64, TEXT, table
from htk.base.schema.operation_types import LABELS
from htk.quantities.straggler.answer import Question
from htk.quantities.straggler.job import Block, labels_of
from htk.quantities.straggler.order_statistics import CountedBins, compute_quantiles
from htk.quantities.straggler.slowdown import compute_slowdown, steps_by_type

RETURNS = table(
    type=(TEXT, "Type of operation; sends and receives of a pass together."),
    slowdown=(FLOAT64, "Of the job if only these operations took as long as they did."),
    excess_ms=(FLOAT64, "What they alone cost a step."),
    count=(INT64, "How many were recorded."),
    duration_ms_mean=(FLOAT64, "Mean duration; of communication once all have come."),
    duration_ms_p50=(FLOAT64, "Median of the same."),
    duration_ms_p99=(FLOAT64, "99th percentile of the same."),
    launch_delay_ms_mean=(FLOAT64, "Mean time after all they waited for: the host was late."),
    blocked_ms_mean=(FLOAT64, "Mean time in which they waited for others to come."),
)


@analysis(
    returns=RETURNS, chart=Bar("type", "excess_ms", horizontal=True), needs=("job_operations",)
)
def slowdown_by_type(job_operations: pa.Table, job_layouts: pa.Table) -> pa.Table:
    """Which type of operation slows the job: compute, pipeline transfers or reductions?

    The operations of one type keep their recorded durations, all others take their usual ones.
    """
    question = Question.from_operations(job_operations, job_layouts)
    job = question.job
    ideal = job.ideal_steps
    bins = job.of_blocks(CountedBins(labels_of))
    times = compute_quantiles(job.of_blocks, labels_of, bins, (0.5, 0.99))
    sums = _merge_sums(job.of_blocks(_sum_block))
    rows = []
    for label, steps in steps_by_type(job).items():
        code = LABELS.index(label)
        count, own, delay, blocked = sums[code]
        p50, p99 = times[code]
        rows.append(
            {
                "type": label,
                "slowdown": float(compute_slowdown(steps, ideal)),
                "excess_ms": float(steps.mean() - ideal.mean()) / 1e6,
                "count": count,
                "duration_ms_mean": own / count / 1e6,
                "duration_ms_p50": p50 / 1e6,
                "duration_ms_p99": p99 / 1e6,
                "launch_delay_ms_mean": delay / count / 1e6,
                "blocked_ms_mean": blocked / count / 1e6,
            }
        )
    rows.sort(key=lambda row: -float(str(row["slowdown"])))
    arrays = [
        build_texts([str(row["type"]) for row in rows])
        if field.name == "type"
        else build_numbers(np.array([row[field.name] for row in rows]), field.type)
        for field in RETURNS
    ]
    return question.covered(pa.table(arrays, schema=RETURNS))


def _sum_block(block: Block) -> dict[int, Ints]:
    """Return, by label, how many operations, their own time, launch delay and wait for others."""
    late = block.delay
    labels = labels_of(block.program)
    sums = {}
    for label in np.unique(labels).tolist():
        own = block.own[labels == label]
        span = (block.end - block.start)[labels == label]
        blocked = np.maximum(span - own, 0).sum()
        sums[label] = np.array([own.size, own.sum(), late[labels == label].sum(), blocked])
    return sums


def _merge_sums(parts: list[dict[int, Ints]]) -> dict[int, list[int]]:
    """Return the sums of all blocks together."""
    total: dict[int, Ints] = {}
    for part in parts:
        for label, sums in part.items():
            total[label] = total.get(label, np.zeros(4, np.int64)) + sums
    return {label: sums.tolist() for label, sums in total.items()}
