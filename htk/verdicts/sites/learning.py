"""From recordings and measured steps to a site's figures."""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from htk.answers.ask import ask_trace
from htk.base.columns.arrow import read_numbers
from htk.base.columns.types import Floats, Mask
from htk.base.errors import HtkError
from htk.physics.detected import common_device
from htk.physics.hardware import Gpu
from htk.planning.plan.job import PlannedJob
from htk.planning.plan.step import Plan
from htk.planning.sites.site import (
    GpuAtSite,
    Rate,
    Site,
    expected_memory,
    expected_pace,
    expected_products,
    on_site,
    step_factor,
)
from htk.traces.trace.trace import Trace
from htk.whatif.baseline import build_baseline
from htk.whatif.network_tiers import link_tier
from htk.whatif.step_model import StepModel
from htk.whatif.transfers import gpus_of_a_node

_LEAST_NS = 1e6  # of GPU time that a rate is read from
_LEAST_FLOPS = 1e11  # of a product: some waves on any GPU
_HALF = ("BFloat16", "Half", "Float16", "bfloat16", "float16")


@dataclass(frozen=True)
class MeasuredStep:
    """A described job and its step without the profiler."""

    job: PlannedJob
    step_ns: float


@dataclass(frozen=True)
class RecordedRates:
    """What one recording shows of its GPU, each over what a plan expects; None: nothing."""

    gpu: Gpu
    products: float | None = None
    memory: float | None = None
    links: float | None = None
    adapters: float | None = None


def recorded_rates(trace: Trace) -> RecordedRates | None:
    """Return the rates of a recording; None: the catalogue does not hold its GPU."""
    device = common_device(trace.tables["ranks"])
    if device is None or device.gpu is None:
        return None
    rates = _kernel_rates(trace, RecordedRates(device.gpu))
    try:
        start = build_baseline(trace.tables)
    except HtkError:  # no step that repeats: kernels tell their rates all the same
        return rates
    model = start.model
    return replace(
        rates,
        links=_compare_pace(model, device.gpu, False),
        adapters=_compare_pace(model, device.gpu, True),
    )


def _kernel_rates(trace: Trace, rates: RecordedRates) -> RecordedRates:
    """Rates of large products in 16 bits, and of what memory bounds, over all its GPU time.

    Each product is held against what a plan expects of its own shape; small ones, which fill no
    wave, say little of the site.
    """
    try:
        rows = ask_trace(trace, "roofline", n=0).table
    except HtkError:
        return rates
    family = np.array(rows["family"].to_pylist(), object)
    bound = np.array(rows["bound"].to_pylist(), object)
    half = np.array([any(kind in (t or "") for kind in _HALF) for t in rows["types"].to_pylist()])
    calls = read_numbers(rows["count"], 0)
    ns = read_numbers(rows["device_ns"], 0)
    flops = read_numbers(rows["flops_per_call"], np.nan)
    moved = read_numbers(rows["bytes_per_call"], np.nan)
    by_memory = moved / expected_memory(rates.gpu)
    by_product = flops / (expected_products(rates.gpu) * 1e3) + by_memory

    def compute_ratio(expected: Floats, chosen: Mask) -> float | None:
        chosen = chosen & ~np.isnan(expected) & (ns > 0)
        spent = float(ns[chosen].sum())
        return None if spent < _LEAST_NS else float((expected * calls)[chosen].sum()) / spent

    large = (family == "gemm") & half & (flops >= _LEAST_FLOPS)
    return replace(
        rates,
        products=compute_ratio(by_product, np.asarray(large, bool)),
        memory=compute_ratio(by_memory, np.asarray((bound == "memory") & (family != "gemm"), bool)),
    )


def _compare_pace(model: StepModel, gpu: Gpu, across: bool) -> float | None:
    """Return bytes a second of transfers within a node, or across, over what is usual."""
    pace = link_tier(model, across).ns_per_byte
    if pace is None:
        return None
    if across:  # of a node's adapters together
        pace *= gpus_of_a_node(model)
    return expected_pace(gpu, across) / pace


def learn_site(recordings: Sequence[RecordedRates], steps: Sequence[MeasuredStep]) -> Site:
    """Return the site: rates by the median of its recordings, steps over plans with those rates."""
    by_gpu: dict[str, list[RecordedRates]] = defaultdict(list)
    for recording in recordings:
        by_gpu[recording.gpu.name].append(recording)
    gpus = {name: _combine_rates(rows) for name, rows in by_gpu.items()}
    ratios: dict[str, list[float]] = defaultdict(list)
    for measured in steps:
        name = measured.job.gpu.name
        planned = Plan(on_site(measured.job, gpus.get(name, GpuAtSite())))
        ratios[name].append(math.log(measured.step_ns / planned.step_ns))
    for name, logs in ratios.items():
        gpus[name] = replace(gpus.get(name, GpuAtSite()), steps=step_factor(logs))
    return Site(gpus)


def _combine_rates(rows: Sequence[RecordedRates]) -> GpuAtSite:
    def find_median(name: str) -> Rate | None:
        values = [v for row in rows if (v := getattr(row, name)) is not None]
        return Rate(float(np.median(values)), len(values)) if values else None

    return GpuAtSite(
        find_median("products"),
        find_median("memory"),
        find_median("links"),
        find_median("adapters"),
    )
