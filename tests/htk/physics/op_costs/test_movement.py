"""Bytes of operators that move data, by hand: halves of 2 bytes, indices of 8."""

import pytest

from htk.physics.op_costs.call import Cost
from tests.htk.physics.op_costs.operator_costs import BF16, FP8, of

LONG = "long int"
BASE, INDEX, SOURCE = [5, 6, 7], [3, 4], [3, 4, 2]
N, S = 5 * 6 * 7, 24  # elements; an index has 12


@pytest.mark.parametrize(
    ("name", "dims", "types", "values", "moved"),
    [
        ("aten::copy_", [[4, 8], [8]], ["float", BF16], [], 4 * 32 + 2 * 8),
        ("aten::clone", [BASE], [BF16], [], 2 * 2 * N),
        ("aten::fill_", [BASE], [BF16], [], 2 * N),
        ("aten::_local_scalar_dense", [[1]], ["float"], [], 4),
        # rows of an axis that the index names, also counted from the end
        ("aten::index_select", [BASE, [], [4]], [BF16, "", LONG], ["", "1", ""],
         2 * 2 * (5 * 4 * 7) + 4 * 8),
        ("aten::index_select", [BASE, [], [9]], [BF16, "", LONG], ["", "-3", ""],
         2 * 2 * (9 * 6 * 7) + 9 * 8),
        ("aten::gather", [BASE, [], INDEX], [BF16, "", LONG], ["", "0", ""], 2 * 2 * 12 + 8 * 12),
        # what is added to is read too; out of place the rest is copied
        ("aten::scatter_", [BASE, [], INDEX, INDEX], [BF16, "", LONG, BF16], [],
         2 * 2 * 12 + 8 * 12),
        ("aten::scatter_add_", [BASE, [], INDEX, INDEX], [BF16, "", LONG, BF16], [],
         3 * 2 * 12 + 8 * 12),
        ("aten::scatter_reduce", [BASE, [], INDEX, INDEX], [BF16, "", LONG, BF16], [],
         2 * 2 * N + 3 * 2 * 12 + 8 * 12),
        ("aten::scatter", [BASE, [], INDEX, INDEX], [BF16, "", LONG, BF16], [],
         2 * 2 * N + 2 * 2 * 12 + 8 * 12),
        ("aten::index_add_", [BASE, [], [4], SOURCE], [BF16, "", LONG, BF16], [],
         3 * 2 * S + 4 * 8),
        ("aten::index_add", [BASE, [], [4], SOURCE], [BF16, "", LONG, BF16], [],
         2 * 2 * N + 3 * 2 * S + 4 * 8),
        # two indices that broadcast to [3, 4] pick rows of 7
        ("aten::index", [BASE, [[3, 1], [1, 4]]], [BF16, "TensorList"], [],
         2 * 2 * (12 * 7) + 8 * (3 + 4)),
        ("aten::index_put_", [BASE, [[3, 1], [1, 4]], [12, 7], []], [BF16, "TensorList", BF16, ""],
         ["", "", "", "False"], 2 * 2 * (12 * 7) + 8 * (3 + 4)),
        ("aten::index_put_", [BASE, [[3, 1], [1, 4]], [12, 7], []], [BF16, "TensorList", BF16, ""],
         ["", "", "", "True"], 3 * 2 * (12 * 7) + 8 * (3 + 4)),
        ("aten::embedding", [[100, 16], [3, 5]], [BF16, LONG], [], 2 * 2 * (15 * 16) + 15 * 8),
        ("aten::repeat", [BASE, []], [BF16, ""], ["", "[2, 1, 3]"], 2 * N + 6 * 2 * N),
        ("aten::constant_pad_nd", [[2, 3, 4], []], [BF16, ""], ["", "[1, 2, 0, 3]"],
         2 * 24 + 2 * (2 * 6 * 7)),
        ("aten::cat", [[[2, 3], [4, 3]], []], ["TensorList", ""], [], 2 * 2 * 18),
        ("fsdp::chunk_cat", [[[6], [4]], [], [], [10]], ["TensorList", "", "", "float"], [],
         2 * 10 + 4 * 10),
        ("fsdp::chunk_cat", [[[6], [4]], [], []], ["TensorList", "", ""], [], 2 * 2 * 10),
        ("_C_cache_ops::reshape_and_cache", [[9, 2, 8], [9, 2, 4], [1000]], [BF16, BF16, FP8],
         [], (2 + 1) * 9 * 2 * 8 + (2 + 1) * 9 * 2 * 4),
    ],
)  # fmt: skip
def test_moved(name: str, dims: list, types: list, values: list, moved: int) -> None:
    found = of(name, dims, values=values, types=types)
    assert (found.flops, found.bytes, found.family) == (0, moved, "copy")


def test_a_bag_adds_its_rows_up() -> None:
    found = of("aten::_embedding_bag", [[100, 16], [7], [3]], values=[], types=[BF16, LONG, LONG])
    assert isinstance(found, Cost)
    assert found.flops == 7 * 16
    assert found.bytes == (7 + 3) * 16 * 2 + 8 * 7 + 8 * 3


