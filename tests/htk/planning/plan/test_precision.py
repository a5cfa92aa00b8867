"""Recipes of number formats: names, and bytes that follow from the formats."""

import pytest

from htk.base.errors import UsageError
from htk.physics.hardware import gpu
from htk.planning.plan.precision import PRECISIONS, RECIPES, precision_of


@pytest.mark.parametrize(
    ("name", "recipe"),
    [("BF16", "bf16"), ("bfloat16", "bf16"), ("fp4", "nvfp4"), ("fp8-MX", "mxfp8"),
     ("float8", "fp8"), ("fp8-sc", "fp8-block")],
)  # fmt: skip
def test_other_names(name: str, recipe: str) -> None:
    assert precision_of(name) is RECIPES[recipe]


def test_elements_take_what_their_format_does() -> None:
    sizes = {name: precision_of(name).operand_bytes for name in PRECISIONS}
    assert sizes["fp32"] == 4 and sizes["bf16"] == sizes["fp16"] == 2
    assert sizes["fp8"] == sizes["mxfp8"] == 1
    assert sizes["nvfp4"] == 0.5 + 1 / 16, "half a byte, and one of scale for 16 elements"


def test_narrower_products_are_faster_where_the_gpu_has_them() -> None:
    b200 = gpu("b200")
    rates = {"bf16": b200.bf16_tflops, "fp8": b200.fp8_tflops, "fp4": b200.fp4_tflops}
    peaks = [rates[precision_of(name).rate] for name in ("bf16", "mxfp8", "nvfp4")]
    assert None not in peaks and peaks == sorted(peaks) and len(set(peaks)) == 3


def test_an_unknown_format_is_named_with_those_there_are() -> None:
    with pytest.raises(UsageError, match=r"'int3': one of bf16, fp16"):
        precision_of("int3")
