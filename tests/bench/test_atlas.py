"""The maker of the atlas: gaps are filled from both sides and from neighbours."""

import hashlib
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("pandas")
from bench.atlas.distil import MeasuredGrid, _fill_grid, _interpolate_beside
from bench.atlas.judge import Misses, judge_misses, learn_intervals, leave_out
from htk.physics.kernel_atlas import FILE, SIZE
from htk.physics.kernel_time import BASES


def test_a_gap_is_filled_from_the_line_between_its_sides() -> None:
    values = np.array([[1.0, np.nan, 5.0, np.nan, 6.0]])
    logs = np.array([0.0, 1.0, 2.0, 3.0, 4.0])
    line = _interpolate_beside(values, logs)
    assert line.tolist() == [[5.0, 3.0, 3.5, 5.5, 5.0]]


def test_a_step_that_neighbours_share_is_told_by_them() -> None:
    """Every row jumps at the same size: the line between the sides misses that, neighbours not."""
    randoms = np.random.default_rng(0)
    jumps = randoms.normal(0, 0.1, 40)
    values = randoms.normal(0, 1, (60, 1)) + jumps
    held = randoms.random(values.shape) < 0.1
    near = (np.arange(60)[:, None] + np.arange(1, 7)) % 60
    shown = np.where(held, np.nan, values)
    logs = np.arange(40.0)
    filled = _fill_grid(shown, logs, near)
    line = _interpolate_beside(shown, logs)
    assert np.abs(filled - values)[held].mean() < 0.5 * np.abs(line - values)[held].mean()
    assert np.array_equal(filled[~held], values[~held])


def test_sizes_left_out_are_judged_by_others() -> None:
    """A law that holds exactly is missed by nothing."""
    shapes = np.array([(n, k) for n in (64.0, 128.0, 256.0) for k in (64.0, 128.0)])
    flat = np.full((6, 30), 0.25)
    sizes = 2.0 ** np.arange(30)
    grid = MeasuredGrid("h100", "matmul", "bf16", shapes, sizes, flat, 0 * flat, 1e6 * (flat + 1))
    misses = [part for part in leave_out([grid]) if part.nearness == SIZE]
    assert sum(len(part.log) for part in misses) > 10
    assert max(np.abs(part.log).max() for part in misses) < 1e-12


def test_the_atlas_and_its_page_are_of_one_run() -> None:
    page = (Path(__file__).parents[2] / "docs/kernel_scorecard.md").read_text(encoding="utf-8")
    assert hashlib.sha256(FILE.read_bytes()).hexdigest() in page


def test_intervals_that_few_kernels_teach_hold_as_often_as_they_say() -> None:
    """Forty kernels teach, over and over: nine of ten others lie within, not fewer."""
    randoms = np.random.default_rng(4)
    held = []
    for _ in range(40):
        taught, judged = (
            Misses("all_reduce", near, "h100", "bf16", np.full(40, 2e4), log, np.full(40, flag))
            for near, flag, log in (
                (SIZE, False, randoms.normal(0, 0.1, 40)), (SIZE, True, randoms.normal(0, 0.1, 40))
            )
        )  # fmt: skip
        intervals = learn_intervals([taught, judged])
        assert set(intervals["all_reduce"]) == {"bf16"}
        assert len(intervals["all_reduce"]["bf16"]) == len(BASES)
        held.append(judge_misses([taught, judged], intervals)["held"].item())
    assert 0.88 < np.mean(held) < 0.94
