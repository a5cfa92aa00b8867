"""Measured rows: there is no trace of them, so each is simulated until its step takes as long as it
took, and goes the same road as any trace: gate, edit, replay.
"""

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import exp, log

from bench.scorecard.jobs import Job, staged, step_ns
from bench.scorecard.planned import planned_change, planned_ns
from bench.scorecard.rows import Pair, Row
from bench.scorecard.score import Prediction, predicted
from htk.base.errors import HtkError
from htk.whatif.edits import all_edits
from htk.whatif.predict import predict_answer
from htk.whatif.recorded_step import Baseline

_ROUNDS = 4
_FEW = 50  # pairs of a kind: so many are no sample
_CLOSE = 0.003
_SPEEDS = (-2.5, 1.5)  # logarithm, at most


def calibrated(job: Job, measured_ns: float) -> Job:
    """The job on a GPU so fast or slow that a step takes what was measured."""
    speed, slope = 0.0, -1.0  # d log(step) / d log(speed)
    last: tuple[float, float] | None = None
    for _ in range(_ROUNDS):
        off = log(step_ns(_at(job, speed)) / measured_ns)
        if abs(off) < _CLOSE:
            break
        if last is not None and speed != last[0]:
            slope = min((off - last[1]) / (speed - last[0]), -0.2)
        last = speed, off
        speed = min(max(speed - off / slope, _SPEEDS[0]), _SPEEDS[1])
    return _at(job, speed)


def _at(job: Job, speed: float) -> Job:
    return replace(job, compute=exp(speed), bandwidth=exp(speed))


def sampled(pairs: Sequence[Pair], starts: int | None) -> list[Pair]:
    """Return the pairs of so many starts of each kind and source, drawn once and for all; kinds of
    few pairs whole."""
    if starts is None:
        return list(pairs)
    few = {kind for kind, n in Counter(p.kind for p in pairs).items() if n <= _FEW}
    chosen = [p for p in pairs if p.kind in few]
    kinds = sorted({(p.kind, p.start.source) for p in pairs if p.kind not in few})
    for kind, source in kinds:
        alike = [p for p in pairs if (p.kind, p.start.source) == (kind, source)]
        rows = sorted({p.start for p in alike}, key=repr)
        kept = set(random.Random(7).sample(rows, min(starts, len(rows))))
        chosen += [p for p in alike if p.start in kept]
    return chosen


def predictions(pairs: Sequence[Pair]) -> Iterator[Prediction]:
    """Each start is simulated once, and all its pairs predicted from it."""
    edit_names = {e.NAME for e in all_edits()}
    starts: dict[Row, list[Pair]] = {}
    for pair in pairs:
        if {name for name, _ in pair.edits} <= edit_names:
            starts.setdefault(pair.start, []).append(pair)
    for row, row_pairs in starts.items():
        start = staged(calibrated(row.job, row.simulated_ns))
        for pair in row_pairs:
            yield _held(start, pair)


def two_recordings(rows: Sequence[Row]) -> Iterator[Prediction]:
    """More micro-batches in a step, from recordings of the two smallest steps (`--with`).

    Each has its stand-in; its micro-batches are as large as the whole of the smallest step.
    """
    if len(rows) < 3:
        return
    first, second, *others = rows
    each = _count(first)
    jobs = [
        replace(r.job, micro_batch=r.job.micro_batch * each, accumulation=_count(r) // each)
        for r in (first, second)
    ]
    measured = (first.step_ns, second.step_ns)
    start = staged(*(calibrated(job, ns) for job, ns in zip(jobs, measured, strict=True)))
    for row in others:
        asked = (("accumulation", str(_count(row) // each)),)
        answer = predict_answer(start, asked, round(first.step_ns))
        label = f"{row.source}, {row.family}: {first.slots}, {second.slots} → {row.slots} slots"
        kind, linear = "global batch, from two", second.step_ns * _count(row) / _count(second)
        prediction = predicted("described", kind, label, row.group, answer, row.step_ns)
        yield replace(prediction, base_ns=second.step_ns, linear_ns=linear, source=row.source)


def _count(row: Row) -> int:
    return row.slots - row.pipeline + 1


def _held(start: Baseline, pair: Pair) -> Prediction:
    base = pair.start.simulated_ns
    label = f"{pair.start.source}, {pair.start.family}: {_said(pair.start)} → {_said(pair.end)}"
    try:
        answer = predict_answer(start, pair.edits, round(base))
    except HtkError as error:
        return Prediction(
            "described", pair.kind, label, pair.start.group, f"refused: {error}",
            base, pair.truth_ns, _linear(pair), None, 0.0,
            tuple(name for name, _ in pair.edits), pair.start.source, _planned(pair),
        )  # fmt: skip
    prediction = predicted("described", pair.kind, label, pair.start.group, answer, pair.truth_ns)
    return replace(
        prediction, linear_ns=_linear(pair), source=pair.start.source, planned_ns=_planned(pair)
    )


def _linear(pair: Pair) -> float:
    """At the same hardware efficiency, as its publishers count it: the whole square of attention,
    and what is recomputed.
    """
    more = pair.slots / pair.start.job.accumulation
    return pair.start.simulated_ns * more * _flops(pair.end.job) / _flops(pair.start.job)


def _planned(pair: Pair) -> float | None:
    """What was measured, times the ratio of two plans."""
    before, after = (
        planned_ns(row.job, many, precision=row.precision, sequence_parallel=row.sequence_parallel)
        for row, many in ((pair.start, pair.start.job.accumulation), (pair.end, pair.slots))
    )
    change = planned_change(before, after)
    return None if change is None else pair.start.simulated_ns * change


def _flops(job: Job) -> float:
    model, tokens = job.decoder, job.micro_batch * job.seq
    again = 4 / 3 if job.checkpointing else 1.0
    each = 6 * model.parameters + 12 * model.layers * model.hidden * job.seq
    return again * each * tokens


def _said(row: Row) -> str:
    job = row.job
    parts = [f"{job.micro_batch}×{job.seq}", f"{job.ranks} GPUs"]
    if job.tensor_parallel > 1 or row.pipeline > 1:
        parts.append(f"tp {job.tensor_parallel} pp {row.pipeline}")
    return " ".join(
        parts + ["checkpointed"] * job.checkpointing + ["fused norms"] * row.norm_kernel
    )
