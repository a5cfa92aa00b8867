"""Kernels' lengths over the batch, through several recordings of the same job.

A kernel's length is α + β·W, where W is what one recording alone would say (its waves, its bytes):
between two recorded batches on the line through both, beyond them on that through the nearest two;
it never falls as the batch grows. Kernels are the same that are launched as the nth by the same
operator. What the fitted step still misses of a recorded one is added, evenly from batch to batch.

Recordings of the same micro-batch with more or fewer of them in a step tell what one more takes:
the step is on the line through them.
"""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from htk.base.columns.order import order_by
from htk.base.columns.types import Floats
from htk.base.errors import UsageError
from htk.base.mappings import NamedTables
from htk.quantities.graph.build import build_graph
from htk.whatif.contention import compute_contention, share_beside_transfers
from htk.whatif.edits import batch
from htk.whatif.micro_batch_count import micro_batches
from htk.whatif.same_job import SAME_JOB, check_same_job
from htk.whatif.shapes import read_inputs
from htk.whatif.step_model import StepModel, step_model

_SAME_BATCH = 0.01  # relative
_APART_NS = 500  # closer lengths tell no slope
# One sigma of a kernel's change: at a recorded batch, and for each doubling away from the nearest.
# Simulated jobs of filled GPUs miss by 1 % a doubling (BLOOM-182B, measured: 0.5 and 0.3 % at 1.5
# and 2 times the larger), those of small batches, whose kernels fill no wave, by 3 to 6 %.
_AT_ONE = 0.01
_FOR_EACH_DOUBLING = 0.05
_OF_ALONE = 0.15  # of what one recording would leave, at least
# Share of the uncertainty about the number of micro-batches that is left: at a recorded one, and
# for each doubling away.
_AT_COUNT = 0.5
_FOR_EACH_COUNT = 0.25


@dataclass(frozen=True)
class Recorded:
    """Another recording, at another batch."""

    ratio: float  # of its micro-batch to that of the first
    period_ns: int
    length: Floats  # of each activity of the first recording, here, with nothing beside it
    count: float = 1.0  # of its micro-batches to those of the first


@dataclass(frozen=True)
class Curves:
    base: StepModel
    slower: Floats  # each kernel of the first recording, for what ran beside it
    recorded: tuple[Recorded, ...]  # of other micro-batches, by ratio
    counted: tuple[Recorded, ...] = ()  # of the same one, by count
    missed: Mapping[float, float] = field(default_factory=dict)  # ns: measured less fitted
    off: Mapping[float, float] = field(default_factory=dict)  # the same by count

    @property
    def ratios(self) -> Floats:
        """The batches of all recordings over that of the first, ascending."""
        return np.array(sorted([1.0, *(r.ratio for r in self.recorded)]))

    @property
    def matched(self) -> NDArray[np.bool_]:
        """The kernels found in every recording."""
        in_all = self.base.is_compute.copy()
        for recording in self.recorded:
            in_all &= ~np.isnan(recording.length)
        return in_all

    def lengths(self, ratio: float) -> Floats:
        """Return the length of each kernel at a batch, in ns, with contention as in the first
        recording; NaN: not found in every recording."""
        points = sorted([(1.0, self.base.lengths() / self.slower), *self._measured])
        batches = np.array([point[0] for point in points])
        seen = np.maximum.accumulate(np.array([point[1] for point in points]), axis=0)
        high = int(np.clip(np.searchsorted(batches, ratio), 1, len(batches) - 1))
        low = high - 1
        modelled = [
            predict_alone(self.base, r).lengths() / self.slower
            for r in (*batches[[low, high]], ratio)
        ]
        apart = modelled[1] - modelled[0]
        slope = np.where(
            np.abs(apart) > _APART_NS, (seen[high] - seen[low]) / np.where(apart, apart, 1), 0
        )
        on_line = seen[low] + np.clip(slope, 0, None) * (modelled[2] - modelled[0])
        nearest = seen[high] if ratio > batches[high] else seen[low]
        on_line = np.where(np.abs(apart) > _APART_NS, on_line, nearest)
        return np.where(self.matched, np.maximum(on_line, 0) * self.slower, np.nan)

    @property
    def _measured(self) -> list[tuple[float, Floats]]:
        return [(recording.ratio, recording.length) for recording in self.recorded]

    def missed_ns(self, ratio: float) -> float:
        """Return what the fitted step still misses at a batch, in ns."""
        missed = {1.0: 0.0, **self.missed}
        batches = sorted(missed)
        return float(np.interp(ratio, batches, [missed[r] for r in batches]))

    def off_ns(self, count: float) -> float:
        """Return what one recording alone misses at so many micro-batches, in ns, on the line
        through the recorded counts."""
        counts = np.array(sorted({1.0, *self.off}))
        if len(counts) < 2:
            return 0.0
        off = np.array([{1.0: 0.0, **self.off}[c] for c in counts.tolist()])
        high = int(np.clip(np.searchsorted(counts, count), 1, len(counts) - 1))
        slope = (off[high] - off[high - 1]) / (counts[high] - counts[high - 1])
        return float(off[high] + slope * (count - counts[high]))

    def counted_share(self, count: float) -> float:
        """Return the share of the uncertainty about the number of micro-batches that is left."""
        if not self.counted:
            return 1.0
        away = min(
            abs(math.log2(recorded / count)) for recorded in (1.0, *(r.count for r in self.counted))
        )
        return min(_AT_COUNT + _FOR_EACH_COUNT * away, 1.0)

    def sigma(self, ratio: float, alone: float) -> float:
        """Return the uncertainty of kernels, where one recording alone would leave `alone`."""
        away = float(np.abs(np.log2(self.ratios) - math.log2(ratio)).min())
        length = self.base.lengths()[self.base.is_compute]
        share = length[self.matched[self.base.is_compute]].sum() / max(length.sum(), 1)
        fitted = min(max(_AT_ONE + _FOR_EACH_DOUBLING * away, _OF_ALONE * alone), alone)
        return float(share * fitted + (1 - share) * alone)


