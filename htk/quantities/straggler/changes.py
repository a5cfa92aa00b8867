"""What a job's step would take had something else been the case: durations changed, replayed.

Each change keeps what it does not speak of: stages split evenly keep their slow workers, balanced
lengths keep their slow stages. It gives the operations of a block other durations.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from htk.base.columns.order import order_by
from htk.base.columns.types import Floats, Ints
from htk.base.schema.operation_types import LABELS
from htk.quantities.straggler.job import (
    Block,
    Job,
    UsualTimes,
    labels_of,
    peers_of,
    usual_durations,
)
from htk.quantities.straggler.order_statistics import CountedBins, compute_medians
from htk.quantities.straggler.program import BACKWARD, FORWARD
from htk.quantities.straggler.slowdown import Chosen

Change = Callable[[Block], Ints]  # the durations of a block's operations then


def steps_changed(job: Job, changes: list[Change]) -> Ints:
    """Return step times under each change, in ns: [change, step]."""
    if not changes:
        return np.empty((0, len(job.steps)), np.int64)
    return job.by_step(_Replayed(tuple(changes)))


@dataclass(frozen=True)
class _Replayed:
    changes: tuple[Change, ...]

    def __call__(self, block: Block) -> Ints:
        return np.stack([block.replay.step_times(change(block)) for change in self.changes])


@dataclass(frozen=True)
class Usual:
    """Some operations take their usual durations."""

    chosen: Chosen
    usual: UsualTimes

    def __call__(self, block: Block) -> Ints:
        usual = usual_durations(self.usual, block.program)
        return np.where(self.chosen(block), usual, block.own)


@dataclass(frozen=True)
class LikePeers:
    """One worker takes as long as the other replicas' workers of its stage."""

    replica: int
    stage: int

    def __call__(self, block: Block) -> Ints:
        own = block.own.copy()
        others = np.arange(own.shape[2]) != self.replica
        rows = np.flatnonzero(block.program.stage == self.stage)
        own[rows, :, self.replica] = np.rint(np.median(own[rows][:, :, others], axis=2))
        return own


def stages_even(block: Block) -> Ints:
    """Return durations with compute split evenly over stages and chunks, in ns.

    The usual forward of each chunk becomes the mean over chunks, so does the backward; what a
    worker or a micro-batch takes beyond its chunk's usual time stays, in proportion.
    """
    own = block.own.copy()
    for code in (FORWARD, BACKWARD):
        chunks = _list_chunks(block, code)
        usual = [float(np.median(own[rows])) for rows in chunks]
        for rows, now in zip(chunks, usual, strict=True):  # stages times chunks
            own[rows] = np.rint(own[rows] * (np.mean(usual) / max(now, 1.0)))
    return own


def lengths_even(block: Block) -> Ints:
    """Return durations with the work of each step spread evenly over its micro-batches, in ns.

    The length of a micro-batch shows in all stages alike: it is the median over stages and chunks
    of its duration over the worker's median. What a worker always takes longer stays.
    """
    own = block.own.copy()
    for code in (FORWARD, BACKWARD):
        chunks = _list_chunks(block, code)
        count = min(len(rows) for rows in chunks)
        if not count:
            continue
        relative = np.stack([_over_usual(block.own[rows[:count]]) for rows in chunks])
        length = np.median(relative, axis=0)  # [micro-batch, step, replica]
        even = length.mean(axis=(0, 2), keepdims=True)
        for rows in chunks:
            own[rows[:count]] = np.rint(own[rows[:count]] * (even / np.maximum(length, 1e-9)))
    return own


@dataclass(frozen=True)
class AtMedian:
    """Each operation of a label takes the median of its peers over the job."""

    label: int
    medians: dict[int, int]  # of peers, in ns

    def __call__(self, block: Block) -> Ints:
        own = block.own.copy()
        program = block.program
        for code in np.unique(program.peers[labels_of(program) == self.label]).tolist():
            own[program.peers == code] = self.medians[code]
        return own


def at_medians(job: Job, labels: list[str]) -> list[AtMedian]:
    """Return for each label the change that sets its operations at the median of their peers."""
    times = compute_medians(job.of_blocks, peers_of, job.of_blocks(CountedBins(peers_of)))
    in_ns = {code: int(median) for code, median in times.items()}
    return [AtMedian(LABELS.index(label), in_ns) for label in labels]


@dataclass(frozen=True)
class _Together:
    """Sums of how forwards and backwards of micro-batches vary within workers' steps."""

    products: float
    forward_squares: float
    backward_squares: float
    forward_sum: float
    count: int
    means: float
    chunks: int


def _pair_passes(block: Block) -> _Together:
    forward = [np.empty(0)]
    backward = [np.empty(0)]
    mean = []
    chunks = _list_chunks(block, FORWARD), _list_chunks(block, BACKWARD)
    alike = len(chunks[0]) == len(chunks[1])  # else pieces of passes, cut from profiles
    for ahead, back in zip(*chunks, strict=True) if alike else ():
        if len(ahead) != len(back) or len(ahead) < 2:
            continue
        first = block.own[ahead]
        second = block.own[back]
        forward.append((first - first.mean(axis=0)).ravel())
        backward.append((second - second.mean(axis=0)).ravel())
        mean.append(float(first.mean()))
    x = np.concatenate(forward)
    y = np.concatenate(backward)
    return _Together(
        float(x @ y), float(x @ x), float(y @ y), float(x.sum()), len(x), sum(mean), len(mean)
    )


def length_correlation(job: Job) -> tuple[float | None, float | None]:
    """Return how forward and backward of a micro-batch vary together, and how much they vary.

    Pearson's correlation, and the coefficient of variation of forwards; both within a worker's
    step, so that slow workers, stages and steps do not count. None: one micro-batch a step.
    """
    parts = job.of_blocks(_pair_passes)
    count = sum(p.count for p in parts)
    chunks = sum(p.chunks for p in parts)
    if not count:
        return None, None
    products = sum(p.products for p in parts)
    ahead = sum(p.forward_squares for p in parts)
    back = sum(p.backward_squares for p in parts)
    total = sum(p.forward_sum for p in parts)
    means = sum(p.means for p in parts)
    spread = float(np.sqrt(ahead * back))
    deviation = float(np.sqrt(max(ahead / count - (total / count) ** 2, 0.0)))
    varies = deviation / (means / chunks) if means > 0 else None
    return (float(products) / spread if spread else None), varies


def _list_chunks(block: Block, code: int) -> list[Ints]:
    """Return the rows of one pass for each stage and chunk, by micro-batch."""
    program = block.program
    chosen = program.type == code
    rows_by_chunk = []
    for stage in range(program.stages):
        for chunk in np.unique(program.chunk[chosen & (program.stage == stage)]).tolist():
            rows = np.flatnonzero(chosen & (program.stage == stage) & (program.chunk == chunk))
            batch = program.micro_batch[rows]
            numbered = len(np.unique(batch)) == len(rows)
            rows_by_chunk.append(rows[order_by(batch)] if numbered else rows)
    return rows_by_chunk


def _over_usual(own: Ints) -> Floats:
    """Durations over each worker's median: [micro-batch, step, replica]."""
    usual = np.median(own, axis=(0, 1), keepdims=True)
    return np.asarray(own / np.maximum(usual, 1.0))
