"""Norms of servers."""

from tests.htk.physics.op_costs.operator_costs import BF16, of


def test_norms_of_servers() -> None:
    """Five operations and four tensors where the residual is added, as TraceLens has it too."""
    dims = [[8, 16]] * 4 + [[16], []]
    added = of("aiter::add_rmsnorm", dims, types=[BF16] * 5 + [""])
    assert (added.flops, added.bytes) == (5 * 128, 2 * (4 * 128 + 16))
    plain = of("aiter::rms_norm", [[8, 16], [16], []], types=[BF16, BF16, ""])
    assert (plain.flops, plain.bytes) == (4 * 128, 2 * (2 * 128 + 16))


def test_a_softmax_works_in_proportion_to_its_elements() -> None:
    small, large = (of("aten::_softmax", [[n, 8], [], []], types=[BF16, "", ""]) for n in (4, 12))
    assert large.flops == 3 * small.flops > 0
    assert (small.bytes, large.bytes) == (2 * 2 * 32, 2 * 2 * 96)
