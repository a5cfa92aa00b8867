"""Reductions by hand: what goes in, what is left, how often each element is touched."""

import numpy as np
import pytest

from tests.htk.physics.op_costs.operator_costs import BF16, of

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


@pytest.mark.parametrize("places", [None, 0, 1, -1, [0, 2], [-3, -2], [0, 1, 2], []])
@pytest.mark.parametrize(("name", "each"), [("sum", 1), ("var", 2), ("linalg_vector_norm", 2)])
def test_what_is_left_of_a_reduction_is_what_numpy_leaves(
    name: str, each: int, places: int | list[int] | None
) -> None:
    data = np.zeros((3, 4, 5))
    axes = tuple(places) if isinstance(places, list) and places else places
    left = int(np.sum(data, axis=axes or (0 if axes == 0 else None)).size)
    values = ["", *([""] if name == "linalg_vector_norm" else []), str(places)]
    work = of(f"aten::{name}", [[3, 4, 5], *[[]] * (len(values) - 1)], types="float", values=values)
    assert (work.flops, work.bytes) == (each * 60, 4 * (60 + left))


@pytest.mark.parametrize(("row", "comparisons"), [(1, 1), (2, 1), (3, 2), (4, 2), (5, 3), (99, 7)])
def test_sorting_compares_by_the_logarithm_of_a_row(row: int, comparisons: int) -> None:
    """Values and indices of 8 bytes come out."""
    work = of("aten::sort", [[7, row]], types="float")
    assert (work.flops, work.bytes) == (7 * row * comparisons, 7 * row * (4 + 4 + 8))


def test_counts_distances_scans_and_maxima_of_two() -> None:
    bins = of("aten::histc", [[6, 50], []], types="float", values=["", "20"])
    assert (bins.flops, bins.bytes) == (300, 4 * (300 + 20))
    between = of("aten::_cdist_forward", [[7, 3], [9, 3]], types="float")
    assert (between.flops, between.bytes) == (3 * 63 * 3, 4 * (21 + 27 + 63))
    batched = of("aten::_cdist_forward", [[2, 7, 3], [2, 9, 3]], types="float")
    assert (batched.flops, batched.bytes) == (3 * 126 * 3, 4 * (42 + 54 + 126))
    scan = of("aten::cumsum", [[6, 50]], types="float")
    assert (scan.flops, scan.bytes) == (300, 2 * 4 * 300)
    both = of("aten::max", [[6, 50], [6, 50]], types="float")
    assert (both.flops, both.bytes) == (300, 3 * 4 * 300)
