"""What a step is bound by."""

from dataclasses import replace

import numpy as np
import pytest

from htk.whatif.bound_by import find_host_share, launch_bound, under_a_wave
from tests.htk.whatif.small_step_model import Act, period, small_model

STEP = tuple(Act(f"mm {n}", 100_000, blocks=blocks) for n, blocks in enumerate((0.5, 0.6, 4.0)))


def test_a_step_whose_host_takes_no_time_is_not_launch_bound() -> None:
    model = small_model(STEP)
    assert not launch_bound(model, period(model))


def test_a_step_that_gets_longer_with_its_host_is() -> None:
    model = small_model(STEP)
    on_cpu = model.graph.edges("call", "host_gap", "handover")
    assert on_cpu.any()
    slow = replace(model, weight=np.where(on_cpu, 500_000, model.weight))
    assert launch_bound(slow, period(slow))


@pytest.mark.parametrize(
    ("each", "few"), [(1.0, True), (1.8, False), (0.2, True), (5.0, False)]
)  # of the recorded samples
def test_products_that_do_not_fill_the_gpu_once(each: float, few: bool) -> None:
    """Two of three equally long ones have half a wave."""
    assert under_a_wave(small_model(STEP), each) is few


def test_without_blocks_nothing_is_said() -> None:
    assert not under_a_wave(small_model((Act("mm", 100_000),)), 1.0)


@pytest.mark.parametrize("host_ns", [0, 500_000])
def test_time_that_an_edit_adds_to_the_step_follows_the_host_as_the_rest_does(host_ns: int) -> None:
    model = small_model(STEP)
    on_cpu = model.graph.edges("call", "host_gap", "handover")
    model = replace(model, weight=np.where(on_cpu, host_ns, model.weight))
    longer = model.add_step_time("micro-batches", 3 * period(model))
    shares = [find_host_share(m, period(m)) for m in (model, longer)]
    assert shares[1] == pytest.approx(shares[0], abs=0.02)
    assert launch_bound(longer, period(longer)) is bool(host_ns)
