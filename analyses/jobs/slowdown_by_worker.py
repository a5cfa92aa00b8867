"""Which worker slows a job: data-parallel ranks by pipeline stages."""

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import build_numbers, number_or_null
from htk.base.columns.order import order_by
from htk.base.core.analysis import analysis
from htk.base.core.chart import Heatmap
from htk.base.schema import FLOAT64, INT32, INT64, table
from htk.quantities.straggler.answer import Question
from htk.quantities.straggler.causes import Causes
from htk.quantities.straggler.slowdown import compute_slowdown, steps_by_worker

RETURNS = table(
    dp_rank=(INT32, "Data-parallel rank."),
    stage=(INT32, "Pipeline stage."),
    rank=(INT32, "Global rank (of several that share each layer the lowest)."),
    slowdown=(FLOAT64, "Of the job if only this worker took as long as it did."),
    excess_ms=(FLOAT64, "What it alone costs a step."),
    dp_rank_slowdown=(FLOAT64, "Of the job if only its data-parallel rank did, all stages."),
    slowdown_bound=(FLOAT64, "Lesser of its data-parallel rank's and its stage's slowdown."),
    slowest_steps=(INT64, "Steps in which it was the slowest worker, by 1 % or more."),
    longest_run=(INT64, "Most recorded steps on end in which it was."),
)

_NOTABLE = 1.01


@analysis(
    returns=RETURNS,
    chart=Heatmap("dp_rank", "stage", "slowdown", missing="not recorded"),
    needs=("job_operations",),
)
def slowdown_by_worker(job_operations: pa.Table, job_layouts: pa.Table) -> pa.Table:
    """Which worker (data-parallel rank and stage) slows the job, and in how many of its steps?

    One worker keeps its recorded durations, all others take their usual ones: replayed for every
    worker, not bounded by its row and column, which `bound` holds as published studies do.
    """
    question = Question.from_operations(job_operations, job_layouts)
    job, causes = question.job, Causes(question.job)
    ideal = job.ideal_steps
    steps = steps_by_worker(job)
    relative = (steps / ideal).reshape(-1, len(ideal))[:, order_by(job.steps)]
    top = np.where(relative.max(axis=0) >= _NOTABLE, relative.argmax(axis=0), -1)
    shape = (len(job.replicas), len(job.stages))
    spread = np.broadcast_to
    columns = {
        "dp_rank": spread(job.replicas[:, None], shape),
        "stage": spread(job.stages[None, :], shape),
        "slowdown": compute_slowdown(steps, ideal),
        "excess_ms": (steps.mean(axis=2) - ideal.mean()) / 1e6,
        "dp_rank_slowdown": spread(causes.by_replica[:, None], shape),
        "slowdown_bound": causes.scores,
        "slowest_steps": np.bincount(top + 1, minlength=job.rank.size + 1)[1:],
        "longest_run": _longest_runs(top, job.rank.size),
    }
    arrays = [
        number_or_null(job.rank.ravel(), INT32)
        if f.name == "rank"
        else build_numbers(columns[f.name].ravel(), f.type)
        for f in RETURNS
    ]
    table_ = pa.table(arrays, schema=RETURNS)
    worst = order_by(-columns["slowdown"].ravel(), np.arange(job.rank.size))
    return question.covered(table_.take(pa.array(worst)))


def _longest_runs(top: np.ndarray, workers: int) -> np.ndarray:
    """For each worker the most neighbouring places that hold it."""
    first = np.flatnonzero(np.diff(top, prepend=-2))
    length = np.diff(np.append(first, len(top)))
    longest = np.zeros(workers + 1, np.int64)
    np.maximum.at(longest, top[first] + 1, length)
    return longest[1:]
