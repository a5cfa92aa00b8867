"""What a site's own figures do to plans."""

import math
from dataclasses import replace

import numpy as np
import pytest

from htk.physics.hardware import gpu
from htk.physics.presets import decoder
from htk.physics.site_rates import WITHIN
from htk.planning.plan.job import PlannedJob
from htk.planning.plan.step import Plan
from htk.planning.sites.site import (
    GpuAtSite,
    PlanAtSite,
    Rate,
    Site,
    StepFactor,
    compute_posterior,
    on_site,
    step_factor,
)

DECODER = decoder("llama2-7b")
A100 = gpu("a100-80gb")


def test_one_step_moves_a_plan_a_part_of_the_way_and_many_all_of_it() -> None:
    """A prior of 0.2, of which 0.6 of the variance differs from job to job."""
    once = compute_posterior(StepFactor(0.3, 0.0, 1), 0.2)
    assert once[0] == pytest.approx(0.3 * (1 - WITHIN))
    many = compute_posterior(StepFactor(0.3, 0.05, 100), 0.2)
    assert many[0] == pytest.approx(0.3, rel=0.01) and 0.05 < many[1] < 0.07
    assert many[1] < once[1] < 0.2


def test_steps_that_do_not_agree_widen() -> None:
    assert compute_posterior(StepFactor(0.0, 0.5, 20), 0.2)[1] > 0.4


def test_mean_and_spread_are_those_of_the_logarithms() -> None:
    factor = step_factor([math.log(1.1), math.log(1.2), math.log(1.3)])
    assert math.exp(factor.log_mean) == pytest.approx((1.1 * 1.2 * 1.3) ** (1 / 3))
    assert factor.log_spread == pytest.approx(np.std(np.log([1.1, 1.2, 1.3]), ddof=1))
    assert step_factor([0.1]).log_spread == 0


def test_what_the_job_states_itself_stays() -> None:
    known = GpuAtSite(Rate(0.9, 1), Rate(0.8, 1), Rate(0.7, 1), Rate(0.6, 1))
    job = PlannedJob(DECODER, A100, 2, 8)
    here = on_site(job, known)
    assert here.gpu.achievable_half_tflops == pytest.approx(0.9 * A100.achievable_half_tflops)
    assert here.gpu.memory_gbps == pytest.approx(0.8 * A100.memory_gbps)
    assert here.link_gbps == pytest.approx(0.7 * A100.scale_up_gbps)
    assert here.fabric is not None
    assert here.fabric.gbps == pytest.approx(0.6 * A100.scale_out_gbps)
    assert on_site(replace(job, link_gbps=50.0), known).link_gbps == 50.0
    assert Plan(here).mfu < Plan(job).mfu  # of the same peak


def test_parts_of_a_plan_still_add_up() -> None:
    job = PlannedJob(DECODER, A100, 2, 8)
    here = PlanAtSite(job, Site({"a100-80gb": GpuAtSite(steps=StepFactor(0.2, 0.03, 9))}))
    assert here.parts.total == here.step_ns > 1.1 * Plan(job).step_ns
    assert any("9 measured steps" in words for words in here.certainty.checked)
    other = PlanAtSite(replace(job, gpu=gpu("h100")), Site())
    assert other.certainty.sigma == Plan(replace(job, gpu=gpu("h100"))).certainty.sigma
    assert any("nothing of this site" in words for words in other.certainty.checked)
