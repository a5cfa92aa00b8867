"""What a job's step would take had something else been the case: durations changed, replayed.

Each change keeps what it does not speak of: stages split evenly keep their slow workers, balanced
lengths keep their slow stages.
"""

import numpy as np

from htk.columns.types import Floats, Ints
from htk.schema.operation_types import LABELS
from htk.straggler.job import Block, Job, label_codes
from htk.straggler.program import BACKWARD, FORWARD


def like_peers(job: Job, replica: int, stage: int) -> Ints | None:
    """Return step times with one worker as the other replicas' workers of its stage, in ns.

    None: there is one replica alone.
    """
    if len(job.replicas) < 2:
        return None
    others = np.arange(len(job.replicas)) != replica

    def of(block: Block) -> Ints:
        own = block.own.copy()
        rows = np.flatnonzero(block.program.stage == stage)
        own[rows, :, replica] = np.rint(np.median(own[rows][:, :, others], axis=2))
        return block.replay.step_times(own)

    return job.by_step(of)


def stages_even(job: Job) -> Ints:
    """Return step times with compute split evenly over stages and chunks, in ns.

    The usual forward of each chunk becomes the mean over chunks, so does the backward; what a
    worker or a micro-batch takes beyond its chunk's usual time stays, in proportion.
    """

    def of(block: Block) -> Ints:
        own, program = block.own.copy(), block.program
        for code in (FORWARD, BACKWARD):
            chunks = _chunks(block, code)
            usual = [float(np.median(own[rows])) for rows in chunks]
            for rows, now in zip(chunks, usual, strict=True):  # stages times chunks
                own[rows] = np.rint(own[rows] * (np.mean(usual) / max(now, 1.0)))
        assert own.shape[0] == program.operations
        return block.replay.step_times(own)

    return job.by_step(of)


def lengths_even(job: Job) -> Ints:
    """Return step times with the work of each step spread evenly over its micro-batches, in ns.

    The length of a micro-batch shows in all stages alike: it is the median over stages and chunks
    of its duration over the worker's median. What a worker always takes longer stays.
    """

    def of(block: Block) -> Ints:
        own = block.own.copy()
        for code in (FORWARD, BACKWARD):
            chunks = _chunks(block, code)
            count = min(len(rows) for rows in chunks)
            if not count:
                continue
            relative = np.stack([_over_usual(block.own[rows[:count]]) for rows in chunks])
            length = np.median(relative, axis=0)  # [micro-batch, step, replica]
            even = length.mean(axis=(0, 2), keepdims=True)
            for rows in chunks:
                own[rows[:count]] = np.rint(own[rows[:count]] * (even / np.maximum(length, 1e-9)))
        return block.replay.step_times(own)

    return job.by_step(of)


def at_median(job: Job, label: str) -> Ints:
    """Return step times with each operation of a label at its type's median over the job, in ns."""
    code = LABELS.index(label)
    types = {int(t) for b in job.blocks for t in b.program.type[label_codes(b.program) == code]}
    median = {
        t: int(np.median(np.concatenate([b.own[b.program.type == t].ravel() for b in job.blocks])))
        for t in types
    }

    def of(block: Block) -> Ints:
        own = block.own.copy()
        for t, value in median.items():
            own[block.program.type == t] = value
        return block.replay.step_times(own)

    return job.by_step(of)


def length_correlation(job: Job) -> tuple[float | None, float | None]:
    """Return how forward and backward of a micro-batch vary together, and how much they vary.

    Pearson's correlation, and the coefficient of variation of forwards; both within a worker's
    step, so that slow workers, stages and steps do not count. None: one micro-batch a step.
    """
    forward, backward, mean = [], [], []
    for block in job.blocks:
        for ahead, back in zip(_chunks(block, FORWARD), _chunks(block, BACKWARD), strict=True):
            if len(ahead) != len(back) or len(ahead) < 2:
                continue
            first, second = block.own[ahead], block.own[back]
            forward.append((first - first.mean(axis=0)).ravel())
            backward.append((second - second.mean(axis=0)).ravel())
            mean.append(float(first.mean()))
    if not forward:
        return None, None
    x, y = np.concatenate(forward), np.concatenate(backward)
    spread = float(np.sqrt((x @ x) * (y @ y)))
    varies = float(x.std() / np.mean(mean)) if np.mean(mean) > 0 else None
    return (float(x @ y) / spread if spread else None), varies


def _chunks(block: Block, code: int) -> list[Ints]:
    """Return the rows of one pass for each stage and chunk, by micro-batch."""
    program = block.program
    chosen = program.type == code
    rows_by_chunk = []
    for stage in range(program.stages):
        for chunk in np.unique(program.chunk[chosen & (program.stage == stage)]).tolist():
            rows = np.flatnonzero(chosen & (program.stage == stage) & (program.chunk == chunk))
            batch = program.micro_batch[rows]
            numbered = len(np.unique(batch)) == len(rows)
            rows_by_chunk.append(rows[np.argsort(batch, kind="stable")] if numbered else rows)
    return rows_by_chunk


def _over_usual(own: Ints) -> Floats:
    """Durations over each worker's median: [micro-batch, step, replica]."""
    usual = np.median(own, axis=(0, 1), keepdims=True)
    return np.asarray(own / np.maximum(usual, 1.0))
