"""What a step is bound by."""

from dataclasses import replace

import numpy as np
import pytest

from htk.whatif.bound_by import launch_bound, under_a_wave
from tests.htk.whatif.small_step_model import Act, period, small_scene

STEP = tuple(Act(f"mm {n}", 100_000, blocks=blocks) for n, blocks in enumerate((0.5, 0.6, 4.0)))


def test_a_step_whose_host_takes_no_time_is_not_launch_bound() -> None:
    scene = small_scene(STEP)
    assert not launch_bound(scene, period(scene))


def test_a_step_that_gets_longer_with_its_host_is() -> None:
    scene = small_scene(STEP)
    on_cpu = scene.graph.edges("call", "host_gap", "handover")
    assert on_cpu.any()
    slow = replace(scene, weight=np.where(on_cpu, 500_000, scene.weight))
    assert launch_bound(slow, period(slow))


@pytest.mark.parametrize(
    ("each", "few"), [(1.0, True), (1.8, False), (0.2, True), (5.0, False)]
)  # of the recorded samples
def test_products_that_do_not_fill_the_gpu_once(each: float, few: bool) -> None:
    """Two of three equally long ones have half a wave."""
    assert under_a_wave(small_scene(STEP), each) is few


def test_without_blocks_nothing_is_said() -> None:
    assert not under_a_wave(small_scene((Act("mm", 100_000),)), 1.0)
