"""Matrix products in other types, on a H100: 794.5 in bf16, 1402.6 in fp8, 0.8 · 494 in TF32.

Vector units reach 0.73 of 67 in a step, where products reach 0.84 of their rate alone.
"""

import pytest

from htk.base.errors import UsageError
from htk.whatif.edits import precision
from tests.htk.whatif.small_step_model import Act, comm, length, small_model

H100 = "NVIDIA H100 80GB HBM3"
ALONE = 0.73 / 0.84 * 67
BF16 = '["c10::BFloat16", "c10::BFloat16"]'
STEP = (
    Act("mm", 102_500, types=BF16, op="aten::mm"),
    Act("norm", 12_500, family="norm", op="aten::norm"),
    Act("attends", 10_000, family="attention", op="aten::_flash_attention_forward"),
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


@pytest.mark.parametrize(("value", "tflops"), [("tf32", 0.8 * 494), ("fp32", ALONE)])
def test_single_precision_moves_twice_as_much(value: str, tflops: float) -> None:
    found = precision.apply(small_model(STEP, device_name=H100), value)
    assert length(found, "mm") == round(2500 + 100_000 * 794.5 / tflops)
    assert length(found, "norm") == 2500 + 20_000
    assert length(found, "attends") == 60_000


def test_products_on_vector_units_take_as_long_as_their_operations() -> None:
    dims = "[[1024, 512], [512, 2048]]"  # 2^31 operations; part-filled matrix units had taken long
    model = small_model((Act("mm", 102_500, types=BF16, dims=dims),), device_name=H100)
    found = precision.apply(model, "fp32")
    assert length(found, "mm") == round(2500 + 2**31 / (0.73 * 67_000))


def test_fp32_is_what_the_recording_has_in_single_precision() -> None:
    single = Act("sm90_xmma_gemm_f32f32_tf32f32_f32_tn_n", 20_000, types='["float", "float"]')
    found = precision.apply(small_model((*STEP, single), device_name=H100), "fp32")
    assert length(found, "mm") == round(2500 + 100_000 * 794.5 / (0.8 * 494))
    assert any("fp32 as TF32" in words for words in found.assumptions)


def test_a_job_in_tf32_can_do_without() -> None:
    kernel = "sm90_xmma_gemm_f32f32_tf32f32_f32_tn_n"
    step = (Act(kernel, 102_500, types='["float", "float"]', op="aten::mm"),)
    found = precision.apply(small_model(step, device_name=H100), "fp32")
    assert length(found, kernel) == round(2500 + 100_000 * 0.8 * 494 / ALONE)


def test_weights_cast_for_products_need_no_cast_in_single_precision() -> None:
    """Autocast: the norm takes single precision already, the optimizer too."""
    both = '["c10::BFloat16", "float"]'
    step = (
        Act("mm", 102_500, types=BF16, op="aten::mm"),
        Act("cast", 30_000, types=both, op="aten::copy_", family="copy"),
        Act("norm", 12_500, types='["float"]', family="norm", op="aten::rms_norm"),
        Act("act", 12_500, types=BF16, family="elementwise", op="aten::silu"),
        Act("adam", 50_000, family="optimizer", op="aten::_foreach_add_"),
    )
    found = precision.apply(small_model(step, device_name=H100), "tf32")
    lengths = [length(found, name) for name in ("cast", "norm", "act", "adam")]
    assert lengths == [0, 12_500, 2500 + 20_000, 50_000]


@pytest.mark.parametrize(
    ("kernel", "tflops"),
    [
        ("cutlass_80_tensorop_s1688gemm_128x128_32x3_tn_align4", 0.8 * 494),  # TF32
        ("ampere_sgemm_128x64_tn", ALONE),  # vector units
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
