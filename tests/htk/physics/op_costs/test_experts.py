"""Products of experts by the buffers that they write and the types in their kernels' names."""

import json

import pytest

from htk.physics.op_costs import Cost, CostOrReason, compute_call_cost

INT, BYTE, WIDE = "3", "0", "15"
Buffer = tuple[list[int], str]
ROUTED: Buffer = ([20, 4], INT)  # of 20 tokens each goes to 4 of 32 experts
TYPES = '["c10::BFloat16","c10::BFloat16"]'
FIRST = "bmm_MxE4m3_MxE2m1MxE4m3_Fp32_t128x16_transOut_swiGlu_dynBatch"


def experts(buffers: list[Buffer], *names: str) -> CostOrReason:
    values = [[json.dumps([str(sizes), kind]) for sizes, kind in buffers], list(names)]
    return compute_call_cost("vllm::moe_forward", "[[20,64],[20,32]]", TYPES, json.dumps(values))


@pytest.mark.parametrize(
    ("name", "dtype", "weight_bytes"),
    [
        (FIRST, "fp8", 1 / 2 + 1 / 32),
        ("bmm_E2m1_NvE2m1NvE2m1_Fp32_t128x16_swiGlu", "fp4", 1 / 2 + 1 / 16),
        ("bmm_E4m3_E4m3E4m3_Fp32_t128x16_swiGlu", "fp8", 1),
        ("bmm_Bfloat16_E4m3_Fp32_t128x16_swiGlu", "fp8", 1),
        ("bmm_Bfloat16_Bfloat16Bfloat16_Fp32_t128x16_swiGlu", "bf16", 2),
        ("_matmul_ogs_NNT_bf16xbf16xmxfp4_128x128x128x1_swiglu", "bf16", 1 / 2 + 1 / 32),
        ("_p_matmul_ogs_NTN_fp16xfp16xfp16_128x128x64x1_swiglu", "fp16", 2),
    ],
)
def test_types_are_those_of_the_kernels(name: str, dtype: str, weight_bytes: float) -> None:
    """80 rows through 64 → 2 · 48 and 48 → 64, of all 32 experts."""
    work = experts([ROUTED, ([96, 48], BYTE), ([96, 64], WIDE)], name)
    assert isinstance(work, Cost)
    assert (work.dtype, work.matrix, work.flops) == (dtype, True, 2 * 80 * 64 * 3 * 48)
    states = 2 * 2 * 20 * 64 + 2 * 20 * 32
    assert work.bytes == round(32 * 64 * 3 * 48 * weight_bytes + states)


@pytest.mark.parametrize(
    ("buffers", "name"),
    [
        ([([96, 48], BYTE), ([96, 64], WIDE)], FIRST),  # how many experts has a token?
        ([ROUTED, ([20, 2], INT), ([96, 48], BYTE), ([96, 64], WIDE)], FIRST),
        ([ROUTED, ([96, 48], BYTE), ([96, 24], BYTE), ([96, 64], WIDE)], FIRST),
        ([ROUTED, ([96, 48], BYTE)], FIRST),  # what does the second product write?
        ([ROUTED, ([96, 64], WIDE)], FIRST),
        ([ROUTED, ([96, 48], INT), ([96, 64], INT)], FIRST),  # no activations
        ([ROUTED, ([79, 48], BYTE), ([79, 64], WIDE)], FIRST),  # too few rows
        ([ROUTED, ([96, 48], BYTE), ([96, 64], WIDE)], "some_product"),
        ([ROUTED, ([96, 48], BYTE), ([96, 64], WIDE)], "bmm_E4m3_E4" * 20_000),
    ],
)
def test_what_is_not_certain_is_not_told(buffers: list[Buffer], name: str) -> None:
    assert experts(buffers, name) == "sizes of experts not recorded"


def test_kernels_that_disagree_tell_nothing() -> None:
    other = "bmm_Bfloat16_Bfloat16Bfloat16_Fp32_t128x16"
    work = experts([ROUTED, ([96, 48], BYTE), ([96, 64], WIDE)], FIRST, other)
    assert work == "sizes of experts not recorded"


def test_damaged_values_tell_nothing() -> None:
    for values in ("[]", '["", ""]', '[["[1, 2"], []]', "[[null], [null]]", '[[["x"]], 3]', None):
        answer = compute_call_cost("vllm::moe_forward", "[[20,64],[20,32]]", TYPES, values)
        assert answer == "sizes of experts not recorded"
