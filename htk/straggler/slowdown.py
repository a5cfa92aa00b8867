"""How much slower a job is than it would be if no operation were slower than its peers."""

from collections.abc import Callable

import numpy as np

from htk.columns.types import Floats, Ints, Mask
from htk.schema.operation_types import LABELS
from htk.straggler.job import Block, Job, label_codes

Chosen = Callable[[Block], Mask]


def steps_keeping(job: Job, kept: Chosen) -> Ints:
    """Return step times with these operations as recorded and all others as usual, in ns.

    `kept` says it as an array that broadcasts to [operation, step, replica].
    """

    def of(block: Block) -> Ints:
        return block.replay.step_times(np.where(kept(block), block.own, job.ideal(block)))

    return job.by_step(of)


def steps_without(job: Job, mended: Chosen) -> Ints:
    """Return step times with these operations as usual and all others as recorded, in ns."""
    return steps_keeping(job, lambda block: ~mended(block))


def steps_by_type(job: Job) -> dict[str, Ints]:
    """Return for each label the step times with only its operations as recorded, in ns."""
    there = sorted({k for b in job.blocks for k in np.unique(label_codes(b.program)).tolist()})
    return {LABELS[k]: steps_keeping(job, _of_label(k)) for k in there}


def steps_by_stage(job: Job) -> Ints:
    """Return the step times with only one stage as recorded, in ns: [stage, step]."""
    return np.stack([steps_keeping(job, of_stage(s)) for s in range(len(job.stages))])


def of_stage(stage: int) -> Chosen:
    """Return the operations of a stage, for `steps_keeping` and `steps_without`."""
    return lambda block: (block.program.stage == stage)[:, None, None]


def _of_label(label: int) -> Chosen:
    return lambda block: (label_codes(block.program) == label)[:, None, None]


def steps_by_replica(job: Job, stage: int | None = None) -> Ints:
    """Return the step times with only one replica as recorded, in ns: [replica, step].

    With a stage, only that stage of it. All other replicas are alike then, so that one stands for
    them: each step of each replica is replayed beside one usual replica.
    """

    def of(block: Block) -> Ints:
        count, steps, replicas = block.own.shape
        usual = np.broadcast_to(job.ideal(block), block.own.shape)
        own = block.own
        if stage is not None:
            own = np.where((block.program.stage == stage)[:, None, None], own, usual)
        pairs = np.stack([own, usual], axis=3).reshape(count, steps * replicas, 2)
        return block.replay.step_times(pairs).reshape(steps, replicas)

    return np.concatenate([of(block) for block in job.blocks]).T


def slowdown(steps: Ints, ideal: Ints) -> Floats:
    """Return mean step time over mean usual step time, over the last axis."""
    return np.asarray(steps.mean(axis=-1) / ideal.mean())
