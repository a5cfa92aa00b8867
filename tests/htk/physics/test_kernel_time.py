"""Kernels that read and compute."""

from itertools import pairwise

import numpy as np
import pytest

from htk.physics.decoder import Decoder
from htk.physics.hardware import gpu
from htk.physics.kernel_time import estimate_kernels, partly_hidden, time_kernel
from htk.planning.serving.formats import WEIGHTS
from htk.planning.serving.iteration import IterationWork, ServerCompute
from htk.planning.serving.server import Server
from htk.whatif.served_iteration import Bounds

H100 = gpu("h100")


def test_neither_hides_the_other_where_both_take_as_long() -> None:
    assert partly_hidden(3.0, 4.0) == 5.0 == partly_hidden(4.0, 3.0)
    assert partly_hidden(7.0, 0.0) == 7.0 == partly_hidden(0.0, 7.0)
    assert partly_hidden(1.0, 100.0) == pytest.approx(100.0, rel=1e-4)


def test_plans_and_what_ifs_scale_products_alike() -> None:
    """From 32 to 512 requests of a wide layer: what is beside weights and products is small."""
    wide = Decoder("wide", 1, 32_768, 256, 8, 131_072, 1_024, False, biases=False)
    compute = ServerCompute(Server(wide, H100))
    few, many = (
        compute.iteration(IterationWork(requests=n, context=1)).products for n in (32, 512)
    )
    ratio = [Bounds(H100).products(n, WEIGHTS["bf16"]) for n in (32, 512)]
    assert many / few == pytest.approx(ratio[1] / ratio[0], rel=0.05)
    assert many / few > 2.0  # the longer of the two alone would give 1.88


@pytest.mark.parametrize(
    ("op", "number_format", "shape"),
    [("matmul", "fp8", (7168.0, 8192.0)),
     ("experts", "bf16/balanced", (4096.0, 1536.0, 4.0, 8.0, 128.0, 1.0)),
     ("all_reduce", "bf16", (8.0,))],
)  # fmt: skip
def test_more_takes_longer_but_less_than_in_proportion(
    op: str, number_format: str, shape: tuple[float, ...]
) -> None:
    sizes = np.unique(np.geomspace(1, 1e9, 300).round()).tolist()
    times = [time_kernel(H100, op, number_format, size, shape) for size in sizes]
    for (small, short), (large, long) in pairwise(zip(sizes, times, strict=True)):
        assert short <= long * (1 + 1e-9)
        assert long / short <= large / small * (1 + 1e-9)


def test_what_is_read_of_a_smooth_table_is_what_it_holds() -> None:
    sizes = {"m": np.array([64.0]), "n": np.array([4096.0]), "k": np.array([4096.0])}
    typical = estimate_kernels(H100, "matmul", "bf16", sizes)
    read = time_kernel(H100, "matmul", "bf16", 64, (4096, 4096))
    assert read == pytest.approx(typical.expected[0], rel=0.05)
    fastest = time_kernel(H100, "matmul", "bf16", 64, (4096, 4096), fastest=True)
    assert fastest == pytest.approx(typical.best[0], rel=0.05) and fastest < read
