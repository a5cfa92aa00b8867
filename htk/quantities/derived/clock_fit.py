"""Offset and drift of clocks: weighted least squares over collectives that end at once everywhere.

Unknown are an offset and a drift of each clock; the common end of each collective is eliminated.
Collectives of the same members add to one block of the normal equations, and the equations are
solved by conjugate gradients on those blocks: no matrix of clocks by clocks is ever made. Times are
counted from each clock's first end, so that clocks that are years apart lose no nanosecond.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from htk.base.columns.order import order_by
from htk.base.columns.types import Floats, Ints

FLOOR_NS = 1000.0  # ends agree no better than this
_EFFICIENT = 2.4  # times the scatter: weights that cost 5 % where the scatter is Gaussian
_ROUGH = (500, 1e-3)  # steps and precision of each: a standard error needs three digits
_ROUNDS = 3  # of weighting by how well each collective's ends agree
_SECOND = 1e9
PRIOR_DRIFT = 5e-5  # ns per ns: what a clock drifts where the ends do not tell
_PRECISION_NS = 1e-6  # of one step of the solver; it adds up along chains of groups
_RELATIVE = 1e-13  # of a round: the next one takes away what it leaves


@dataclass(frozen=True)
class Ends:
    """Rows of synchronising collectives seen by several processes, by collective and process."""

    collective: Ints  # from 0
    process: Ints  # from 0
    start: Ints
    end: Ints
    processes: int

    @cached_property
    def count(self) -> Ints:
        """The number of rows of each collective."""
        return np.bincount(self.collective).astype(np.int64)

    @cached_property
    def first(self) -> Ints:
        return np.cumsum(self.count) - self.count

    @cached_property
    def member_sets(self) -> Ints:
        """A number for each collective: equal where the same processes took part."""
        numbered = np.empty(len(self.count), np.int64)
        sets = 0
        for size in np.unique(self.count).tolist():  # a few sizes of groups
            same = np.flatnonzero(self.count == size)
            members = self.process[self.first[same][:, None] + np.arange(size)]
            packed = np.ascontiguousarray(members).view(np.dtype((np.void, 8 * size))).ravel()
            distinct, inverse = np.unique(packed, return_inverse=True)
            numbered[same] = sets + inverse.ravel()
            sets += len(distinct)
        return numbered

    def mean(self, values: Floats) -> Floats:
        """Return the mean over the rows of each collective."""
        return np.bincount(self.collective, values) / self.count

    def components(self, clock: Ints) -> Ints:
        """Return the lowest clock that each can be compared with, over groups that overlap."""
        lead = np.arange(int(clock.max(initial=-1)) + 1)
        while len(self.count):
            least = np.minimum.reduceat(lead[clock[self.process]], self.first)
            after = lead.copy()
            np.minimum.at(after, clock[self.process], least[self.collective])
            np.minimum.at(after, lead, after.copy())  # what a clock's lead has found out
            while (after[after] != after).any():
                after = after[after]
            if (after == lead).all():
                break
            lead = after
        return lead


@dataclass(frozen=True)
class Fit:
    """Each clock: what to add to its times, and how well that is known."""

    clock: Ints  # of each process
    lead: Ints  # the lowest clock that each clock can be compared with
    zero: Ints  # each clock's first end: what its times are counted from
    offset: Floats  # of the time since then, at the middle of what was recorded
    drift: Floats  # ns per second
    middle: Floats  # of each clock, on the common clock
    weight: Floats  # of each collective
    scatter: float  # of ends, ns: half of the collectives' ends agree better

    def times(self, ends: Ends, values: Ints) -> Floats:
        """Return the times of rows on the common clock of each component."""
        clock = self.clock[ends.process]
        since: Floats = (values - self.zero[clock]).astype(np.float64) + self.offset[clock]
        return since + self.drift[clock] * (since - self.middle[clock]) / _SECOND

    def off_common(self, ends: Ends) -> Floats:
        """Return each aligned end, less the mean of its collective."""
        end = self.times(ends, ends.end)
        off: Floats = end - ends.mean(end)[ends.collective]
        return off

    def spread(self, ends: Ends) -> Floats:
        """Return how far apart the aligned ends of each collective are, root mean square."""
        return np.sqrt(ends.mean(self.off_common(ends) ** 2))

    def shifts(self) -> tuple[Ints, Ints, Floats]:
        """Return what to add to each clock's times to put them on the lead's clock: ns at the
        middle of what was recorded, that time on the clock itself, and drift in ns per ns."""
        reference = self.zero + np.rint(self.middle - self.offset).astype(np.int64)
        fine = np.rint(self.offset - self.offset[self.lead]).astype(np.int64)
        drift = (self.drift - self.drift[self.lead]) / _SECOND
        return self.zero[self.lead] - self.zero + fine, reference, drift


def fit_clocks(ends: Ends, clock: Ints) -> Fit:
    """Fit an offset and a drift to each clock; `clock` is that of each process."""
    clocks = int(clock.max(initial=-1)) + 1
    zero = np.full(clocks, np.iinfo(np.int64).max)
    np.minimum.at(zero, clock[ends.process], ends.end)
    zero[zero == np.iinfo(np.int64).max] = 0
    nothing = np.zeros(clocks)
    lead = ends.components(clock)
    weight = np.ones(len(ends.count))
    fitted = Fit(clock, lead, zero, nothing, nothing, nothing, weight, FLOOR_NS)
    if not len(ends.count):
        return fitted
    blocks = Blocks.from_ends(ends, clock, lead)
    fitted = _improve_fit(fitted, ends, blocks, np.zeros(len(ends.count)))
    common = ends.mean(fitted.times(ends, ends.end))
    middle = _find_middles(ends, fitted, common)
    since = (common - middle[clock[ends.process[ends.first]]]) / _SECOND
    fitted = replace(fitted, middle=middle)
    for _ in range(_ROUNDS):
        fitted = _improve_fit(fitted, ends, blocks, since)
        fitted = _weigh_fit(fitted, ends)
    return fitted


def _weigh_fit(fitted: Fit, ends: Ends) -> Fit:
    """Return the fit with less weight on collectives whose ends lie much further apart than usual
    (Cauchy weights)."""
    spread = fitted.spread(ends)
    usual = max(float(np.median(spread)), FLOOR_NS)
    width = _EFFICIENT * usual
    return replace(fitted, weight=width**2 / (spread**2 + width**2), scatter=usual)


def _find_middles(ends: Ends, fitted: Fit, common: Floats) -> Floats:
    """Return the middle of what each component recorded, for each of its clocks."""
    lead = fitted.lead[fitted.clock[ends.process[ends.first]]]
    low = np.full(len(fitted.lead), np.inf)
    high = np.full(len(fitted.lead), -np.inf)
    np.minimum.at(low, lead, common)
    np.maximum.at(high, lead, common)
    seen = low <= high
    middle = np.zeros(len(fitted.lead))
    middle[seen] = (low[seen] + high[seen]) / 2
    return middle[fitted.lead]


def _improve_fit(fitted: Fit, ends: Ends, blocks: "Blocks", since: Floats) -> Fit:
    """Return a round: what is still off is fitted, and added to what was found before."""
    offset, drift = blocks.solved(
        fitted, since, fitted.off_common(ends), fitted.drift, with_drift=bool(since.any())
    )
    return replace(fitted, offset=fitted.offset + offset, drift=fitted.drift + drift)


@dataclass(frozen=True)
class Blocks:
    """The normal equations. For each set of members with weights w and times x (seconds from the
    middle): sums of w, w x and w x² times (I - 11'/n), a row for each clock of the set."""

    ends: Ends
    row_entry: Ints  # entry of each row of `ends`
    sets: Ints  # of each entry
    clock: Ints
    members: Floats  # processes of the set on that clock
    lead: Ints  # of each clock

    @classmethod
    def from_ends(cls, ends: Ends, clock: Ints, lead: Ints) -> "Blocks":
        set_of = ends.member_sets
        _, example = np.unique(set_of, return_index=True)
        size = ends.count[example]
        start = np.cumsum(size) - size
        within = np.arange(len(ends.collective)) - ends.first[ends.collective]
        position = start[set_of[ends.collective]] + within  # of a process in its set
        sets = np.repeat(np.arange(len(size)), size)
        whose = np.empty(len(sets), np.int64)
        whose[position] = clock[ends.process]
        order = order_by(sets, whose)  # several processes of a set may share a clock
        new = np.append(True, np.diff(sets[order]) != 0) | np.append(
            True, np.diff(whose[order]) != 0
        )
        entry = np.empty(len(sets), np.int64)
        entry[order] = np.cumsum(new) - 1
        firsts = order[new]
        members = np.bincount(entry).astype(np.float64)
        return cls(ends, entry[position], sets[firsts], whose[firsts], members, lead)

    def solved(
        self,
        fitted: Fit,
        since: Floats,
        off: Floats,
        drift: Floats,
        *,
        with_drift: bool,
        rough: bool = False,
    ) -> tuple[Floats, Floats]:
        """Return the offsets and drifts that take away what rows are off; drifts are small."""
        set_of, weight = self.ends.member_sets, fitted.weight
        w = [np.bincount(set_of, weight * since**k) for k in range(3)]
        right = np.stack([self._build_right_side(weight, since, off, k) for k in range(2)])
        prior = (fitted.scatter / (PRIOR_DRIFT * _SECOND)) ** 2
        right[1] -= prior * drift
        if not with_drift:
            right[1] = 0.0
        size = self._sizes
        own = self.members - self.members**2 / size[self.sets]
        diagonal = np.stack([self._sum_by_clock(own * w[k][self.sets]) for k in (0, 2)])
        diagonal[1] += prior

        def times(x: Floats) -> Floats:
            """Return the matrix times a vector: offsets in the first row, drifts in the second."""
            apart = [self.apart(column) for column in x]
            out = np.stack(
                [
                    self._sum_by_clock(w[k][self.sets] * apart[0] + w[k + 1][self.sets] * apart[1])
                    for k in range(2)
                ]
            )
            out[1] += prior * x[1]
            return out if with_drift else out * [[1.0], [0.0]]

        steps, relative = 4 * len(self.lead) + 100, _RELATIVE  # as many as unknowns, and rounding
        if rough:
            steps, relative = _ROUGH
        solution = conjugate_gradients(
            times, right, diagonal, self._balance_right_side, steps, relative
        )
        return solution[0], solution[1]

    def _build_right_side(self, weight: Floats, since: Floats, off: Floats, power: int) -> Floats:
        values = (weight * since**power)[self.ends.collective] * off
        sums = np.bincount(self.clock[self.row_entry], values, len(self.lead)).astype(np.float64)
        return -sums

    @cached_property
    def _sizes(self) -> Floats:
        """The number of processes of each set."""
        sizes: Floats = np.bincount(self.sets, self.members).astype(np.float64)
        return sizes

    def apart(self, x: Floats) -> Floats:
        """Return each entry's value less the mean of its set, for all its processes together."""
        value = x[self.clock]
        mean = np.bincount(self.sets, self.members * value) / self._sizes
        apart: Floats = self.members * (value - mean[self.sets])
        return apart

    def _sum_by_clock(self, values: Floats) -> Floats:
        sums: Floats = np.bincount(self.clock, values, len(self.lead)).astype(np.float64)
        return sums

    def _balance_right_side(self, right: Floats) -> Floats:
        """Return a right side whose offsets add up to nothing in each component, as they must: what
        rounding leaves there has no solution."""
        count = np.maximum(np.bincount(self.lead, minlength=len(self.lead)), 1)
        mean = np.bincount(self.lead, right[0], len(self.lead)) / count
        return np.stack([right[0] - mean[self.lead], right[1]])


def conjugate_gradients(
    times: Callable[[Floats], Floats],
    right: Floats,
    diagonal: Floats,
    balanced: Callable[[Floats], Floats],
    steps: int,
    relative: float,
) -> Floats:
    """Solve a symmetric positive semidefinite system, scaled by its diagonal."""
    scale = np.divide(1.0, diagonal, out=np.zeros_like(diagonal), where=diagonal > 0)
    solution = np.zeros_like(right)
    left = balanced(right)
    direction = scaled = scale * left
    enough = max(_PRECISION_NS, relative * float(np.abs(scaled).max(initial=0.0)))
    power = float((left * scaled).sum())
    for _ in range(steps):
        if np.abs(scaled).max(initial=0.0) < enough:
            break
        image = times(direction)
        curvature = float((direction * image).sum())
        if not curvature > 0:
            break
        solution = solution + power / curvature * direction
        left = balanced(left - power / curvature * image)
        scaled = scale * left
        before = power
        power = float((left * scaled).sum())
        direction = scaled + power / before * direction
    return solution
