"""Reductions by hand: what goes in, what is left, how often each element is touched."""

import pytest

from tests.htk.models.op_costs.operator_costs import BF16, of

INTO = [6, 5, 4]
N = 120


@pytest.mark.parametrize(
    ("name", "dims", "values", "flops", "moved"),
    [
        ("aten::sum", [INTO], [], N, 2 * (N + 1)),
        ("aten::sum", [INTO, []], ["", "[]"], N, 2 * (N + 1)),
        ("aten::mean", [INTO, []], ["", "[1]"], N, 2 * (N + 24)),
        ("aten::amax", [INTO, []], ["", "[-1, 0]"], N, 2 * (N + 5)),
        ("aten::max", [INTO, []], ["", "2"], N, 2 * (N + 30)),
        ("aten::argmax", [INTO, []], ["", "-3"], N, 2 * (N + 20)),
        ("aten::max", [INTO, INTO], [], N, 3 * 2 * N),
        ("aten::any", [INTO, []], ["", "True"], N, 2 * (N + 1)),  # no axis
        ("aten::var", [INTO, []], ["", "[0]"], 2 * N, 2 * (N + 20)),
        ("aten::linalg_vector_norm", [INTO, [], []], ["", "2.", "[0, 1]"], 2 * N, 2 * (N + 4)),
        ("aten::cumsum", [INTO, []], ["", "0"], N, 2 * 2 * N),
        ("aten::cumsum_", [INTO, []], ["", "0"], N, 2 * 2 * N),
        # rows of 4: two comparisons each; of 5: three, no fewer than one
        ("aten::sort", [[30, 4]], [], 2 * N, 2 * 2 * N + 8 * N),
        ("aten::topk", [[24, 5]], [], 3 * N, 2 * 2 * N + 8 * N),
        ("aten::kthvalue", [[120, 1]], [], N, 2 * 2 * N + 8 * N),
        ("aten::histc", [INTO, []], ["", "7"], N, 2 * (N + 7)),
        ("aten::histc", [INTO, []], ["", "True"], N, 2 * N),
        ("aten::histc", [INTO, []], [], N, 2 * N),
        ("aten::_cdist_forward", [[6, 3], [5, 3]], [], 3 * 30 * 3, 2 * (18 + 15 + 30)),
    ],
)
def test_reductions(name: str, dims: list, values: list, flops: int, moved: int) -> None:
    found = of(name, dims, values=values)
    assert (found.flops, found.bytes, found.family, found.dtype) == (
        flops, moved, "reduction", "bf16",
    ), BF16  # fmt: skip
