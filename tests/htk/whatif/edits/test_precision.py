"""Matrix products in other types, on a H100: 794.5 in bf16, 1402.6 in fp8, 0.8 · 494 in TF32."""

import pytest

from htk.base.errors import UsageError
from htk.whatif.edits import precision
from tests.htk.whatif.small_step_model import Act, comm, length, small_model

H100 = "NVIDIA H100 80GB HBM3"
BF16 = '["c10::BFloat16", "c10::BFloat16"]'
STEP = (
    Act("mm", 102_500, types=BF16, op="aten::mm"),
    Act("norm", 12_500, family="norm", op="aten::norm"),
    comm("r", 1000, "all_reduce"),
)


def test_fp8_leaves_all_but_products() -> None:
    found = precision.apply(small_model(STEP, device_name=H100), "fp8")
    assert length(found, "mm") == round(2500 + 100_000 * 794.5 / 1402.6)
    assert length(found, "norm") == 12_500
    assert found.low_confidence


def test_operands_are_cast() -> None:
    dims = "[[1024, 1000], [1000, 1024]]"  # 2,048,000 elements, 5 bytes each at 0.8 · 3350 GB/s
    model = small_model((Act("mm", 102_500, types=BF16, dims=dims),), device_name=H100)
    casts = 2_048_000 * 5 / 2680
    found = length(precision.apply(model, "fp8"), "mm")
    assert found == round(2500 + 100_000 * 794.5 / 1402.6 + casts)


def test_single_precision_moves_twice_as_much() -> None:
    found = precision.apply(small_model(STEP, device_name=H100), "fp32")
    assert length(found, "mm") == round(2500 + 100_000 * 794.5 / (0.8 * 494))
    assert length(found, "norm") == 2500 + 20_000


def test_utilisation_is_of_the_new_peak() -> None:
    halved = precision.apply(small_model(STEP, device_name=H100), "fp32")
    assert halved.peak == pytest.approx(494 / 989)
    assert precision.apply(small_model(STEP, device_name=H100), "fp8").peak == pytest.approx(
        1979 / 989
    )


@pytest.mark.parametrize(
    ("kernel", "tflops"),
    [
        ("cutlass_80_tensorop_s1688gemm_128x128_32x3_tn_align4", 0.8 * 494),  # TF32
        ("ampere_sgemm_128x64_tn", 0.8 * 67),  # vector units
    ],
)
def test_single_precision_is_as_fast_as_its_kernels_say(kernel: str, tflops: float) -> None:
    model = small_model(
        (Act(kernel, 102_500, types='["float", "float"]', op="aten::mm"),), device_name=H100
    )
    found = precision.apply(model, "bf16")
    assert length(found, kernel) == round(2500 + 100_000 * tflops / 794.5)


def test_half_the_bytes_are_sent_in_half_the_precision() -> None:
    sent = comm("r", 100_000, "all_reduce", in_bytes=8 << 20, out_bytes=8 << 20, group=2)
    single = Act("mm", 102_500, types='["float", "float"]', op="aten::mm")
    found = precision.apply(small_model((single, sent), device_name=H100), "bf16")
    assert found.facts.in_bytes[found.is_comm].tolist() == [4 << 20]


def test_the_same_changes_nothing() -> None:
    model = small_model(STEP, device_name=H100)
    assert (precision.apply(model, "bf16").weight == model.weight).all()


def test_an_unknown_gpu_is_said() -> None:
    with pytest.raises(UsageError, match="catalogue"):
        precision.apply(small_model(STEP, device_name="Abacus"), "fp8")
