"""Work of losses, by hand: N predictions of K classes, or as many numbers as targets."""

import pytest

from htk.physics.op_costs.call import OperatorCall, Tensor
from htk.physics.op_costs.loss import MODELS

N, K = 8, 50
SCORES, TARGET = Tensor((N, K), "float"), Tensor((N,), "long int")
GRADIENT = Tensor((), "float")


def work(name: str, *tensors: Tensor) -> tuple[int, int]:
    cost = MODELS[f"aten::{name}"](OperatorCall(f"aten::{name}", tensors, ()))
    assert (cost.family, cost.dtype, cost.matrix) == ("loss", "fp32", False)
    return cost.flops, cost.bytes


def test_a_likelihood_picks_one_score_for_each_target() -> None:
    assert work("nll_loss_forward", SCORES, TARGET) == (N, 4 * N + 8 * N)
    assert work("nll_loss_backward", GRADIENT, SCORES, TARGET) == (N, 4 * N * K + 8 * N)


def test_cross_entropy_goes_over_all_scores_and_back() -> None:
    """Read, and written as logarithms of a softmax."""
    assert work("cross_entropy_loss", SCORES, TARGET) == (5 * N * K, 2 * 4 * N * K + 8 * N)


@pytest.mark.parametrize(
    ("name", "operations"),
    [
        ("mse_loss", 3),  # subtract, multiply, add up
        ("l1_loss", 3),
        ("kl_div", 4),
        ("huber_loss", 5),
        ("binary_cross_entropy", 7),
    ],
)
def test_numbers_against_as_many_targets(name: str, operations: int) -> None:
    """Both are read; backward a gradient is read and one as large as the scores written."""
    targets = Tensor((N, K), "float")
    one = 4 * N * K
    assert work(name, SCORES, targets) == (operations * N * K, 2 * one)
    backward = work(f"{name}_backward", GRADIENT, SCORES, targets)
    assert backward == (operations * N * K, 4 + 3 * one)
