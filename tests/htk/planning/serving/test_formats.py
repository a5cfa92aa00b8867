"""Bytes of an element by format."""

import pytest

from htk.base.errors import UsageError
from htk.physics.hardware import gpu
from htk.planning.serving.formats import kv_element_bytes, measured_format, weight_format


@pytest.mark.parametrize(
    ("name", "bits"),
    [("bf16", 16), ("fp8", 8), ("int8", 8), ("awq", 4 + 20 / 128), ("int4-g32", 4 + 20 / 32),
     ("mxfp4", 4 + 8 / 32), ("nvfp4", 4 + 8 / 16)],
)  # fmt: skip
def test_bits_of_a_weight_with_its_scales(name: str, bits: float) -> None:
    assert 8 * weight_format(name, gpu("b200")).weight_bytes == pytest.approx(bits)


def test_products_run_in_what_the_gpu_has() -> None:
    for four in ("nvfp4", "mxfp4"):
        rates = [weight_format(four, gpu(name)).rate for name in ("b200", "h100")]
        assert rates == ["fp4", "bf16"]


def test_tables_of_products_by_format() -> None:
    by_gpu = {
        name: [measured_format(weight_format(kept, gpu(name))) for kept in ("mxfp4", "int8", "awq")]
        for name in ("b200", "h100")
    }
    assert by_gpu == {
        "b200": ["fp4", "int8_weights", "int4_weights"],
        "h100": ["fp4_weights", "int8_weights", "int4_weights"],
    }


def test_elements_of_the_cache() -> None:
    assert [kv_element_bytes(name) for name in ("bf16", "FP8")] == [2, 1]
    with pytest.raises(UsageError, match="one of bf16"):
        kv_element_bytes("fp7")
