"""How sure a plan says that it is."""

import math
from dataclasses import replace

import pytest

from htk.physics.hardware import gpu
from htk.physics.network import find_fabric
from htk.physics.presets import decoder
from htk.planning.plan.certainty import estimate_plan_certainty, list_plan_traits
from htk.planning.plan.job import PlannedJob
from htk.planning.plan.step import plan

USUAL = PlannedJob(decoder("llama3-70b"), gpu("h100"), nodes=8, tensor_parallel=4,
                   pipeline_parallel=4, strategy="zero1", precision="fp8")  # fmt: skip


def test_what_was_checked_is_said_with_how_often() -> None:
    answer = estimate_plan_certainty(USUAL)
    assert answer.unchecked == ()
    assert [words.split(" (")[0] for words in answer.checked] == list(list_plan_traits(USUAL))
    assert all("jobs of" in words for words in answer.checked)


def test_what_was_never_checked_is_said_and_widens() -> None:
    sure = estimate_plan_certainty(USUAL)
    for other, words in (
        ({"gpu": gpu("mi300x")}, "cdna3 GPUs"),
        ({"offload": "optimizer"}, "offload of optimizer"),
        ({"schedule": "zero_bubble"}, "zero-bubble schedules"),
        ({"optimizer": "galore"}, "optimizer galore"),
        ({"pod_gpus": 32}, "a network other than the catalogue's"),
    ):
        unsure = estimate_plan_certainty(replace(USUAL, **other))
        assert words in unsure.unchecked
        assert unsure.sigma > sure.sigma


def test_it_grows_beyond_the_gpus_that_were_checked() -> None:
    large, larger = (estimate_plan_certainty(replace(USUAL, nodes=n)) for n in (4096, 16384))
    assert estimate_plan_certainty(USUAL).sigma < large.sigma < larger.sigma
    assert any("GPUs" in words and "more than" in words for words in large.unchecked)


def test_an_interval_is_as_wide_as_its_sigma_says() -> None:
    p = plan(USUAL)
    low, high = p.interval(90)
    assert low * high == p.step_ns**2 or math.isclose(low * high, p.step_ns**2)
    assert math.isclose(high / p.step_ns, p.certainty.factor(90))
    near = p.interval(50)
    assert low < near[0] < p.step_ns < near[1] < high


def test_a_network_makes_unsure_what_is_sent_over_it() -> None:
    slow = replace(USUAL, fabric=find_fabric("roce-400"))
    usual = estimate_plan_certainty(USUAL).sigma
    assert estimate_plan_certainty(slow, 0.1).sigma ** 2 - usual**2 == pytest.approx(0.03**2)
    assert estimate_plan_certainty(slow, 0.5).sigma > estimate_plan_certainty(slow, 0.1).sigma
    assert (
        estimate_plan_certainty(replace(USUAL, fabric=find_fabric("infiniband-ndr"))).sigma == usual
    )
