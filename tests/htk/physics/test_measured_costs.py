"""What measured kernels took for the work of operators: which question each call becomes."""

import json

import numpy as np
import pytest

from htk.physics.hardware import gpu
from htk.physics.kernel_atlas import MEASURED
from htk.physics.kernel_time import estimate_kernels
from htk.physics.measured_costs import measure_costs
from htk.physics.op_costs import CostOrReason, compute_call_cost

H100 = gpu("h100")


def _cost(
    name: str, dims: list[list[int]], values: list[str], kind: str = "BFloat16"
) -> CostOrReason:
    types = [f"c10::{kind}" if kind[0].isupper() and size else "float" for size in dims]
    return compute_call_cost(name, json.dumps(dims), json.dumps(types), json.dumps(values))


def _attention(causal: str, queries: int = 2048) -> CostOrReason:
    query, key = [2, 32, queries, 128], [2, 32, 2048, 128]
    return _cost(
        "aten::_scaled_dot_product_flash_attention",
        [query, key, key, [], []],
        ["", "", "", "0.0", causal],
    )


def test_attention_with_a_mask_takes_what_the_atlas_says_and_without_it_twice() -> None:
    sizes = {"batch": 2, "heads": 32, "kv_heads": 32, "head_dim": 128, "seq": 2048, "window": 0}
    arrays = {name: np.array([float(size)]) for name, size in sizes.items()}
    causal = estimate_kernels(H100, "attention_prefill", "bf16", arrays).expected[0]
    measured = measure_costs(H100, [_attention("True"), _attention("False")])
    assert measured.expected == pytest.approx([causal, 2 * causal])


def test_one_query_decodes_and_some_are_not_answered() -> None:
    measured = measure_costs(H100, [_attention("False", 1), _attention("False", 7)])
    cache = 2 * 2 * 32 * 2048 * 128 * 2
    assert cache / H100.memory_gbps < measured.expected[0] < 3 * cache / H100.memory_gbps
    assert np.isnan(measured.expected[1])
    assert measured.reasons == [None, "attention of some queries over more keys: not measured"]


def _experts(kernel: str) -> CostOrReason:
    """8,192 tokens, 4 of 32 experts each, 2,880 wide and deep, as buffers of the operator tell."""
    buffers = [([8192, 4], 3), ([32768, 2880], 15), ([32768, 2880], 15)]
    recorded = [json.dumps([str(sizes), str(kind)]) for sizes, kind in buffers]
    dims = [[8192, 2880], [8192, 32]]
    return compute_call_cost(
        "vllm::moe_forward",
        json.dumps(dims),
        json.dumps(["c10::BFloat16"] * 2),
        json.dumps([recorded, [kernel]]),
    )


def test_experts_of_the_same_sizes_and_weights_were_measured() -> None:
    """4-bit weights on an H100: 4.37 ms evenly spread, 4.57 ms where few experts have most tokens;
    nobody multiplied FP8 by them."""
    triton = _experts("_matmul_ogs_NNT_bf16xbf16xmxfp4_128x128x128x1_swiglu")
    mixed = _experts("bmm_MxE4m3_MxE2m1MxE4m3_Fp32_t128x16_transOut_swiGlu_dynBatch")
    measured = measure_costs(H100, [triton, mixed])
    assert measured.nearness[0] == MEASURED
    assert 4.37e6 < measured.expected[0] < 4.57e6
    assert measured.reasons[1] == "experts in fp8 with weights of 4 bits: not measured"


def test_what_was_not_measured_says_why() -> None:
    single = _cost("aten::mm", [[64, 64], [64, 64]], ["", ""], "float")
    measured = measure_costs(H100, [single, "no model"])
    assert measured.reasons == ["nothing in fp32 was measured", "no model"]
    assert np.isnan(measured.expected).all()
    assert measure_costs(None, [single]).reasons == ["the GPU is not known"]
