"""Kernels that read and compute."""

import pytest

from htk.physics.decoder import Decoder
from htk.physics.hardware import gpu
from htk.physics.kernel_time import partly_hidden
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
