"""Another GPU: classes of kernels by what bounds them."""

from dataclasses import replace

import pytest

from htk.base.errors import UsageError
from htk.physics.site_rates import NARROWED, SiteRates
from htk.whatif.edits import hardware
from tests.htk.whatif.small_step_model import Act, comm, length, small_model

STEP = (
    Act("mm", 102_500),
    Act("norm", 102_500, family="norm"),
    comm("inside", 120_000, "all_reduce", group=4, per_node=4),
    comm("outside", 120_000, "all_gather", group=8, per_node=4),
    comm("short", 20_000, "all_reduce", group=4, per_node=4),
    comm("short too", 20_000, "all_gather", group=4, per_node=4),
)


def test_from_a100_to_h100() -> None:
    """Products 271.2 to 794.5, memory 2000 to 3350, links 300 to 450 and 25 to 50."""
    model = small_model(STEP, gpus_per_node=4, device_name="NVIDIA A100-SXM4-80GB")
    found = hardware.apply(model, "h100")
    assert length(found, "mm") == round(2500 + 100_000 * 271.2 / 794.5)
    assert length(found, "norm") == round(2500 + 100_000 * 2000 / 3350)
    assert length(found, "inside") == round(20_000 + 100_000 * 300 / 450)
    assert length(found, "outside") == 20_000 + 50_000
    assert found.low_confidence


def test_attention_gains_by_what_its_kernels_reach_on_either() -> None:
    """70 % of 312 on A100, 35 % of 989 on H100."""
    attends = Act("flash", 102_500, family="attention")
    model = small_model((attends,), device_name="NVIDIA A100-SXM4-80GB")
    faster = length(hardware.apply(model, "h100"), "flash")
    assert faster == round(2500 + 100_000 * (0.7 * 312) / (0.35 * 989))
    there = small_model((attends,), device_name="NVIDIA H100 80GB HBM3")
    slower = length(hardware.apply(there, "a100-80gb"), "flash")
    assert slower == round(2500 + 100_000 * (0.35 * 989) / (0.7 * 312))


def test_the_recorded_one_changes_nothing() -> None:
    model = small_model(STEP, device_name="NVIDIA A100-SXM4-80GB")
    assert (hardware.apply(model, "a100-80gb").weight == model.weight).all()


def test_unknown_ones_are_said() -> None:
    with pytest.raises(UsageError, match="catalogue"):
        hardware.apply(small_model(STEP), "h100")


def test_precisions_are_those_of_the_new_gpu() -> None:
    model = small_model(STEP, gpus_per_node=4, device_name="NVIDIA A100-SXM4-80GB")
    found = hardware.apply(model, "h100")
    assert found.device_name == "NVIDIA H100 80GB HBM3"
    assert found.peak == pytest.approx(989 / 312)


def test_a_site_that_measured_both_scales_what_it_measured_and_narrows() -> None:
    """Products at 0.8 and 0.9 of the usual, adapters at 0.5 and 1.0; memory of one alone, which
    tells nothing of the other."""
    model = small_model(STEP, gpus_per_node=4, device_name="NVIDIA A100-SXM4-80GB")
    rates = {
        "a100-80gb": SiteRates(products=0.8, memory=0.7, adapters=0.5),
        "h100": SiteRates(products=0.9, links=0.6, adapters=1.0),
    }
    usual, here = hardware.apply(model, "h100"), hardware.apply(replace(model, site=rates), "h100")
    assert length(here, "mm") == round(2500 + 100_000 * (271.2 * 0.8) / (794.5 * 0.9))
    assert length(here, "norm") == length(usual, "norm")
    assert length(here, "inside") == length(usual, "inside")
    assert length(here, "outside") == 20_000 + 25_000
    assert here.spread["compute"] == usual.spread["compute"], "memory is as unsure as it was"
    assert any("0.80 and 0.90" in words for words in here.assumptions)
    rates["h100"] = replace(rates["h100"], memory=0.7)
    rates["a100-80gb"] = replace(rates["a100-80gb"], links=0.6)
    sure = hardware.apply(replace(model, site=rates), "h100")
    assert length(sure, "norm") == length(usual, "norm"), "the same share of both"
    for cause in ("compute", "communication"):
        assert sure.spread[cause] == pytest.approx(NARROWED * usual.spread[cause])
    assert usual.assumptions == hardware.apply(replace(model, site={}), "h100").assumptions
