"""Which type of operation slows a job."""

import numpy as np
import pyarrow as pa

from htk.columns.arrow import number, texts
from htk.columns.types import Ints
from htk.core.analysis import analysis
from htk.core.chart import Bar
from htk.schema import TEXT, table
from htk.schema.operation_types import LABELS
from htk.straggler.answer import Question
from htk.straggler.job import Job, label_codes
from htk.straggler.slowdown import slowdown, steps_by_type

RETURNS = table(
    type=(TEXT, "Type of operation; sends and receives of a pass together."),
    slowdown=(pa.float64(), "Of the job if only these operations took as long as they did."),
    excess_ms=(pa.float64(), "What they alone cost a step."),
    count=(pa.int64(), "How many were recorded."),
    duration_ms_mean=(pa.float64(), "Mean duration; of communication once all have come."),
    duration_ms_p50=(pa.float64(), "Median of the same."),
    duration_ms_p99=(pa.float64(), "99th percentile of the same."),
    launch_delay_ms_mean=(pa.float64(), "Mean time after all they waited for: the host was late."),
    blocked_ms_mean=(pa.float64(), "Mean time in which they waited for others to come."),
)


@analysis(
    returns=RETURNS, chart=Bar("type", "excess_ms", horizontal=True), needs=("job_operations",)
)
def slowdown_by_type(job_operations: pa.Table, job_layouts: pa.Table) -> pa.Table:
    """Which type of operation slows the job: compute, pipeline transfers or reductions?

    The operations of one type keep their recorded durations, all others take their usual ones.
    """
    question = Question.of(job_operations, job_layouts)
    job = question.job
    ideal = job.ideal_steps
    rows = []
    delays = [block.delay for block in job.blocks]
    for label, steps in steps_by_type(job).items():
        own, delay, blocked = _durations(job, delays, label)
        rows.append(
            {
                "type": label,
                "slowdown": float(slowdown(steps, ideal)),
                "excess_ms": float(steps.mean() - ideal.mean()) / 1e6,
                "count": len(own),
                "duration_ms_mean": float(own.mean()) / 1e6,
                "duration_ms_p50": float(np.median(own)) / 1e6,
                "duration_ms_p99": float(np.quantile(own, 0.99)) / 1e6,
                "launch_delay_ms_mean": delay / 1e6,
                "blocked_ms_mean": blocked / 1e6,
            }
        )
    rows.sort(key=lambda row: -float(str(row["slowdown"])))
    arrays = [
        texts([str(row["type"]) for row in rows])
        if field.name == "type"
        else number(np.array([row[field.name] for row in rows]), field.type)
        for field in RETURNS
    ]
    return question.covered(pa.table(arrays, schema=RETURNS))


def _durations(job: Job, delays: list[Ints], label: str) -> tuple[np.ndarray, float, float]:
    """Own durations of a label's operations, their mean launch delay and mean wait for others."""
    own, delay, waited = [], 0, 0
    for block, late in zip(job.blocks, delays, strict=True):
        rows = label_codes(block.program) == LABELS.index(label)
        own.append(block.own[rows].ravel())
        delay += int(late[rows].sum())
        span = (block.end - block.start)[rows]
        waited += int(np.maximum(span - block.own[rows], 0).sum())
    values = np.concatenate(own)
    return values, delay / max(len(values), 1), waited / max(len(values), 1)
