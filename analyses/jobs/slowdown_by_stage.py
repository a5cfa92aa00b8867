"""Which pipeline stage slows a job."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import build_numbers
from htk.base.columns.types import Ints
from htk.base.core.analysis import analysis
from htk.base.core.chart import Bar
from htk.base.schema import FLOAT64, INT32, table
from htk.quantities.straggler.answer import Question
from htk.quantities.straggler.job import Block
from htk.quantities.straggler.program import BACKWARD, FORWARD
from htk.quantities.straggler.slowdown import compute_slowdown, steps_by_stage

RETURNS = table(
    stage=(INT32, "Pipeline stage."),
    slowdown=(FLOAT64, "Of the job if only this stage took as long as it did."),
    excess_ms=(
        FLOAT64,
        "What it alone costs a step; negative: it is shorter than others.",
    ),
    forward_ms_mean=(FLOAT64, "Mean forward of a micro-batch and chunk."),
    backward_ms_mean=(FLOAT64, "Mean backward of a micro-batch and chunk."),
    compute_pct=(FLOAT64, "Its compute, of the mean stage's."),
)


@analysis(returns=RETURNS, chart=Bar("stage", "excess_ms"), needs=("job_operations",))
def slowdown_by_stage(job_operations: pa.Table, job_layouts: pa.Table) -> pa.Table:
    """Which pipeline stage slows the job: is the model split evenly?

    The operations of one stage keep their recorded durations, all others take their usual ones.
    """
    question = Question.from_operations(job_operations, job_layouts)
    job = question.job
    steps = steps_by_stage(job)
    ideal = job.ideal_steps
    sums = np.sum(job.of_blocks(_Passes(len(job.stages))), axis=0)
    means = sums[..., 0] / sums[..., 1]
    compute = means.sum(axis=1)
    columns = {
        "stage": job.stages,
        "slowdown": compute_slowdown(steps, ideal),
        "excess_ms": (steps.mean(axis=1) - ideal.mean()) / 1e6,
        "forward_ms_mean": means[:, 0] / 1e6,
        "backward_ms_mean": means[:, 1] / 1e6,
        "compute_pct": 100 * compute / compute.mean(),
    }
    arrays = [build_numbers(columns[f.name], f.type) for f in RETURNS]
    return question.covered(pa.table(arrays, schema=RETURNS))


@dataclass(frozen=True)
class _Passes:
    """Total time of each stage's forwards and backwards, in ns, and their number."""

    stages: int

    def __call__(self, block: Block) -> Ints:
        sums = np.zeros((self.stages, 2, 2), np.int64)
        for stage in range(self.stages):
            for k, code in enumerate((FORWARD, BACKWARD)):
                own = block.own[(block.program.stage == stage) & (block.program.type == code)]
                sums[stage, k] = own.sum(), own.size
        return sums
