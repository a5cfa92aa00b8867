"""Another GPU: classes of kernels by what bounds them."""

from dataclasses import replace
from pathlib import Path

import pytest

import htk
from htk.base.errors import UsageError
from htk.physics.site_rates import NARROWED, SiteRates
from htk.traces.trace.opening import open_trace
from htk.whatif.baseline import build_baseline
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


# Fastest products in 16 bits that stas00/ml-engineering measured: 271.2 and 794.5 TFLOP/s.
PRODUCTS = 271.2 / 794.5
# Attention: FlashAttention-2 reaches 50 to 73 % of 312 TFLOP/s on A100 (arXiv:2307.08691), on H100
# 35 % of 989, FlashAttention-3 up to 740 TFLOP/s (arXiv:2407.08608).
LEAST_ATTENTION, MOST_ATTENTION = 0.5 * 312 / 740, 0.73 * 312 / (0.35 * 989)


def test_from_a100_to_h100() -> None:
    """Memory 2000 to 3350, links 300 to 450 and 25 to 50."""
    model = small_model(STEP, gpus_per_node=4, device_name="NVIDIA A100-SXM4-80GB")
    changed = hardware.apply(model, "h100")
    products = (length(changed, "mm") - 2500) / 100_000
    assert products == pytest.approx(PRODUCTS, rel=0.12)
    assert length(changed, "norm") == round(2500 + 100_000 * 2000 / 3350)
    assert length(changed, "inside") == round(20_000 + 100_000 * 300 / 450)
    assert length(changed, "outside") == 20_000 + 50_000
    assert changed.low_confidence


def test_attention_gains_by_what_was_measured_on_either() -> None:
    attends = Act("flash", 102_500, family="attention")
    model = small_model((attends,), device_name="NVIDIA A100-SXM4-80GB")
    faster = (length(hardware.apply(model, "h100"), "flash") - 2500) / 100_000
    assert LEAST_ATTENTION < faster < MOST_ATTENTION
    there = small_model((attends,), device_name="NVIDIA H100 80GB HBM3")
    slower = (length(hardware.apply(there, "a100-80gb"), "flash") - 2500) / 100_000
    assert slower == pytest.approx(1 / faster, rel=0.01)


@pytest.mark.parametrize(
    "model",
    ("Qwen_Qwen1.5-0.5B-Chat__1016005", "facebook_timesformer-base-finetuned-k400__1016002"),
)
def test_products_on_another_vendors_gpu_are_those_recorded_there(model: str, shared: Path) -> None:
    """One model on an H100 and on an MI300X, whose kernels the atlas does not hold."""
    h100, mi300x = (
        htk.open(shared / "traces/tracelens" / folder / f"{model}.json.gz")
        for folder in ("h100", "mi300")
    )
    start = build_baseline(open_trace(shared / f"traces/tracelens/h100/{model}.json.gz").tables)
    changed = hardware.apply(start.model, "mi300x")
    large = start.model.facts.op.isin("aten::mm", "aten::addmm")
    large &= start.model.lengths() > 20_000
    predicted = changed.lengths()[large].sum() / start.model.lengths()[large].sum()
    recorded = {
        device: sum(
            row["device_ns"]
            for row in trace.kernel_gap(n=0)
            if row["name"] in ("aten::mm", "aten::addmm")
        )
        for device, trace in (("h100", h100), ("mi300x", mi300x))
    }
    assert predicted == pytest.approx(recorded["mi300x"] / recorded["h100"], rel=0.3)


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
    products = length(usual, "mm") - 2500
    assert length(here, "mm") == pytest.approx(2500 + products * 0.8 / 0.9, abs=1)
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
