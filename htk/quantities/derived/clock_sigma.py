"""Uncertainty of the fit of clocks: standard deviations of offsets and drifts.

Noise like that which the fit leaves over is fitted as often as `_PROBES`, and what comes out is how
far the fit may be off. Ranks of one clock that end a collective together are one observation, and
so are calls whose ends err alike one after the other; a rank that always ends early shifts its
clock however many calls there are; what a drift too small to be seen may do comes on top. Few
observations make their own scatter uncertain: standard deviations are widened as Student's t is.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from htk.base.columns.order import order_by
from htk.base.columns.types import Floats, Ints, Mask
from htk.quantities.derived.clock_fit import FLOOR_NS, PRIOR_DRIFT, Blocks, Ends, Fit

SIGNIFICANT = 3.0  # standard deviations
_ALIKE = 0.1  # of the scatter: ends that always come a little earlier do not average out
_PRIOR_CALLS = 8.0  # what the scatter of like groups counts for, beside a clock's own
_PROBES = (24, 200)  # at least, at most
_PROBED = 20_000  # clocks over all probes
_SECOND = 1e9


@dataclass(frozen=True)
class Errors:
    """Standard deviations of each clock's offset (ns) and drift (ns per ns)."""

    offset: Floats  # against the clocks of the group where it is known worst
    drift: Floats
    offset_from_lead: Floats  # against the clock that its component is aligned with
    drift_from_lead: Floats


