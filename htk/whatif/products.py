"""How long matrix products take at other sizes, as those of the recording show.

A product runs in waves of blocks, each of which takes a time for the length of its inner dimension
and one for beginning and ending: t = least + waves · (k + ramp) · rate of its kernel. The rates are
those of the kernels that the recording holds, the ramp is the one with which products of different
k on the same kernel agree best, or the usual one where they do not agree. A product that grows
moves to a kernel with larger tiles once it fills as much of a wave of it as others of the recording
do, or a whole one.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from htk.whatif.operator_shapes import matrices
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
    kernel: int  # of the names of activities
    m: int
    n: int
    k: int
    waves: float
    ns: float  # above the least
    slower: float = 1.0  # than others like it: for what runs beside it, or by chance


@dataclass(frozen=True)
class MatmulKernel:
    """A kernel for products: elements of the result in a wave, ns for a step of k in a wave."""

    wave: float
    rate: float
    fill: float  # the least part of a wave for which it is chosen

    def betters(self, other: "MatmulKernel", size: float) -> bool:
        """For a result of so many elements: has larger tiles and makes no less of a full wave."""
        if self.wave < _LARGER * other.wave or size < self.fill * self.wave:
            return False
        return self.rate / self.wave <= other.rate / other.wave


@dataclass(frozen=True)
class Products:
    least: float
    ramp: float
    seen: dict[int, Product]  # by activity
    kernels: dict[int, MatmulKernel]

    def longer(self, activity: int, inner: float) -> float:
        """With so many times the inner dimension."""
        product = self.seen[activity]
        return self.least + product.ns * (product.k * inner + self.ramp) / (product.k + self.ramp)

    def taller(self, activity: int, rows: float) -> float:
        """With so many times the rows: on its own kernel, or on one with larger tiles."""
        product = self.seen[activity]
        own = product.ns * whole_waves(product.waves * rows) / whole_waves(product.waves)
        if rows <= 1:  # as many rows run on the kernel that they ran on
            return self.least + own
        size, recorded = product.m * product.n * rows, self.kernels[product.kernel]
        larger = [k for k in self.kernels.values() if k.betters(recorded, size)]
        if larger:
            chosen = max(larger, key=lambda kernel: kernel.wave)
            own = (
                whole_waves(size / chosen.wave)
                * (product.k + self.ramp)
                * chosen.rate
                * product.slower
            )
        return self.least + max(own, product.ns)


def whole_waves(waves: float) -> float:
    return float(np.ceil(waves - 1e-6)) if waves < _SMOOTH else waves


def products(model: StepModel, least: float) -> Products:
    """Return those whose shapes and blocks are known. `least`: no kernel takes less."""
    length, names = model.lengths().astype(np.float64), model.graph.activities.name
    blocks, seen = model.facts.blocks, {}
    for activity in np.flatnonzero(~np.isnan(blocks) & (length > least)).tolist():  # some thousand
        sizes = _sizes(model.facts.dims[activity] or "[]")
        if model.facts.family[activity] == "gemm" and sizes is not None and blocks[activity] > 0:
            ns = float(length[activity]) - least
            seen[activity] = Product(int(names[activity]), *sizes, float(blocks[activity]), ns)
    alike: dict[tuple[int, int, int, int], list[Product]] = defaultdict(list)
    for product in seen.values():
        alike[product.kernel, product.m, product.n, product.k].append(product)
    usual = {key: _usual(some) for key, some in alike.items()}
    for activity, product in seen.items():
        free = usual[product.kernel, product.m, product.n, product.k].ns
        seen[activity] = replace(product, slower=product.ns / free)
    of: dict[int, list[Product]] = defaultdict(list)
    for product in usual.values():
        of[product.kernel].append(product)
    ramp = _ramp(of.values())
    kernels = {name: _kernel(some, ramp) for name, some in of.items()}
    return Products(least, ramp, seen, kernels)


def _usual(some: list[Product]) -> Product:
    """With nothing beside it, as some are."""
    return replace(some[0], ns=float(np.quantile([product.ns for product in some], _FREE)))


def _kernel(some: list[Product], ramp: float) -> MatmulKernel:
    rates = [product.ns / whole_waves(product.waves) / (product.k + ramp) for product in some]
    return MatmulKernel(
        float(np.median([product.m * product.n / product.waves for product in some])),
        float(np.median(rates)),
        min(1.0, *(product.waves for product in some)),
    )


def _ramp(by_kernel: Iterable[list[Product]]) -> float:
    """Return what makes time proportional to the inner dimension, added to it: the usual where
    products do not agree."""
    telling = [
        some for some in by_kernel if max(o.k for o in some) >= _APART * min(o.k for o in some)
    ]
    if not telling:
        return _USUAL_RAMP
    errors = [_error(telling, ramp) for ramp in _RAMPS.tolist()]
    best = int(np.argmin(errors))
    return float(_RAMPS[best]) if errors[best] <= _AGREES else _USUAL_RAMP


def _error(telling: list[list[Product]], ramp: float) -> float:
    """Mean, relative, of products on the same kernel, from their median."""
    deviations: list[float] = []
    for some in telling:
        rates = np.log(
            [product.ns / whole_waves(product.waves) / (product.k + ramp) for product in some]
        )
        deviations += np.abs(rates - np.median(rates)).tolist()
    return float(np.mean(deviations))


@lru_cache(maxsize=4096)
def _sizes(dims: str) -> tuple[int, int, int] | None:
    """Return the rows, columns and inner dimension of a product of two matrices."""
    shapes = matrices(dims)
    if len(shapes) < 2:
        return None
    (m, k), (other, n) = shapes[-2:]
    return (m, n, k) if k == other and min(m, n, k) > 0 else None