def test_the_gradient_of_an_embedding_is_written_whole() -> None:
    dims: list = [[15, 16], [15], []]
    found = of(
        "aten::embedding_dense_backward", dims, values=["", "", "100"], types=["float", LONG, ""]
    )
    assert (found.flops, found.bytes) == (15 * 16, 4 * 15 * 16 + 8 * 15 + 4 * 100 * 16)


# Names, dimensions, values, bytes of 16-bit elements (indices of 64 bits).
SIMPLE = [
    ("copy_", [[3, 4], [3, 4]], [], 2 * 2 * 12),
    ("copy_", [[3, 4], [4]], [], 2 * (12 + 4)),
    ("clone", [[3, 4]], [], 2 * 2 * 12),
    ("fill_", [[3, 4]], [], 2 * 12),
    ("repeat", [[3, 4], []], ["", "[2, 5]"], 2 * (12 + 120)),
    ("repeat", [[3, 4], []], [], 2 * (12 + 12)),
    ("constant_pad_nd", [[3, 4], []], ["", "[1, 2]"], 2 * (12 + 3 * 7)),
    ("constant_pad_nd", [[3, 4], []], ["", "[1, 2, 3, 4]"], 2 * (12 + 10 * 7)),
    ("constant_pad_nd", [[3, 4], []], ["", "[-1, 0, 0, 5]"], 2 * (12 + 8 * 3)),
    ("_local_scalar_dense", [[1]], [], 2),
]  # fmt: skip
LONG = "long int"
INDEXED = [
    ("index_select", [[5, 7], [], [3]], ["", "1", ""], 2 * 2 * 5 * 3 + 8 * 3),
    ("index_select", [[5, 7], [], [3]], ["", "0", ""], 2 * 2 * 7 * 3 + 8 * 3),
    ("index_select", [[5, 7], [], [3]], ["", "-1", ""], 2 * 2 * 5 * 3 + 8 * 3),
    ("index_select", [[5, 7], [], [3]], [], 2 * 2 * 7 * 3 + 8 * 3),
    ("gather", [[5, 7], [], [5, 2]], [], 2 * 2 * 10 + 8 * 10),
    ("scatter", [[5, 7], [], [5, 2]], [], 2 * 2 * 35 + 2 * 2 * 10 + 8 * 10),
    ("scatter_", [[5, 7], [], [5, 2]], [], 2 * 2 * 10 + 8 * 10),
    ("scatter_add", [[5, 7], [], [5, 2]], [], 2 * 2 * 35 + 3 * 2 * 10 + 8 * 10),
    ("scatter_add_", [[5, 7], [], [5, 2]], [], 3 * 2 * 10 + 8 * 10),
    ("scatter_reduce_", [[5, 7], [], [5, 2]], [], 3 * 2 * 10 + 8 * 10),
]  # fmt: skip


@pytest.mark.parametrize(("name", "dims", "values", "moved"), SIMPLE)
def test_bytes_of_what_is_copied(name: str, dims: list, values: list, moved: int) -> None:
    work = of(f"aten::{name}", dims, values=values)
    assert (work.flops, work.bytes) == (0, moved)


@pytest.mark.parametrize(("name", "dims", "values", "moved"), INDEXED)
def test_bytes_of_what_is_indexed(name: str, dims: list, values: list, moved: int) -> None:
    """Only what is picked is read and written, and the indices read; what is added to, is read."""
    work = of(f"aten::{name}", dims, types=[BF16, "", LONG], values=values)
    assert (work.flops, work.bytes) == (0, moved)


@pytest.mark.parametrize(("end", "copied"), [("", 2 * 2 * 35), ("_", 0)])
def test_rows_that_are_added_where_indices_say(end: str, copied: int) -> None:
    dims = [[5, 7], [], [3], [3, 7]]
    work = of(f"aten::index_add{end}", dims, types=[BF16, "", LONG, BF16], values=["", "0", "", ""])
    assert work.bytes == copied + 3 * 2 * 21 + 8 * 3


def test_rows_of_embeddings() -> None:
    looked_up = of("aten::embedding", [[100, 6], [4, 5]], types=[BF16, LONG])
    assert looked_up.bytes == 2 * 2 * 20 * 6 + 8 * 20
    bags = of("aten::_embedding_bag", [[100, 6], [20], [3]], types=[BF16, LONG, LONG])
    assert (bags.flops, bags.bytes) == (20 * 6, 2 * (20 + 3) * 6 + 8 * (20 + 3))
    back = of("aten::embedding_dense_backward", [[4, 5, 6], [4, 5], []], types=[BF16, LONG, ""],
              values=["", "", "100"])  # fmt: skip
    assert (back.flops, back.bytes) == (120, 2 * 120 + 8 * 20 + 2 * 600)
