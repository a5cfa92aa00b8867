"""Lists of tensors, as optimizers pass them."""

from tests.htk.models.op_costs.operator_costs import of


def test_lists_of_tensors() -> None:
    dims = [[[4], [8]], [[4], [8]], [[4], [8]], [[4], [8]]]
    adam = of("aten::_fused_adam_", dims, types=["TensorList"] * 4)
    assert (adam.flops, adam.bytes) == (14 * 12, 2 * 12 * (4 + 3))
    added = of("aten::_foreach_add_", [[[4], [8]], [[4], [8]], []], types=["TensorList"] * 2 + [""])
    assert (added.flops, added.bytes) == (12, 2 * 12 * 3)
    joined = of("aten::cat", [[[2, 3], [4, 3]], []], types=["TensorList", "Scalar"])
    assert joined.bytes == 2 * 2 * 18