def fit_curves(
    base: StepModel, kappa: float, others: Sequence[tuple[NamedTables, float | None]]
) -> Curves:
    """Return curves through the tables of other recordings, each with its batch where given.

    `kappa`: how much slower a kernel is beside communication, in the first.
    """
    recordings = [_read_recorded(base, kappa, tables, ratio) for tables, ratio in others]
    other = sorted((r for r in recordings if r.ratio != 1), key=lambda r: r.ratio)
    same = sorted((r for r in recordings if r.ratio == 1), key=lambda r: r.count)
    if len({r.ratio for r in other}) < len(other) or len({r.count for r in same} - {1}) < len(same):
        raise UsageError("two recordings have the same batch; curves need different ones")
    slower = 1 + kappa * share_beside_transfers(base, base.graph.time)
    return Curves(base, slower, tuple(other), tuple(same))


def predict_alone(base: StepModel, ratio: float) -> StepModel:
    """Return the model at another batch, as one recording alone predicts it."""
    return batch.apply(base, f"{ratio:.9f}x")


def apply_curves(edited: StepModel, lines: Curves, ratio: float) -> StepModel:
    """Return the edited model, its kernels by the curves."""
    matched = lines.matched
    now = np.where(matched, lines.lengths(ratio), 0.0)
    unscaled = np.maximum(predict_alone(lines.base, ratio).lengths().astype(np.float64), 1.0)
    more = len(edited.graph.start) - len(matched)
    times = np.append(np.where(matched, now / unscaled, 1.0), np.ones(more))
    changed = edited.with_lengths(
        np.append(matched, np.zeros(more, bool)), edited.lengths() * times
    )
    sigma = lines.sigma(ratio, edited.spread.get("compute", 0.0))
    recorded = ", ".join(f"{r:g}x" for r in lines.ratios.tolist())
    return replace(changed, spread={**changed.spread, "compute": sigma}).with_assumption(
        f"kernels on lines through recordings at {recorded} the batch", SAME_JOB
    )


def narrow_count(edited: StepModel, lines: Curves, count: float) -> StepModel:
    """Return the edited step, its number of micro-batches less uncertain."""
    left = lines.counted_share(count)
    spread = {c: s * (left if c == "structure" else 1.0) for c, s in edited.spread.items()}
    recorded = ", ".join(f"{r.count:g}x" for r in lines.counted)
    return replace(edited, spread=spread).with_assumption(
        f"steps on a line through recordings of {recorded} the micro-batches"
    )


def _read_recorded(
    base: StepModel, kappa: float, tables: NamedTables, ratio: float | None
) -> Recorded:
    graph = build_graph(tables)
    other = step_model(tables, graph)
    check_same_job(base, other)
    ours, theirs = read_inputs(base).batch, read_inputs(other).batch
    if ours is not None and theirs is not None:
        if ratio is not None and abs(ratio * ours / theirs - 1) > _SAME_BATCH:
            raise UsageError(
                f"a further recording is given as {ratio:g}x the batch, but its shapes say "
                f"{theirs:g} against {ours:g}; leave the factor out"
            )
        ratio = theirs / ours
    elif ratio is None:
        raise UsageError(
            "shapes do not tell the batch of each recording (record_shapes=True would); give "
            "it as a factor of the first: PATH@2x"
        )
    samples = defaultdict(list)
    length = other.lengths() / (
        1 + (compute_contention(other) or kappa) * share_beside_transfers(other, graph.time)
    )
    for key, kernel in _list_keys(other):
        samples[key].append(float(length[kernel]))
    matched = np.full(len(base.graph.start), np.nan)
    for key, kernel in _list_keys(base):
        if key in samples:
            matched[kernel] = float(np.median(samples[key]))
    ours = micro_batches(base)
    theirs = micro_batches(other)
    count = theirs / ours if ours and theirs else 1.0
    return Recorded(float(ratio), graph.period_ns, matched, count)


def _list_keys(of: StepModel) -> list[tuple[tuple[str | None, int, int], int]]:
    """Return each kernel by its operator, its place among that one's, and how many those are."""
    acts = of.graph.activities
    order = np.flatnonzero(of.is_compute & (acts.call >= 0))
    order = order[order_by(acts.rank[order], of.graph.calls.start[acts.call[order]])]
    count: dict[tuple[int, str | None], int] = {}
    nth = []
    for kernel in order.tolist():  # kernels of a step, once for a recording
        group = (int(acts.rank[kernel]), of.facts.op[kernel])
        nth.append(count.get(group, 0))
        count[group] = nth[-1] + 1
    return [
        ((of.facts.op[w], n, count[int(acts.rank[w]), of.facts.op[w]]), w)
        for w, n in zip(order.tolist(), nth, strict=True)
    ]
