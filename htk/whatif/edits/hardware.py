"""Another GPU: each kernel by what was measured on either, all else by what bounds it.

Products, attention and experts take their recorded time by measured kernels of their size on the
other GPU over those on this one; where sizes were not recorded, by those of a usual size; of a
server's iteration by what bounds them at its tokens. All else goes by memory bandwidth, transfers
by the links of their level. CPU and latencies stay. A100 to H100 was measured at 1.81 to 2.84 times
on 39 jobs, so this is no more than a first guess.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from htk.base.columns.types import Floats, Mask
from htk.base.errors import UsageError
from htk.physics.hardware import Gpu, gpu
from htk.physics.site_rates import NARROWED, SiteRates
from htk.planning.serving.formats import WEIGHTS
from htk.whatif.edits.batch import SHORTEST_NS
from htk.whatif.measured_calls import compare_usual, find_measured_calls, mean_sigma
from htk.whatif.number_format import recorded_format
from htk.whatif.served_iteration import Bounds, of_server
from htk.whatif.step_model import StepModel
from htk.whatif.transfers import find_latencies

NAME = "hardware"
HELP = "Another GPU of the catalogue: h100. Low confidence."

_MATRIX = ("gemm", "convolution")
_SIGMA = 0.2  # of kernels that nothing measured stands beside


def apply(model: StepModel, value: str) -> StepModel:
    other, now = gpu(value), model.facts.device
    if now is None:
        raise UsageError(
            f"{NAME}: the catalogue does not hold the recorded GPU, {model.facts.device_name!r}"
        )
    if other.name == now.name:
        return model.with_assumption(f"the recording is of {other.name} already")
    length = model.lengths().astype(np.float64)
    site = _SiteRatios(model.site_rates(now), model.site_rates(other))
    memory = site.over("memory", now.memory_gbps / other.memory_gbps)
    usual = _compare_usual(model, now, other, site, memory)
    measured = find_measured_calls(model).compare_gpus(now, other)
    is_measured = np.isfinite(measured.ratio)
    matrix = model.facts.family.isin(*_MATRIX)
    attends = model.facts.family.isin("attention")
    by_family = np.where(matrix, usual.products, np.where(attends, usual.attention, memory))
    of_site = np.where(matrix, site.over("products", 1.0), 1.0)
    ratio = np.where(is_measured, measured.ratio * of_site, by_family)
    sigma = mean_sigma(np.where(is_measured, measured.sigma, _SIGMA), length * model.is_compute)
    floor = np.minimum(length, SHORTEST_NS)
    new = floor + (length - floor) * ratio
    changed = model.with_lengths(model.is_compute, new)
    inside = site.over("links", now.scale_up_gbps / other.scale_up_gbps)
    outside = site.over("adapters", now.scale_out_gbps / other.scale_out_gbps)
    fixed = np.minimum(find_latencies(model), length)
    moved = fixed + (length - fixed) * np.where(model.facts.crosses, outside, inside)
    return (
        replace(
            changed.with_lengths(model.is_comm, moved),
            gpu=other.device_name,
            peak=model.peak * other.half_tflops / now.half_tflops,
            low_confidence=True,
        )
        .with_uncertainty("compute", sigma * site.narrows("products", "memory"))
        .with_uncertainty("communication", 0.3 * site.narrows(*_list_levels(model)))
        .with_assumption(
            f"{other.name} in place of {now.name}: matrix products "
            f"{_measure_speedup(length, ratio, matrix, usual.products):.2f} times as fast, "
            "attention "
            f"{_measure_speedup(length, ratio, attends, usual.attention):.2f} times, as measured "
            "kernels "
            f"are, what memory bounds {1 / memory:.2f} times, links {1 / inside:.2f} times within "
            f"a node and {1 / outside:.2f} times out of it; CPU as it was",
            *site.words,
        )
    )


class _UsualRatios(NamedTuple):
    """By what the time of kernels is multiplied whose sizes were not recorded."""

    products: float
    attention: float


def _compare_usual(
    model: StepModel, now: Gpu, other: Gpu, site: "_SiteRatios", memory: float
) -> _UsualRatios:
    served = model.served or of_server(model.facts.tables)
    if served is None or not served.tokens:
        products = compare_usual("matmul", _format_of(model), now, other)
        attention = compare_usual("attention_prefill", "bf16", now, other)
        return _UsualRatios(site.over("products", products), attention)
    here = Bounds(now)
    there = Bounds(other)
    kept = WEIGHTS["bf16"]
    bound = "memory" if served.tokens < there.balance else "products"
    slower = there.products(served.tokens, kept) / here.products(served.tokens, kept)
    looked = here.attention(served)
    attention = site.over("memory", there.attention(served) / looked) if looked else memory
    return _UsualRatios(site.over(bound, slower), attention)


def _format_of(model: StepModel) -> str:
    """Return the format of most products, as measured kernels have it."""
    recorded = recorded_format(model)
    return "bf16" if recorded in (None, "fp16") else str(recorded)


def _measure_speedup(length: Floats, ratio: Floats, chosen: Mask, usual: float) -> float:
    """Return how many times as fast some kernels become; the usual where there are none."""
    then = float((length * ratio)[chosen].sum())
    return float(length[chosen].sum()) / then if then else 1 / usual


def _list_levels(model: StepModel) -> tuple[str, ...]:
    """Levels of the network that the step uses."""
    crosses = model.facts.crosses[model.is_comm]
    return (*(("links",) if not crosses.all() else ()), *(("adapters",) if crosses.any() else ()))


@dataclass(frozen=True)
class _SiteRatios:
    """What a site measured of both GPUs: of one alone it tells nothing of the other."""

    now: SiteRates
    other: SiteRates

    @property
    def measured(self) -> tuple[str, ...]:
        each = vars(self.now)
        return tuple(n for n in each if each[n] is not None and getattr(self.other, n) is not None)

    def over(self, name: str, usual: float) -> float:
        """Return times taken on the other GPU over those of now."""
        if name not in self.measured:
            return usual
        ratio: float = getattr(self.now, name) / getattr(self.other, name)
        return usual * ratio

    def narrows(self, *names: str) -> float:
        return NARROWED if names and set(names) <= set(self.measured) else 1.0

    @property
    def words(self) -> tuple[str, ...]:
        return tuple(
            f"{name} by this site's recordings of both GPUs: {getattr(self.now, name):.2f} and "
            f"{getattr(self.other, name):.2f} of what is usual"
            for name in self.measured
        )
