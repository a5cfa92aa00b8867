"""Lists of tensors, as optimizers pass them."""

from tests.htk.physics.op_costs.operator_costs import of


def test_lists_of_tensors() -> None:
    dims = [[[4], [8]], [[4], [8]], [[4], [8]], [[4], [8]]]
    adam = of("aten::_fused_adam_", dims, types=["TensorList"] * 4)
    assert (adam.flops, adam.bytes) == (14 * 12, 2 * 12 * (4 + 3))
    added = of("aten::_foreach_add_", [[[4], [8]], [[4], [8]], []], types=["TensorList"] * 2 + [""])
    assert (added.flops, added.bytes) == (12, 2 * 12 * 3)
    joined = of("aten::cat", [[[2, 3], [4, 3]], []], types=["TensorList", "Scalar"])
    assert joined.bytes == 2 * 2 * 18


def test_lists_that_are_read_and_written() -> None:
    """12 elements of 16 bits a list; norms write nothing, a list of scalars beside them is read."""
    pair = [[4], [8]]

    def work(name: str, *dims: list) -> tuple[int, int]:  # type: ignore[type-arg]
        types = ["TensorList" if d and isinstance(d[0], list) else "float" for d in dims]
        found = of(name, list(dims), types=types)
        assert (found.family, found.dtype, found.assumed) == ("optimizer", "bf16", "element type")
        return found.flops, found.bytes

    assert work("aten::_foreach_norm", pair) == (2 * 12, 2 * 12)
    assert work("aten::_foreach_addcdiv_", pair, pair, pair) == (2 * 12, 2 * 12 * 4)
    assert work("aten::_foreach_lerp_", pair, pair) == (2 * 12, 2 * 12 * 3)
    assert work("aten::_foreach_sqrt", pair) == (12, 2 * 12 * 2)
    unscale = "aten::_amp_foreach_non_finite_check_and_unscale_"
    assert work(unscale, pair, [1], [1]) == (12, 2 * 12 * 2 + 2 * 4)


def test_fused_optimizers_write_all_but_gradients() -> None:
    pair = [[4], [8]]
    for name, lists, each in (("adamw", 4, 14), ("sgd", 2, 4), ("adagrad", 3, 6)):
        found = of(f"aten::_fused_{name}_", [pair] * lists, types=["TensorList"] * lists)
        assert (found.flops, found.bytes) == (each * 12, 2 * 12 * (lists + lists - 1)), name
