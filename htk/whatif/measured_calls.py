"""Times of measured kernels at the sizes of a step's products, attention and experts.

After a change a kernel takes its recorded time, by what is measured after over what is measured
before, so that what measurements miss of it cancels.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from htk.base.columns.groups import Groups
from htk.base.columns.types import NONE, Floats, Ints, Mask, fill_none, take_or
from htk.physics.hardware import Gpu
from htk.physics.kernel_time import FORMULA, estimate_kernels
from htk.physics.measured_costs import MeasuredCosts, measure_costs
from htk.physics.op_costs import CostOrReason
from htk.quantities.measures.op_work import OperatorWork
from htk.whatif.step_model import StepModel

_Z90 = 1.645
# Sizes of calls of which none were recorded: of a product, and of attention.
_USUAL = {
    "matmul": {"m": 8192.0, "n": 8192.0, "k": 8192.0},
    "attention_prefill": {
        "batch": 1.0, "seq": 4096.0, "heads": 32.0, "kv_heads": 8.0, "head_dim": 128.0,
        "window": 0.0,
    },
}  # fmt: skip


class MeasuredRatio(NamedTuple):
    """Measured time after a change over that before, of each activity; NaN: not measured."""

    ratio: Floats
    sigma: Floats  # one standard deviation of its logarithm


@dataclass(frozen=True)
class MeasuredCalls:
    """The calls of a step that measured kernels are asked about; a value for each activity."""

    kind: Ints  # of its call, a position in `costs`; NONE: of no known work
    call: Ints  # calls of a kind are many; NONE: as above
    costs: Sequence[CostOrReason]

    def compare_gpus(self, before: Gpu, after: Gpu) -> MeasuredRatio:
        """Return by what the time of each activity is multiplied on another GPU."""
        was = measure_costs(before, self.costs)
        then = measure_costs(after, self.costs)
        sigma = np.hypot(_sigma_of(was), _sigma_of(then))
        return MeasuredRatio(self._spread(then.expected / was.expected), self._spread(sigma))

    def measure(self, gpu: Gpu | None) -> "MeasuredPace":
        """Return how long the calls take by kernels measured on a GPU of this kind."""
        costs = measure_costs(gpu, self.costs)
        is_measured = (costs.nearness != NONE) & (costs.nearness != FORMULA)
        return MeasuredPace(
            self.call,
            np.where(take_or(is_measured, self.kind, False), self._spread(costs.expected), np.nan),
            self._spread(costs.high),
            self._spread(_sigma_of(costs)),
        )

    def _spread(self, by_kind: Floats) -> Floats:
        return np.asarray(take_or(by_kind, self.kind, np.nan))


@dataclass(frozen=True)
class MeasuredPace:
    """Measured times of each activity's call, in ns; NaN: none on such a GPU."""

    call: Ints
    typical: Floats
    high: Floats  # nine of ten such calls take less
    sigma: Floats  # of the logarithm of the typical time

    def times_of_calls(self, length: Floats) -> Floats:
        """Return how long the call of each activity takes, by the lengths of its activities."""
        rows = np.flatnonzero(self.call != NONE)
        sums = np.bincount(self.call[rows], length[rows])
        return np.asarray(take_or(sums, self.call, np.nan))

    def typical_lengths(self, length: Floats) -> Floats:
        """Return how long each activity takes where its call takes the typical time."""
        return np.asarray(length * self.typical / self.times_of_calls(length))

    def find_slower(self, length: Floats, least: float) -> Mask:
        """Return which activities are of calls that take more than so many times the typical time;
        of calls that are far from it, longer than nine of ten take."""
        took = self.times_of_calls(length)
        bar = np.maximum(least * self.typical, self.high) if least > 1 else self.typical
        with np.errstate(invalid="ignore"):
            return np.asarray(took > bar)


def find_measured_calls(model: StepModel) -> MeasuredCalls:
    """Return the calls of a step, found once."""
    return model.once("measured calls", lambda: _find_calls(model))


def _find_calls(model: StepModel) -> MeasuredCalls:
    tables = model.facts.tables
    rows = model.facts.rows
    if not tables["cpu_ops"].num_rows:
        nothing = fill_none(len(rows))
        return MeasuredCalls(nothing, nothing, [])
    work = OperatorWork.from_tables(tables)
    calls = Groups.by_keys([work.row, work.replay]).group_ids
    is_known = work.modelled
    return MeasuredCalls(
        take_or(np.where(is_known, work.kind, NONE), rows),
        take_or(np.where(is_known, calls, NONE), rows),
        work.costs,
    )


def compare_usual(op: str, number_format: str, before: Gpu, after: Gpu) -> float:
    """Return by what the time of a call of a usual size is multiplied on another GPU."""
    sizes = {name: np.array([size]) for name, size in _USUAL[op].items()}
    was = estimate_kernels(before, op, number_format, sizes)
    then = estimate_kernels(after, op, number_format, sizes)
    return float(then.expected[0] / was.expected[0])


def mean_sigma(sigma: Floats, weight: Floats) -> float:
    """Return the deviation of a sum of times that miss together, by how much each weighs."""
    total = float(weight.sum())
    return float(sigma @ weight) / total if total else 0.0


def _sigma_of(measured: MeasuredCosts) -> Floats:
    """Return one standard deviation of the logarithm of each expected time."""
    return np.asarray(np.log(measured.high / measured.low) / (2 * _Z90))
