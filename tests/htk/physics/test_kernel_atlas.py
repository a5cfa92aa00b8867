"""The atlas of measured kernels: tables that come back as they were, and what lies between."""

import numpy as np
import pytest

from htk.physics.hardware import gpu
from htk.physics.kernel_atlas import (
    BEST_STEP,
    BEYOND,
    FILE,
    MEASURED,
    OPERATIONS,
    SHAPE,
    SIZE,
    STEP,
    Table,
    pack_table,
    unpack_table,
)
from htk.physics.kernel_time import FORMULA, SIBLING, estimate_kernels


def _plane() -> Table:
    """Return a table in which the logarithm over the law is a plane: 0.1 log n − 0.2 log k +
    0.05 log m."""
    sides = 2.0 ** np.arange(7, 13)
    shapes = np.array([(n, k) for n in sides for k in sides])
    sizes = 4.0 ** np.arange(2, 8)
    typical = (0.1 * np.log(shapes[:, :1]) - 0.2 * np.log(shapes[:, 1:])) + 0.05 * np.log(sizes)
    measured = np.ones(typical.shape, np.bool_)
    measured[0, 0] = False
    return Table(OPERATIONS["matmul"], shapes, sizes, typical, 0 * typical - 0.3, measured)


def test_a_table_comes_back_within_a_step() -> None:
    table = _plane()
    back = unpack_table("matmul", pack_table(table))
    assert np.array_equal(back.shapes, table.shapes)
    assert np.array_equal(back.sizes, table.sizes)
    assert np.array_equal(back.measured, table.measured)
    assert np.abs(back.typical - table.typical).max() <= STEP / 2 + 1e-9
    assert np.abs(back.best - table.best).max() <= BEST_STEP / 2 + 1e-9


def test_what_lies_between_is_on_the_plane() -> None:
    table = _plane()
    asked = np.array([(128, 128), (256, 512), (256, 512), (300, 700), (300, 700)], np.float64)
    sizes = np.array([16, 64, 100, 64, 9e9])
    reading = table.read(asked, sizes)
    told = 0.1 * np.log(asked[:, 0]) - 0.2 * np.log(asked[:, 1]) + 0.05 * np.log(sizes)
    assert reading.typical[:4] == pytest.approx(told[:4], abs=0.01)
    assert reading.nearness.tolist() == [SIZE, MEASURED, SIZE, SHAPE, BEYOND]
    assert reading.best == pytest.approx(np.full(5, -0.3))


def test_the_file_is_small() -> None:
    assert FILE.stat().st_size < 5e6


@pytest.mark.parametrize(
    ("name", "near"), [("h100", MEASURED), ("h800", SIBLING), ("v100-32gb", FORMULA)]
)
def test_a_gpu_that_was_not_measured_takes_what_is_built_most_like_it(name: str, near: int) -> None:
    sizes = {"m": np.array([8192.0]), "n": np.array([4096.0]), "k": np.array([4096.0])}
    told = estimate_kernels(gpu(name), "matmul", "bf16", sizes)
    assert told.nearness.tolist() == [near]
    peak = 2 * 8192 * 4096 * 4096 / gpu(name).half_tflops / 1e3
    assert peak < told.best[0] <= told.expected[0] < 3 * peak
    assert told.low[0] < told.expected[0] < told.high[0]


def test_an_h100_takes_as_long_as_its_kernels_alone() -> None:
    """Kernels that the profiler timed on another H100, which taught nothing, 10 µs and more."""
    recorded = [
        (64, 4096, 4096, 14_528), (512, 6144, 4096, 34_592), (4096, 4096, 4096, 172_530),
        (16, 8192, 8192, 47_344), (8192, 8192, 8192, 1_427_548), (128, 6144, 4096, 20_752),
    ]  # fmt: skip
    m, n, k, ns = np.array(recorded, np.float64).T
    told = estimate_kernels(gpu("h100"), "matmul", "bf16", {"m": m, "n": n, "k": k})
    assert np.median(np.abs(told.expected / ns - 1)) < 0.08