def standard_errors(ends: Ends, fitted: Fit) -> Errors:
    """Return how far offsets and drifts may be off."""
    clocks = len(fitted.zero)
    if not len(ends.count):
        nothing = np.zeros(clocks)
        return Errors(nothing, nothing, nothing, nothing)
    noise = _Noise(ends, fitted)
    blocks, count = noise.blocks, int(np.clip(_PROBED // max(clocks, 1), *_PROBES))
    apart = np.zeros((2, len(blocks.sets)))
    from_lead = np.zeros((2, clocks))
    dice = np.random.default_rng(0)
    for _ in range(count):
        drift = dice.normal(0, PRIOR_DRIFT * _SECOND, clocks)
        solved = blocks.solved(
            fitted, noise.since, noise.drawn(dice), drift, with_drift=True, rough=True
        )
        for k, column in enumerate(solved):
            apart[k] += (blocks.apart(column) / blocks.members) ** 2
            from_lead[k] += (column - column[fitted.lead]) ** 2
    others = np.bincount(blocks.sets)[blocks.sets]  # off their mean clocks are less far than apart
    apart *= np.divide(others, others - 1, out=np.zeros(len(others)), where=others > 1)
    worst = np.zeros((2, clocks))
    for k in range(2):
        np.maximum.at(worst[k], blocks.clock, np.sqrt(apart[k] / count))
    alone = np.sqrt(from_lead / count)
    wider = _find_widening(noise.freedom, count)
    floor = noise.floor
    offset = np.where(worst[0] > 0, np.maximum(worst[0] * wider, floor), 0.0)
    least = np.where(alone[0] > 0, np.hypot(floor, floor[fitted.lead]), 0.0)
    return Errors(
        offset,
        worst[1] * wider / _SECOND,
        np.maximum(alone[0] * wider, least),
        alone[1] * wider / _SECOND,
    )


def _find_widening(freedom: Floats, probes: int) -> Floats:
    """Return the factor that widens a Gaussian's 3 sigma to the same quantile of Student's t
    (Wallace's approximation)."""
    nu = 1 / (1 / np.maximum(freedom, 1.0) + 1 / probes)  # probes are a sample too
    argument = (SIGNIFICANT * (8 * nu + 3) / (8 * nu + 1)) ** 2 / nu
    wider: Floats = np.sqrt(nu * np.expm1(argument)) / SIGNIFICANT
    return wider


class _Noise:
    """The scatter of the ends: by collective and clock, beyond what the fit explains."""

    def __init__(self, ends: Ends, fitted: Fit) -> None:
        self.ends = ends
        self.fitted = fitted
        self.blocks = Blocks.from_ends(ends, fitted.clock, fitted.lead)
        self.clock = fitted.clock[ends.process]
        self.off = fitted.off_common(ends)
        common = ends.mean(fitted.times(ends, ends.end))
        self.since = (common - fitted.middle[self.clock[ends.first]]) / _SECOND

    @cached_property
    def cluster(self) -> Ints:
        """The cluster of each row: one collective and clock, which the blocks' entry names."""
        entry = self.blocks.row_entry
        collective = self.ends.collective
        order = order_by(collective, entry)
        new = np.append(True, np.diff(collective[order]) != 0)
        new |= np.append(True, np.diff(entry[order]) != 0)
        cluster = np.empty(len(order), np.int64)
        cluster[order] = np.cumsum(new) - 1
        return cluster

    @cached_property
    def _first(self) -> Ints:
        """A row of each cluster."""
        _, first = np.unique(self.cluster, return_index=True)
        return np.asarray(first, np.int64)

    @cached_property
    def _entry(self) -> Ints:
        return self.blocks.row_entry[self._first]

    @cached_property
    def _collective(self) -> Ints:
        return self.ends.collective[self._first]

    @cached_property
    def _clocks(self) -> Ints:
        """The number of clocks of each cluster's collective."""
        return np.bincount(self._collective)[self._collective].astype(np.int64)

    @cached_property
    def _useful(self) -> Mask:
        return self._clocks > 1

    @cached_property
    def _weight(self) -> Floats:
        return self.fitted.weight[self._collective]

    @cached_property
    def _residual(self) -> Floats:
        """The mean of each cluster off the common end, as far apart as independent ones are."""
        apart = np.maximum(self._clocks, 2) / np.maximum(self._clocks - 1, 1)
        residual: Floats = np.where(self._useful, self._mean * np.sqrt(apart), 0.0)
        return residual

    @cached_property
    def _parameters(self) -> float:
        """The number of offsets and drifts that the fit took from the ends."""
        clocks = len(np.unique(self.clock[self._first[self._useful]]))
        leads = len(np.unique(self.fitted.lead[self.clock[self._first[self._useful]]]))
        prior = (self.fitted.scatter / (PRIOR_DRIFT * _SECOND)) ** 2
        information = float((self._weight * self.since[self._collective] ** 2)[self._useful].sum())
        drift = information / (information + prior * max(clocks, 1)) if information else 0.0
        return (clocks - leads) * (1 + drift)

    @cached_property
    def _observations(self) -> float:
        """The number of differences between clocks that the ends of collectives tell."""
        useful = self._useful
        return float((1 - 1 / self._clocks[useful]).sum())

    @cached_property
    def _alike(self) -> float:
        """The number of calls in a row that err alike and count as one observation: 1 + 2 Σ of
        their correlations."""
        chosen = np.flatnonzero(self._useful)
        order = chosen[order_by(self._entry[chosen], self.since[self._collective[chosen]])]
        scaled = (self._residual * self._weight / np.sqrt(self._variance))[order]
        entry = self._entry[order]
        power = float((scaled**2).mean()) if len(order) else 0.0
        least = 1 / np.sqrt(max(self._observations, 1.0))
        total = 1.0
        longest = 0
        if len(order):
            longest = int(np.bincount(entry).max()) // 2
        for lag in range(1, longest + 1):  # until nothing is left, after a few
            same = entry[lag:] == entry[:-lag]
            product = (scaled[lag:] * scaled[:-lag])[same]
            correlation = float(product.mean()) / power if len(product) and power else 0.0
            if correlation < least:
                break
            total += 2 * correlation
        return total

    @cached_property
    def _variance(self) -> Floats:
        """The variance of each cluster's noise, in ns²: from the scatter of its clock in the group
        and, as a prior, from that of like groups."""
        kind = np.unique(
            np.stack([self._clocks, self.ends.count[self._collective]]), axis=1, return_inverse=True
        )[1].ravel()
        weight = self._weight**2 * self._useful
        square = weight * self._residual**2
        spent = self._observations / max(self._observations - self._parameters, 0.5)
        own_weight = np.bincount(self._entry, weight, len(self.blocks.sets))[self._entry]
        own = np.bincount(self._entry, square, len(self.blocks.sets))[self._entry]
        like = np.bincount(kind, square) / np.maximum(np.bincount(kind, weight), 1e-30)
        variance = (own + _PRIOR_CALLS * like[kind]) / (own_weight + _PRIOR_CALLS)
        seen = np.bincount(self._entry, minlength=len(self.blocks.sets))[self._entry]
        variance = np.maximum(variance * spent, self._within / self._rows)
        return np.asarray(variance + FLOOR_NS**2 / (seen + 1))  # few prove little

    @cached_property
    def _within(self) -> float:
        """The variance of ends of one collective on one clock: those of another scatter no less."""
        off = self.off - self._mean[self.cluster]
        rows = self._rows[self.cluster]
        several = rows > 1
        weight = (self.fitted.weight[self.ends.collective][several]) ** 2
        square = weight * off[several] ** 2 * rows[several] / (rows[several] - 1)
        return float(square.sum() / weight.sum()) if len(weight) else 0.0

    @cached_property
    def _lever(self) -> Floats:
        """The factor by which a cluster moves the fit beyond its weight: weights follow ends."""
        between = np.bincount(self._collective, self._rows * (self._mean**2))
        total = np.bincount(self.ends.collective, self.off**2)
        share = np.divide(between, total, out=np.zeros_like(between), where=total > 0)
        clocks = np.bincount(self._collective)
        weight = self.fitted.weight
        curved = weight * (1 - 2 * (1 - weight) * share / np.maximum(clocks - 1, 1))
        slope = np.bincount(clocks, curved) / np.maximum(np.bincount(clocks, weight), 1e-30)
        return np.asarray(1 / np.clip(slope, 0.2, 1.0))[self._clocks]

    @cached_property
    def _rows(self) -> Ints:
        return np.bincount(self.cluster).astype(np.int64)

    @cached_property
    def _mean(self) -> Floats:
        return np.bincount(self.cluster, self.off) / self._rows

    @cached_property
    def _habit(self) -> float:
        """The standard deviation of a rank's constant lead or lag among those of its clock."""
        within = self.off - self._mean[self.cluster]
        several = np.flatnonzero(self._rows[self.cluster] > 1)
        if not len(several):
            return 0.0
        sets = self.ends.member_sets[self.ends.collective[several]]
        process = self.ends.process[several]
        order = order_by(sets, process)
        new = np.append(True, np.diff(sets[order]) != 0) | np.append(
            True, np.diff(process[order]) != 0
        )
        who = np.cumsum(new) - 1
        rows = self._rows[self.cluster[several[order]]]
        values = within[several[order]] * np.sqrt(rows / (rows - 1))
        weight = self.fitted.weight[self.ends.collective[several[order]]]
        total = np.bincount(who, weight)
        mean = np.bincount(who, weight * values) / total
        noise = np.bincount(who, weight**2 * (values - mean[who]) ** 2) / total**2
        calls = np.bincount(who)
        noise *= calls / np.maximum(calls - 1, 1)
        enough = calls > 1
        return float(np.sqrt(max((mean**2 - noise)[enough].mean(), 0.0))) if enough.any() else 0.0

    @cached_property
    def freedom(self) -> Floats:
        """The degrees of freedom of each clock's scatter."""
        clocks = len(self.fitted.zero)
        clock = self.clock[self._first]
        own = np.bincount(clock, np.where(self._useful, 1 - 1 / self._clocks, 0.0), clocks)
        together = (self._observations - self._parameters) / self._alike
        return np.minimum(own / self._alike + _PRIOR_CALLS, together)

    @cached_property
    def floor(self) -> Floats:
        """The least standard deviation of each clock's offset."""
        clocks = len(self.fitted.zero)
        weight = self.fitted.weight[self.ends.collective]
        total = np.maximum(np.bincount(self.clock, weight, clocks), 1e-30)
        scatter = np.bincount(self.clock, weight * self.off**2, clocks) / total
        return np.asarray(_ALIKE * np.sqrt(scatter))

    def drawn(self, dice: "np.random.Generator") -> Floats:
        """Return random noise for each row: alike for those of one collective and clock."""
        spread = np.sqrt(self._variance * self._alike) * self._lever
        noise = spread * dice.normal(0, 1, len(spread))
        habit = self._habit / np.sqrt(self.blocks.members)
        noise += (habit * dice.normal(0, 1, len(habit)))[self._entry]
        row = noise[self.cluster]
        return np.asarray(row - self.ends.mean(row)[self.ends.collective])
