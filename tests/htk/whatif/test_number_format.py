"""The number format of products, by types of operators and names of kernels."""

import pytest

from htk.whatif.number_format import names_tf32, recorded_format
from tests.htk.whatif.small_step_model import Act, small_model

H100 = "NVIDIA H100 80GB HBM3"
SINGLE = '["float", "float"]'


@pytest.mark.parametrize(
    ("kernel", "types", "number_format"),
    [
        ("nvjet_tst_128x256", '["c10::BFloat16", "c10::BFloat16"]', "bf16"),
        ("volta_h884gemm_128x64", "", "fp16"),
        ("sm90_xmma_gemm_e4m3bf16_e4m3f32", "", "fp8"),
        ("sm90_xmma_gemm_f32f32_tf32f32_f32_tn", SINGLE, "tf32"),
        ("ampere_sgemm_128x64_tn", SINGLE, "fp32"),
        ("gemm_of_my_own", SINGLE, "tf32"),  # nothing says that it runs on vector units
        ("gemm_of_my_own", "", None),
    ],
)
def test_format_of_products(kernel: str, types: str, number_format: str | None) -> None:
    step = (Act(kernel, 1000, types=types or None), Act("norm", 5000, family="norm", types=SINGLE))
    assert recorded_format(small_model(step, device_name=H100)) == number_format


def test_most_time_counts() -> None:
    half = Act("nvjet", 900, types='["c10::Half", "c10::Half"]')
    single = Act("sm80_xmma_gemm_f32f32_tf32f32_f32_nn", 100, types=SINGLE)
    model = small_model((half, single, single), device_name=H100)
    assert recorded_format(model) == "fp16"
    assert names_tf32(model)


def test_a_gpu_without_tf32_computes_in_fp32() -> None:
    model = small_model((Act("g", 9, types=SINGLE),), device_name="Tesla V100-SXM2-32GB")
    assert recorded_format(model) == "fp32"
