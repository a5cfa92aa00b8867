"""What stragglers cost a job, step by step."""

from typing import Annotated

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import build_numbers
from htk.base.columns.order import order_by
from htk.base.core.analysis import analysis
from htk.base.core.chart import Line
from htk.base.schema import FLOAT64, INT32, table
from htk.quantities.straggler.answer import Question

RETURNS = table(
    step=(INT32, "Training step; null: the whole job."),
    recorded_ms=(FLOAT64, "Step time as recorded; of the job the mean."),
    replayed_ms=(FLOAT64, "Replayed without launch delays: what the operations explain."),
    ideal_ms=(FLOAT64, "Replayed with each operation at its type's usual duration."),
    slowdown=(FLOAT64, "replayed over ideal: 1.0 is a job without stragglers."),
    excess_ms=(FLOAT64, "replayed less ideal: what stragglers cost a step."),
    excess_gpu_hours=(FLOAT64, "The same in GPU hours, over the recorded steps."),
    launch_slowdown=(FLOAT64, "recorded over replayed: what late hosts cost."),
)


@analysis(
    returns=RETURNS,
    chart=Line("step", ("recorded_ms", "replayed_ms", "ideal_ms")),
    needs=("job_operations",),
)
def straggler_slowdown(
    job_operations: pa.Table,
    job_layouts: pa.Table,
    *,
    gpus: Annotated[int | None, "GPUs of the job; by default from its layout or ranks."] = None,
) -> pa.Table:
    """How much slower is the job than it would be if no operation were slower than its peers?

    Every step is replayed with the dependencies of its schedule: once with the recorded durations,
    once with each operation at the usual duration of its type (the mean over the job, of transfers
    the median). The first row is the job: means over the recorded steps.
    """
    question = Question.from_operations(job_operations, job_layouts, gpus)
    job = question.job
    recorded = np.append(job.recorded.mean(), job.recorded)
    replayed = np.append(job.replayed.mean(), job.replayed)
    ideal = np.append(job.ideal_steps.mean(), job.ideal_steps)
    order = np.append(0, 1 + order_by(job.steps))
    count = np.append(len(job.steps), np.ones(len(job.steps)))
    excess = replayed - ideal
    columns = {
        "step": build_numbers(np.append(0, job.steps)[order], INT32, order > 0),
        "recorded_ms": recorded / 1e6,
        "replayed_ms": replayed / 1e6,
        "ideal_ms": ideal / 1e6,
        "slowdown": replayed / ideal,
        "excess_ms": excess / 1e6,
        "excess_gpu_hours": question.gpu_hours(1.0) * excess * count,
        "launch_slowdown": recorded / replayed,
    }
    arrays = [
        columns[f.name] if f.name == "step" else build_numbers(columns[f.name][order], FLOAT64)
        for f in RETURNS
    ]
    return question.covered(pa.table(arrays, schema=RETURNS))
