"""How much slower a job is than it would be if no operation were slower than its peers.

What is made of a block is a small object, so that it can travel to a worker elsewhere.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from htk.base.columns.types import Floats, Ints, Mask
from htk.base.schema.operation_types import LABELS
from htk.quantities.straggler.job import Block, Job, UsualTimes, labels_of, usual_durations

Chosen = Callable[[Block], Mask]  # an array that broadcasts to [operation, step, replica]


@dataclass(frozen=True)
class Keeping:
    """Step times with some operations as recorded and all others as usual: [choice, step]."""

    kept: tuple[Chosen, ...]
    usual: UsualTimes

    def __call__(self, block: Block) -> Ints:
        usual = usual_durations(self.usual, block.program)
        times = []
        for chosen in self.kept:
            times.append(block.replay.step_times(np.where(chosen(block), block.own, usual)))
        return np.stack(times)


@dataclass(frozen=True)
class OfStage:
    """The operations of a stage."""

    stage: int

    def __call__(self, block: Block) -> Mask:
        return np.asarray((block.program.stage == self.stage)[:, None, None])


@dataclass(frozen=True)
class OfLabel:
    """The operations that are listed under a label."""

    label: int

    def __call__(self, block: Block) -> Mask:
        return np.asarray((labels_of(block.program) == self.label)[:, None, None])


def steps_by_type(job: Job) -> dict[str, Ints]:
    """Return for each label the step times with only its operations as recorded, in ns."""
    steps = job.by_step(Keeping(tuple(OfLabel(k) for k in job.labels), job.usual))
    return {LABELS[k]: times for k, times in zip(job.labels, steps, strict=True)}


def steps_by_stage(job: Job) -> Ints:
    """Return the step times with only one stage as recorded, in ns: [stage, step]."""
    return job.by_step(Keeping(tuple(OfStage(s) for s in range(len(job.stages))), job.usual))


@dataclass(frozen=True)
class KeepingReplica:
    """Step times with one replica as recorded: [stages chosen, replica, step].

    All other replicas are alike then, so that one stands for them: each step of each replica is
    replayed beside one usual replica.
    """

    stages: tuple[int | None, ...]  # only that stage of the replica; None: all of it
    usual: UsualTimes

    def __call__(self, block: Block) -> Ints:
        count, steps, replicas = block.own.shape
        usual = np.broadcast_to(usual_durations(self.usual, block.program), block.own.shape)
        times = np.empty((len(self.stages), replicas, steps), np.int64)
        for k, stage in enumerate(self.stages):  # of a pipeline
            own = block.own if stage is None else np.where(OfStage(stage)(block), block.own, usual)
            pairs = np.stack([own, usual], axis=3).reshape(count, steps * replicas, 2)
            times[k] = block.replay.step_times(pairs).reshape(steps, replicas).T
        return times


def steps_by_replica(job: Job, stage: int | None = None) -> Ints:
    """Return the step times with only one replica (or a stage of it) as recorded, in ns:
    [replica, step]."""
    return np.asarray(job.by_step(KeepingReplica((stage,), job.usual))[0])


def steps_by_worker(job: Job) -> Ints:
    """Return the step times with only one worker as recorded, in ns: [replica, stage, step]."""
    stages = tuple(range(len(job.stages)))
    return job.by_step(KeepingReplica(stages, job.usual)).transpose(1, 0, 2)


def compute_slowdown(steps: Ints, ideal: Ints) -> Floats:
    """Return mean step time over mean usual step time, over the last axis."""
    return np.asarray(steps.mean(axis=-1) / ideal.mean())
