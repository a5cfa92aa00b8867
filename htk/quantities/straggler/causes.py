"""Why a job is slower than its peers' operations allow: a bad worker, uneven stages, lengths, …

Two metrics are those of the published study: M_W, the share of the slowdown that goes when the
slowest workers (3 of 100) run as usual, and M_S, the share that goes when the last stage does. The
third, the correlation of forward and backward over micro-batches, tells uneven sequence lengths.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from htk.base.columns.order import order_by
from htk.base.columns.types import Floats, Ints, Mask
from htk.base.schema.operation_types import OPERATION_TYPES
from htk.quantities.straggler.changes import (
    Change,
    LikePeers,
    Usual,
    length_correlation,
    lengths_even,
    stages_even,
    steps_changed,
)
from htk.quantities.straggler.job import Block, Job
from htk.quantities.straggler.slowdown import (
    OfStage,
    compute_slowdown,
    steps_by_replica,
    steps_by_stage,
)

SLOW = 1.1  # a job that is slower than this straggles, as the study has it
LENGTHS = 0.9  # a correlation from which lengths are uneven
VARIES = 0.02  # of a mean: durations that vary less are alike
_SLOWEST = 3  # of 100 workers
_COMMUNICATION = np.array([known.communicates for known in OPERATION_TYPES])


@dataclass(frozen=True)
class _OfWorkers:
    """The operations of a few workers, as (replica, stage)."""

    workers: tuple[tuple[int, int], ...]

    def __call__(self, block: Block) -> Mask:
        chosen = np.zeros((block.program.operations, 1, block.own.shape[2]), bool)
        for replica, stage in self.workers:
            chosen[block.program.stage == stage, :, replica] = True
        return chosen


def _mark_transfers(block: Block) -> Mask:
    return np.asarray(_COMMUNICATION[block.program.type][:, None, None])


@dataclass(frozen=True)
class Causes:
    """What explains a job's slowdown; what is dear is worked out when asked for."""

    job: Job

    @cached_property
    def slowdown(self) -> float:
        return float(compute_slowdown(self.job.replayed, self.job.ideal_steps))

    @cached_property
    def by_stage(self) -> Floats:
        return compute_slowdown(steps_by_stage(self.job), self.job.ideal_steps)

    @cached_property
    def by_replica(self) -> Floats:
        return compute_slowdown(steps_by_replica(self.job), self.job.ideal_steps)

    @cached_property
    def scores(self) -> Floats:
        """The study's bound for each worker: the lesser of its replica's and stage's slowdown."""
        return np.asarray(np.minimum(self.by_replica[:, None], self.by_stage[None, :]))

    @cached_property
    def slowest(self) -> list[tuple[int, int]]:
        """The slowest workers, 3 of 100 but one at least, as (replica, stage)."""
        count = -(-self.scores.size * _SLOWEST // 100)
        order = order_by(-self.scores.ravel(), self.job.rank.ravel())[:count]
        return [(int(w) // self.scores.shape[1], int(w) % self.scores.shape[1]) for w in order]

    @cached_property
    def worker_share(self) -> float | None:
        """M_W: the share of the slowdown that the slowest workers explain."""
        return self._shares["worker"]

    @cached_property
    def last_stage_share(self) -> float | None:
        """M_S: the share of the slowdown that the last stage explains; None: there is one."""
        return self._shares.get("last_stage")

    @cached_property
    def peers_share(self) -> float | None:
        """The share that goes when the slowest worker runs as its stage does elsewhere."""
        return self._shares.get("peers")

    @cached_property
    def stages_share(self) -> float | None:
        """The share that goes when compute is split evenly over the stages."""
        return self._shares.get("stages")

    @cached_property
    def lengths_share(self) -> float | None:
        """The share that goes when micro-batches are evenly long."""
        return self._shares.get("lengths")

    @cached_property
    def communication_share(self) -> float | None:
        """The share that goes when each transfer takes its usual time."""
        return self._shares["communication"]

    @cached_property
    def correlation(self) -> tuple[float | None, float | None]:
        return length_correlation(self.job)

    @cached_property
    def _shares(self) -> dict[str, float | None]:
        """The share of the slowdown that goes with each change, replayed in one go."""
        job = self.job
        usual = self.job.usual
        changes: dict[str, Change] = {
            "worker": Usual(_OfWorkers(tuple(self.slowest)), usual),
            "communication": Usual(_mark_transfers, usual),
        }
        if len(job.replicas) > 1:
            changes["peers"] = LikePeers(*self.slowest[0])
        if len(job.stages) > 1:
            changes["last_stage"] = Usual(OfStage(len(job.stages) - 1), usual)
            changes["stages"] = stages_even
        if self.correlation[0] is not None:
            changes["lengths"] = lengths_even
        steps = steps_changed(job, list(changes.values()))
        return {name: self.share(times) for name, times in zip(changes, steps, strict=True)}

    def share(self, steps: Ints) -> float | None:
        """The share of the slowdown that these step times do without; None: nothing is slow."""
        now = float(self.job.replayed.mean())
        ideal = float(self.job.ideal_steps.mean())
        return (now - float(steps.mean())) / (now - ideal) if now > ideal else None
