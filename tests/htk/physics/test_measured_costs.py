"""What measured kernels took for the work of operators: which question each call becomes."""

import json

import numpy as np
import pytest

from htk.physics.hardware import gpu
from htk.physics.kernel_time import estimate_kernels
from htk.physics.measured_costs import measure_costs
from htk.physics.op_costs import CostOrReason, cost

H100 = gpu("h100")


def _cost(
    name: str, dims: list[list[int]], values: list[str], kind: str = "BFloat16"
) -> CostOrReason:
    types = [f"c10::{kind}" if kind[0].isupper() and size else "float" for size in dims]
    return cost(name, json.dumps(dims), json.dumps(types), json.dumps(values))


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


def test_what_was_not_measured_says_why() -> None:
    single = _cost("aten::mm", [[64, 64], [64, 64]], ["", ""], "float")
    measured = measure_costs(H100, [single, "no model"])
    assert measured.reasons == ["nothing in fp32 was measured", "no model"]
    assert np.isnan(measured.expected).all()
    assert measure_costs(None, [single]).reasons == ["the GPU is not known"]
