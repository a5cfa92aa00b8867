"""How long matrix products take at other sizes, as those of the recording show.

A product runs in waves of blocks, each of which takes a time for the length of its inner dimension
and one for beginning and ending: t = least + waves · (k + ramp) · rate of its kernel. Blocks of
persistent kernels take several tiles (`tiles`). The rates are those of the kernels that the
recording holds, the ramp is the one with which products of different k on the same kernel agree
best, or the usual one where they do not agree. A product that grows moves to a kernel with larger
tiles once it fills as much of a wave of it as others of the recording do, or a whole one.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from htk.base.columns.groups import Groups
from htk.base.columns.types import Floats, Ints, Mask
from htk.whatif.operator_shapes import product_sizes
from htk.whatif.step_model import StepModel

_SMOOTH = 32  # waves: so many are no longer told one by one
_RAMPS = np.arange(0.0, 1025.0, 32.0)
_LARGER = 1.2  # waves that differ less are of the same tiles
_FREE = 0.1  # of alike products, at least, run with nothing beside them, or all are as slow
_APART = 2.0  # times as long, and inner dimensions tell a ramp
_AGREES = 0.02  # the mean error of a ramp that is believed: what runs beside products misleads
_USUAL_RAMP = 256.0  # steps of k: tensor cores reach half of their rate after 200 to 400


@dataclass(frozen=True)
class Product:
    """A kernel at one size, as it runs with nothing beside it."""

    kernel: int  # of the names of activities
    m: int
    n: int
    k: int
    waves: float
    ns: float  # above the least
    persistent: bool = False  # its blocks share the tiles evenly


@dataclass(frozen=True)
class MatmulKernel:
    """A kernel for products: elements of the result in a wave, ns for a step of k in a wave."""

    wave: float
    rate: float
    fill: float  # the least part of a wave for which it is chosen
    persistent: bool = False

    def betters(self, other: "MatmulKernel", size: float) -> bool:
        """Return whether this kernel is better for a result of `size` elements: it has larger tiles
        and makes no less of a full wave."""
        if self.wave < _LARGER * other.wave or size < self.fill * self.wave:
            return False
        return self.rate / self.wave <= other.rate / other.wave


@dataclass(frozen=True)
class Products:
    """The products of a step, column by column, and the kernels that they run on."""

    least: float
    ramp: float
    activity: Ints
    alike: Ints  # the one of `usual` that has its kernel and size
    waves: Floats
    persistent: Mask
    ns: Floats  # above the least
    usual: list[Product]
    kernels: dict[int, MatmulKernel]

    @cached_property
    def slower(self) -> Floats:
        """The slowdown of each product relative to its usual time, for what runs beside it or by
        chance."""
        return np.asarray(self.ns / self._of_usual([product.ns for product in self.usual]))

    def longer(self, inner: float) -> Floats:
        """Return how long each takes with so many times the inner dimension."""
        k = self._of_usual([product.k for product in self.usual])
        return np.asarray(self.least + self.ns * (k * inner + self.ramp) / (k + self.ramp))

    def taller(self, rows: float) -> Floats:
        """Return how long each takes with so many times the rows: on its own kernel, or on one with
        larger tiles."""
        grown = round_up_waves(self.waves * rows, self.persistent)
        now = round_up_waves(self.waves * 1.0, self.persistent)
        own = self.ns * grown / now
        if rows <= 1:  # as many rows run on the kernel that they ran on
            return np.asarray(self.least + own)
        larger = self._of_usual([self._on_larger(product, rows) for product in self.usual])
        own = np.where(np.isnan(larger), own, larger * self.slower)
        return np.asarray(self.least + np.maximum(own, self.ns))

    def _on_larger(self, product: Product, rows: float) -> float:
        """Return how long it takes on a kernel with larger tiles; NaN: none betters its own."""
        size = product.m * product.n * rows
        recorded = self.kernels[product.kernel]
        larger = [kernel for kernel in self.kernels.values() if kernel.betters(recorded, size)]
        if not larger:
            return float("nan")
        chosen = max(larger, key=lambda kernel: kernel.wave)
        waves = float(round_up_waves(size / chosen.wave, chosen.persistent))
        return waves * (product.k + self.ramp) * chosen.rate

    def _of_usual(self, values: list[float] | list[int]) -> Floats:
        return np.array(values, np.float64)[self.alike]


def round_up_waves(waves: Floats | float, persistent: Mask | bool) -> Floats:
    """Return the waves that are begun; of many, or where blocks share tiles evenly, as many as
    there are."""
    waves = np.asarray(waves, np.float64)
    counted = (waves < _SMOOTH) & ~np.asarray(persistent)
    return np.where(counted, np.ceil(waves - 1e-6), np.maximum(waves, 1.0))


def find_products(model: StepModel, least: float) -> Products:
    """Return the products whose shapes and blocks are known. `least`: no kernel takes less."""
    return model.once(
        f"products above {least} ns", lambda: _find_products(model, least), of_lengths=True
    )


def _find_products(model: StepModel, least: float) -> Products:
    length, facts = model.lengths().astype(np.float64), model.facts
    distinct = [product_sizes(dims or "[]") or (-1, -1, -1) for dims in facts.dims.distinct]
    sizes = np.array(distinct, np.int64).reshape(-1, 3)[facts.dims.codes]
    usable = facts.family.isin("gemm") & (sizes[:, 0] > 0) & (facts.blocks > 0)
    activity = np.flatnonzero(usable & (length > least))
    waves = facts.blocks[activity]
    ns = length[activity] - least
    persistent = facts.persistent[activity]
    names = model.graph.activities.name[activity]
    alike = Groups.by_keys([names, sizes[activity]])
    free = alike.quantiles(ns, [_FREE])[0] if len(alike) else np.empty(0)
    order = np.argsort(alike.first_row)
    number = np.empty(len(order), np.int64)
    number[order] = np.arange(len(order))
    usual = [
        Product(kernel, m, n, k, wave, fastest, is_persistent)
        for (kernel, m, n, k), wave, fastest, is_persistent in zip(
            alike.keys[order].tolist(),
            waves[alike.first_row[order]].tolist(),
            free[order].tolist(),
            persistent[alike.first_row[order]].tolist(),
            strict=True,
        )
    ]
    of: dict[int, list[Product]] = defaultdict(list)
    for product in usual:
        of[product.kernel].append(product)
    ramp = _fit_ramp(of.values())
    kernels = {name: _fit_kernel(some, ramp) for name, some in of.items()}
    return Products(
        least, ramp, activity, number[alike.group_ids], waves, persistent, ns, usual, kernels
    )


def _compute_rates(some: list[Product], ramps: Floats) -> Floats:
    """Return ns for a step of k in a wave, of each product (a column) with each ramp (a row)."""
    ns, waves, k = np.array([(p.ns, p.waves, p.k) for p in some], np.float64).T
    persistent = np.array([p.persistent for p in some], bool)
    return np.asarray(ns / round_up_waves(waves, persistent) / (k + ramps[:, None]))


def _fit_kernel(some: list[Product], ramp: float) -> MatmulKernel:
    return MatmulKernel(
        float(np.median([product.m * product.n / product.waves for product in some])),
        float(np.median(_compute_rates(some, np.array([ramp])))),
        min(1.0, *(product.waves for product in some)),
        some[0].persistent,
    )


def _fit_ramp(by_kernel: Iterable[list[Product]]) -> float:
    """Return what makes time proportional to the inner dimension, added to it: the usual where
    products do not agree."""
    telling = [
        some for some in by_kernel if max(o.k for o in some) >= _APART * min(o.k for o in some)
    ]
    if not telling:
        return _USUAL_RAMP
    rates = [np.log(_compute_rates(some, _RAMPS)) for some in telling]
    errors = np.hstack([np.abs(r - np.median(r, axis=1, keepdims=True)) for r in rates]).mean(1)
    best = int(np.argmin(errors))
    return float(_RAMPS[best]) if errors[best] <= _AGREES else _USUAL_RAMP
