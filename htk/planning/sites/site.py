"""What is known of a site: rates of its GPUs and links, and how its steps compare with plans.

A measured step tells two things of a plan's error: what all jobs of the site have in common, and
how much they differ from each other. Both are normal on the logarithm; the plan's own uncertainty
is the prior of both. So one measured step moves the next plan a part of the way and narrows it
little; many steps that agree narrow it to their own spread, and steps that do not agree widen it.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from htk.base.core.humanize import pluralize_count
from htk.physics.hardware import Gpu
from htk.physics.kernel_time import LARGE_PRODUCTS
from htk.physics.network import ACHIEVED, Fabric
from htk.physics.site_rates import NARROWED, WITHIN, SiteByGpu, SiteRates
from htk.planning.plan.certainty import Certainty, estimate_plan_certainty
from htk.planning.plan.job import PlannedJob
from htk.planning.plan.step import Parts, Plan

_PRIOR_STEPS = 4.0  # measured steps that the prior of the spread is worth
_OF_MEMORY = 0.8  # of the memory's rate, that a plan expects of kernels


@dataclass(frozen=True)
class Rate:
    """A measured rate over what a plan expects of it."""

    ratio: float
    recordings: int


@dataclass(frozen=True)
class StepFactor:
    """Measured steps over plans of them: mean and spread of the logarithm."""

    log_mean: float
    log_spread: float  # of single steps, one standard deviation; 0 of one step
    steps: int


@dataclass(frozen=True)
class GpuAtSite:
    """What recordings and steps on one kind of GPU told; None: nothing did."""

    products: Rate | None = None
    memory: Rate | None = None
    links: Rate | None = None
    adapters: Rate | None = None
    steps: StepFactor | None = None

    @property
    def rates(self) -> SiteRates:
        """The ratios alone."""
        each = (self.products, self.memory, self.links, self.adapters)
        return SiteRates(*(None if rate is None else rate.ratio for rate in each))


@dataclass(frozen=True)
class Site:
    gpus: Mapping[str, GpuAtSite] = field(default_factory=dict)

    def find_gpu(self, gpu: Gpu) -> GpuAtSite:
        return self.gpus.get(gpu.name, GpuAtSite())

    @property
    def rates(self) -> SiteByGpu:
        """Return the rates that recordings showed, for what-ifs."""
        return {name: figures.rates for name, figures in self.gpus.items()}


def on_site(job: PlannedJob, figures: GpuAtSite) -> PlannedJob:
    """Return the job with the site's rates, but for what the job states itself."""
    gpu = job.gpu
    if figures.products is not None:
        gpu = replace(
            gpu,
            achievable_bf16_tflops=gpu.achievable_half_tflops * figures.products.ratio,
            achievable_fp8_tflops=None
            if gpu.achievable_fp8_tflops is None
            else gpu.achievable_fp8_tflops * figures.products.ratio,
        )
    if figures.memory is not None:
        gpu = replace(gpu, memory_gbps=gpu.memory_gbps * figures.memory.ratio)
    job = replace(job, gpu=gpu)
    if figures.links is not None and job.link_gbps is None:
        job = replace(job, link_gbps=gpu.scale_up_gbps * figures.links.ratio)
    if figures.adapters is not None and job.fabric is None:
        job = replace(job, fabric=Fabric(gpu.scale_out_gbps * figures.adapters.ratio))
    return job


def expected_products(gpu: Gpu) -> float:
    """Return the TFLOP/s that a plan expects of large 16-bit products."""
    return LARGE_PRODUCTS * gpu.achievable_half_tflops


def expected_memory(gpu: Gpu) -> float:
    """Return the GB/s that a plan expects of kernels that memory bounds."""
    return _OF_MEMORY * gpu.memory_gbps


def expected_pace(gpu: Gpu, across: bool) -> float:
    """Return the ns a byte that a plan expects of a GPU's links, or its share of adapters."""
    return 1 / (ACHIEVED * (gpu.scale_out_gbps if across else gpu.scale_up_gbps))


def step_factor(log_ratios: Sequence[float]) -> StepFactor:
    """Return mean and spread of measured over planned steps."""
    count = len(log_ratios)
    mean = sum(log_ratios) / count
    square = sum((value - mean) ** 2 for value in log_ratios)
    return StepFactor(mean, math.sqrt(square / (count - 1)) if count > 1 else 0.0, count)


def compute_posterior(factor: StepFactor, prior_sigma: float) -> tuple[float, float]:
    """Return by what logarithm a plan moves at this site, and its standard deviation then."""
    within = WITHIN * prior_sigma**2
    common = prior_sigma**2 - within
    freedom = factor.steps - 1
    spread = (_PRIOR_STEPS * within + freedom * factor.log_spread**2) / (_PRIOR_STEPS + freedom)
    precision = 1 / common + factor.steps / spread
    moved = factor.log_mean * factor.steps / spread / precision
    return moved, math.sqrt(spread + 1 / precision)


class PlanAtSite(Plan):
    """A plan with the rates of a site, moved by its measured steps, and as sure as they make it."""

    def __init__(self, job: PlannedJob, site: Site) -> None:
        self.figures = site.find_gpu(job.gpu)
        super().__init__(on_site(job, self.figures))
        self._prior = estimate_plan_certainty(
            job
        )  # what a site measured is no network as described
        self._moved, self._sigma = 0.0, self._prior.sigma
        if self.figures.products is not None:
            self._sigma *= NARROWED
        if self.figures.steps is not None:
            self._moved, self._sigma = compute_posterior(self.figures.steps, self._sigma)

    @cached_property
    def parts(self) -> Parts:
        parts = super().parts
        factor = math.exp(self._moved)
        return Parts(**{name: factor * value for name, value in vars(parts).items()})

    @cached_property
    def certainty(self) -> Certainty:
        return replace(self._prior, sigma=self._sigma, checked=(*self._prior.checked, *self.words))

    @property
    def words(self) -> list[str]:
        """Return in words which of the site's rates went into the plan."""
        figures = self.figures
        words = []
        for name in ("products", "memory", "links", "adapters"):
            rate: Rate | None = getattr(figures, name)
            if rate is not None:
                words.append(
                    f"this site's {name} ({rate.ratio:.2f} of what is usual, "
                    f"{pluralize_count(rate.recordings, 'recording')})"
                )
        if figures.steps is not None:
            words.append(
                f"{pluralize_count(figures.steps.steps, 'measured step')} of this site "
                f"({math.exp(figures.steps.log_mean):.2f} times their plans)"
            )
        if not words:
            words.append(f"nothing of this site: it has no figures of {self.job.gpu.name}")
        return words
