"""Why a job straggles, in words, with what would decide it."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import build_booleans, build_numbers, build_texts, mark_valid
from htk.base.core.analysis import analysis
from htk.base.schema import BOOL, FLOAT64, TEXT, table
from htk.quantities.straggler.answer import Question
from htk.quantities.straggler.causes import LENGTHS, SLOW, VARIES, Causes

RETURNS = table(
    cause=(TEXT, "worker, stage_split, sequence_lengths, communication or late_host."),
    likely=(BOOL, "The one that explains most, if the job straggles and its metric holds."),
    explains_pct=(FLOAT64, "Share of the slowdown that goes without it; they overlap."),
    metric=(TEXT, "What tells it: M_W, M_S, correlation of forward and backward, …"),
    value=(FLOAT64, "Value of the metric; null: it cannot be told from these rows."),
    threshold=(FLOAT64, "From here on the cause holds."),
    evidence=(TEXT, "What was seen."),
    advice=(TEXT, "What would decide it."),
)

_HALF = 0.5  # of the slowdown
_SOME = 0.2


@dataclass(frozen=True)
class _Cause:
    cause: str
    explains: float | None
    metric: str
    value: float | None
    threshold: float
    evidence: str
    advice: str
    matters: bool = True

    @property
    def holds(self) -> bool:
        return self.matters and self.value is not None and self.value >= self.threshold


@analysis(returns=RETURNS, needs=("job_operations",))
def straggler_causes(job_operations: pa.Table, job_layouts: pa.Table) -> pa.Table:
    """Why is the job slower than its peers' operations allow: a bad worker, uneven stages, lengths?

    M_W is the share of the slowdown that goes when the slowest 3 of 100 workers take their usual
    durations, M_S the share that goes when the last stage does; forwards and backwards that vary
    together over the micro-batches of a worker tell uneven sequence lengths. A cause explains what
    a step would save without it: the worker as its peers, stages split evenly, lengths balanced.
    """
    question = Question.from_operations(job_operations, job_layouts)
    causes = Causes(question.job)
    rows = list(_list_causes(causes))
    if question.job.recorded.mean() / question.job.ideal_steps.mean() < SLOW:
        likely = None
    else:
        holding = [row for row in rows if row.holds and (row.explains or 0.0) >= _SOME]
        likely = max(holding, key=lambda row: row.explains or 0.0, default=None)
    rows.sort(key=lambda row: (row is not likely, -(row.explains or 0.0)))
    answer = pa.table(
        [
            build_texts([row.cause for row in rows]),
            build_booleans(np.array([row is likely for row in rows])),
            _build_number_column(
                [None if row.explains is None else 100 * row.explains for row in rows]
            ),
            build_texts([row.metric for row in rows]),
            _build_number_column([row.value for row in rows]),
            _build_number_column([row.threshold for row in rows]),
            build_texts([row.evidence for row in rows]),
            build_texts([row.advice for row in rows]),
        ],
        schema=RETURNS,
    )
    return question.covered(answer)


def _build_number_column(values: list[float | None]) -> pa.Array:
    column = pa.array(values, FLOAT64)
    return build_numbers(
        np.nan_to_num(column.to_numpy(zero_copy_only=False)), FLOAT64, mark_valid(column)
    )


def _list_causes(causes: Causes) -> Iterator[_Cause]:
    yield _judge_worker(causes)
    if len(causes.job.stages) > 1:
        yield _stage_split(causes)
    yield _judge_lengths(causes)
    yield _judge_communication(causes)
    yield _late_host(causes)


def _judge_worker(causes: Causes) -> _Cause:
    job = causes.job
    replica, stage = causes.slowest[0]
    rank = int(job.rank[replica, stage])
    where = f"dp rank {job.replicas[replica]}, stage {job.stages[stage]}"
    where += f" (rank {rank})" if rank >= 0 else ""
    share = causes.worker_share
    explains = share if causes.peers_share is None else causes.peers_share
    return _Cause(
        "worker",
        explains,
        "M_W",
        share,
        _HALF,
        f"{where} at its usual durations would save {_describe_saved(share)} of the slowdown",
        f"profile {where} and a peer, and compare how fast they run the same kernels; then move "
        "the job off that machine",
    )


def _stage_split(causes: Causes) -> _Cause:
    job = causes.job
    share = causes.last_stage_share
    slowest = int(np.argmax(causes.by_stage))
    return _Cause(
        "stage_split",
        causes.stages_share,
        "M_S",
        share,
        _HALF,
        f"stage {job.stages[slowest]} alone slows the job {causes.by_stage[slowest]:.2f}x; the "
        f"last stage at its usual durations would save {_describe_saved(share)} of the slowdown",
        "slowdown-by-stage; give the stage fewer layers (the loss layer counts as several)",
    )


def _judge_lengths(causes: Causes) -> _Cause:
    together, varies = causes.correlation
    if together is None:
        why = "one micro-batch a step, so that lengths cannot be told from slow steps"
    else:
        spread = _format_share(varies)
        why = f"forwards vary by {spread} in a step, backwards with them: {together:.2f}"
    uneven = varies is not None and varies >= VARIES
    return _Cause(
        "sequence_lengths",
        causes.lengths_share,
        "correlation of forward and backward",
        together,
        LENGTHS,
        why,
        "log the tokens and the sum of squared lengths of each micro-batch; then balance by them",
        uneven,
    )


def _judge_communication(causes: Causes) -> _Cause:
    share = causes.communication_share
    return _Cause(
        "communication",
        share,
        "share of transfers",
        share,
        _HALF,
        f"transfers at their usual durations would save {_describe_saved(share)} of the slowdown",
        "slowdown-by-type; then NCCL's records or comm-wait on a profile of the ranks concerned",
    )


def _late_host(causes: Causes) -> _Cause:
    job = causes.job
    late = float(job.recorded.mean() - job.replayed.mean())
    slowdown = float(job.recorded.mean() - job.ideal_steps.mean())
    share = late / slowdown if slowdown > 0 else None
    return _Cause(
        "late_host",
        share,
        "share of launch delays",
        share,
        _HALF,
        f"operations start late by {late / 1e6:.3g} ms of a step in all: data loading, garbage "
        "collection, logging, or a host that launches work more slowly than the GPU runs it",
        "idle-breakdown and host-stalls on a profile of a few steps",
    )


def _describe_saved(share: float | None) -> str:
    """Say which part of the slowdown would be saved. Whoever is usual may be faster than all are on
    average, which the slowdown is counted from: then that is all of it."""
    if share is None:
        return _format_share(None)
    return _format_share(min(max(share, 0.0), 1.0))


def _format_share(share: float | None) -> str:
    return "nothing" if share is None else f"{100 * share:.0f} %"
