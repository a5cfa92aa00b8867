"""Another GPU: each kernel by what bounds its class, from rates that were measured, not peaks.

Matrix products by the fastest product measured on either, attention by the share of the peak that
the same kernels reach on either architecture, all else by memory bandwidth, transfers by the links
of their level; of a server's iteration, products and attention by what bounds them at its tokens.
CPU and latencies stay. A100 to H100 was measured at 1.81 to 2.84 times
on 39 jobs, so this is no more than a first guess.
"""

from dataclasses import dataclass, replace

import numpy as np

from htk.base.errors import UsageError
from htk.physics.hardware import Gpu, gpu
from htk.physics.site_rates import NARROWED, SiteRates
from htk.planning.serving.formats import WEIGHTS
from htk.whatif.edits.batch import SHORTEST_NS
from htk.whatif.served_iteration import Bounds, of_server
from htk.whatif.step_model import StepModel
from htk.whatif.transfers import latency

NAME = "hardware"
HELP = "Another GPU of the catalogue: h100. Low confidence."

_MATRIX = ("gemm", "convolution")
# FlashAttention-2 of the dense peak in 16 bits: 50 to 73 % on A100, long sequences at the upper end
# (Dao, arXiv:2307.08691, abstract); 35 % on H100, whose own instructions it does not use (Shah et
# al., arXiv:2407.08608, abstract). Of other generations no such figure was found.
_ATTENTION = {"ampere": 0.7, "hopper": 0.35}


def apply(model: StepModel, value: str) -> StepModel:
    other, now = gpu(value), model.facts.device
    if now is None:
        raise UsageError(
            f"{NAME}: the catalogue does not hold the recorded GPU, {model.facts.device_name!r}"
        )
    if other.name == now.name:
        return model.with_assumption(f"the recording is of {other.name} already")
    length = model.lengths().astype(np.float64)
    matrix = model.facts.family.isin(*_MATRIX)
    attends = model.facts.family.isin("attention")
    site = _SiteRatios(model.site_rates(now), model.site_rates(other))
    products = site.over("products", now.achievable_half_tflops / other.achievable_half_tflops)
    memory = site.over("memory", now.memory_gbps / other.memory_gbps)
    attention = _attention_tflops(now) / _attention_tflops(other)
    served = model.served or of_server(model.facts.tables)
    if served is not None and served.tokens:
        here, there, kept = Bounds(now), Bounds(other), WEIGHTS["bf16"]
        bound = "memory" if served.tokens < there.balance else "products"
        slower = there.products(served.tokens, kept) / here.products(served.tokens, kept)
        products = site.over(bound, slower)
        looked = here.attention(served)
        attention = site.over("memory", there.attention(served) / looked) if looked else memory
    ratio = np.where(matrix, products, np.where(attends, attention, memory))
    floor = np.minimum(length, SHORTEST_NS)
    new = floor + (length - floor) * ratio
    changed = model.with_lengths(model.is_compute, new)
    inside = site.over("links", now.scale_up_gbps / other.scale_up_gbps)
    outside = site.over("adapters", now.scale_out_gbps / other.scale_out_gbps)
    fixed = np.minimum(latency(model), length)
    moved = fixed + (length - fixed) * np.where(model.facts.crosses, outside, inside)
    return (
        replace(
            changed.with_lengths(model.is_comm, moved),
            gpu=other.device_name,
            peak=model.peak * other.half_tflops / now.half_tflops,
            low_confidence=True,
        )
        .with_uncertainty("compute", 0.2 * site.narrows("products", "memory"))
        .with_uncertainty("communication", 0.3 * site.narrows(*_levels(model)))
        .with_assumption(
            f"{other.name} in place of {now.name}: matrix products {1 / products:.2f} times as "
            f"fast, attention {1 / attention:.2f} times by the same kernels, what memory bounds "
            f"{1 / memory:.2f} times, links {1 / inside:.2f} times within a node and "
            f"{1 / outside:.2f} times out of it; CPU as it was",
            *site.words,
        )
    )


def _levels(model: StepModel) -> tuple[str, ...]:
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


def _attention_tflops(device: Gpu) -> float:
    share = _ATTENTION.get(device.architecture)
    return share * device.half_tflops if share else device.achievable_half_tflops
