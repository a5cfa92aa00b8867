"""Compiled kernels, by their tensors."""

from tests.htk.physics.op_costs.operator_costs import of


def test_compiled_kernels_by_their_tensors() -> None:
    found = of("triton_poi_fused_add_mul_3", [[64, 8], [8], [64, 8], []])
    assert (found.flops, found.bytes) == (2 * 512, 2 * (512 + 8 + 512))
