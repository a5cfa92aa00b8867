"""What a job's step would take without one of its stragglers."""

from typing import Annotated

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import build_numbers, build_texts
from htk.base.columns.types import Ints
from htk.base.core.analysis import analysis
from htk.base.core.chart import Bar
from htk.base.errors import UsageError
from htk.base.schema import FLOAT64, TEXT, table
from htk.base.schema.operation_types import LABELS
from htk.quantities.straggler.answer import Question
from htk.quantities.straggler.causes import Causes
from htk.quantities.straggler.changes import (
    Change,
    LikePeers,
    at_medians,
    lengths_even,
    stages_even,
    steps_changed,
)
from htk.quantities.straggler.job import Job

RETURNS = table(
    change=(TEXT, "What is other than recorded."),
    step_ms_mean=(FLOAT64, "Mean step time then; the first row is the replay as recorded."),
    saved_ms=(FLOAT64, "What it saves of a step."),
    saved_pct=(FLOAT64, "The same, of the replayed step."),
    slowdown=(FLOAT64, "What is left: over a job in which nothing is slower than its peers."),
    saved_gpu_hours=(FLOAT64, "What it would have saved over the recorded steps."),
)


@analysis(
    returns=RETURNS, chart=Bar("change", "saved_ms", horizontal=True), needs=("job_operations",)
)
def straggler_whatif(
    job_operations: pa.Table,
    job_layouts: pa.Table,
    *,
    dp_rank: Annotated[
        int | None, "Data-parallel rank of the worker to fix; by default the worst."
    ] = None,
    stage: Annotated[
        int | None, "Pipeline stage of the worker to fix; by default the worst."
    ] = None,
    operation: Annotated[
        str | None, "Type of operation to set to its median, e.g. forward_compute."
    ] = None,
    gpus: Annotated[int | None, "GPUs of the job; by default from its layout or ranks."] = None,
) -> pa.Table:
    """What would a step take without that worker, with even stages, balanced lengths, …?

    Each change is replayed by itself on every recorded step; they overlap, so that their savings
    do not add up. Launch delays are left out of all of them, the first row included.
    """
    question = Question.from_operations(job_operations, job_layouts, gpus)
    job = question.job
    now = float(job.replayed.mean())
    ideal = float(job.ideal_steps.mean())
    chosen = _list_changes(job, dp_rank, stage, operation)
    changes = [
        ("as recorded", job.replayed),
        *zip(chosen, steps_changed(job, list(chosen.values())), strict=True),
        ("every operation at its usual duration", job.ideal_steps),
    ]
    step = np.array([float(steps.mean()) for _, steps in changes])
    columns = {
        "step_ms_mean": step / 1e6,
        "saved_ms": (now - step) / 1e6,
        "saved_pct": 100 * (now - step) / now,
        "slowdown": step / ideal,
        "saved_gpu_hours": question.gpu_hours(1.0) * (now - step) * len(job.steps),
    }
    arrays = [
        build_texts([name for name, _ in changes])
        if field.name == "change"
        else build_numbers(columns[field.name], FLOAT64)
        for field in RETURNS
    ]
    return question.covered(pa.table(arrays, schema=RETURNS))


def _list_changes(
    job: Job, dp_rank: int | None, stage: int | None, operation: str | None
) -> dict[str, Change]:
    """Return each change under the words that say it."""
    worst = Causes(job).slowest[0]
    replica = _find_position("dp_rank", dp_rank, job.replicas, worst[0])
    of_stage = _find_position("stage", stage, job.stages, worst[1])
    recorded = [LABELS[k] for k in job.labels]
    if operation is not None and operation not in recorded:
        raise UsageError(
            f"operation={operation!r} was not recorded; there are {', '.join(sorted(recorded))}"
        )
    changes: dict[str, Change] = {}
    if len(job.replicas) > 1:
        who = f"dp rank {job.replicas[replica]}, stage {job.stages[of_stage]}"
        changes[f"{who} like its peers"] = LikePeers(replica, of_stage)
    if len(job.stages) > 1:
        changes["stages split evenly"] = stages_even
    changes["lengths balanced"] = lengths_even
    labels = recorded if operation is None else [operation]
    for label, change in zip(labels, at_medians(job, labels), strict=True):
        changes[f"{label} at its median"] = change
    return changes


def _find_position(name: str, wanted: int | None, values: Ints, default: int) -> int:
    if wanted is None:
        return default
    rows = np.flatnonzero(values == wanted)
    if not len(rows):
        raise UsageError(f"{name}={wanted} was not recorded; there are {values.tolist()}")
    return int(rows[0])
