"""Why a job is slower than its peers' operations allow: a bad worker, uneven stages, lengths, …

Two metrics are those of the published study: M_W, the share of the slowdown that goes when the
slowest workers (3 of 100) run as usual, and M_S, the share that goes when the last stage does. The
third, the correlation of forward and backward over micro-batches, tells uneven sequence lengths.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from htk.columns.types import Floats, Ints
from htk.schema.operation_types import OPERATION_TYPES
from htk.straggler.changes import length_correlation, lengths_even, like_peers, stages_even
from htk.straggler.job import Block, Job
from htk.straggler.slowdown import (
    of_stage,
    slowdown,
    steps_by_replica,
    steps_by_stage,
    steps_without,
)

SLOW = 1.1  # a job that is slower than this straggles, as the study has it
LENGTHS = 0.9  # a correlation from which lengths are uneven
VARIES = 0.02  # of a mean: durations that vary less are alike
_SLOWEST = 3  # of 100 workers
_COMMUNICATION = np.array([known.communicates for known in OPERATION_TYPES])


@dataclass(frozen=True)
class Causes:
    """What explains a job's slowdown; what is dear is worked out when asked for."""

    job: Job

    @cached_property
    def slowdown(self) -> float:
        return float(slowdown(self.job.replayed, self.job.ideal_steps))

    @cached_property
    def by_stage(self) -> Floats:
        return slowdown(steps_by_stage(self.job), self.job.ideal_steps)

    @cached_property
    def by_replica(self) -> Floats:
        return slowdown(steps_by_replica(self.job), self.job.ideal_steps)

    @cached_property
    def scores(self) -> Floats:
        """The study's bound for each worker: the lesser of its replica's and stage's slowdown."""
        return np.asarray(np.minimum(self.by_replica[:, None], self.by_stage[None, :]))

    @cached_property
    def slowest(self) -> list[tuple[int, int]]:
        """The slowest workers, 3 of 100 but one at least, as (replica, stage)."""
        count = -(-self.scores.size * _SLOWEST // 100)
        order = np.lexsort((self.job.rank.ravel(), -self.scores.ravel()))[:count]
        return [(int(w) // self.scores.shape[1], int(w) % self.scores.shape[1]) for w in order]

    @cached_property
    def worker_share(self) -> float | None:
        """M_W: the share of the slowdown that the slowest workers explain."""

        def mended(block: Block) -> NDArray[np.bool_]:
            chosen = np.zeros((block.program.operations, 1, len(self.job.replicas)), bool)
            for replica, stage in self.slowest:  # a few workers
                chosen[block.program.stage == stage, :, replica] = True
            return chosen

        return self.share(steps_without(self.job, mended))

    @cached_property
    def last_stage_share(self) -> float | None:
        """M_S: the share of the slowdown that the last stage explains; None: there is one."""
        if len(self.job.stages) < 2:
            return None
        last = len(self.job.stages) - 1
        return self.share(steps_without(self.job, of_stage(last)))

    @cached_property
    def peers_share(self) -> float | None:
        """The share that goes when the slowest worker runs as its stage does elsewhere."""
        steps = like_peers(self.job, *self.slowest[0])
        return None if steps is None else self.share(steps)

    @cached_property
    def stages_share(self) -> float | None:
        """The share that goes when compute is split evenly over the stages."""
        return None if len(self.job.stages) < 2 else self.share(stages_even(self.job))

    @cached_property
    def lengths_share(self) -> float | None:
        """The share that goes when micro-batches are evenly long."""
        return None if self.correlation[0] is None else self.share(lengths_even(self.job))

    @cached_property
    def communication_share(self) -> float | None:
        """The share that goes when each transfer takes its usual time."""
        return self.share(
            steps_without(self.job, lambda b: _COMMUNICATION[b.program.type][:, None, None])
        )

    @cached_property
    def correlation(self) -> tuple[float | None, float | None]:
        return length_correlation(self.job)

    def share(self, steps: Ints) -> float | None:
        """The share of the slowdown that these step times do without; None: nothing is slow."""
        now, ideal = float(self.job.replayed.mean()), float(self.job.ideal_steps.mean())
        return (now - float(steps.mean())) / (now - ideal) if now > ideal else None
