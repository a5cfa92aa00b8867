"""Elements of a collective, from the shapes that its range, record or operator were given."""

from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from htk.parsers.kineto.shapes import Shape, _count_elements, from_shapes

NOTHING = (None, None)
TYPES = '["float", "c10::BFloat16"]'


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        ("[[2, 3], [4]]", (6, 4)),
        ("[[[2, 3], [4]], [7]]", (10, 7)),  # a list of tensors
        ("[[[2, 3], 4], []]", (-1, -1)),
        ("[[], [0, 5], [2, -1]]", (-1, 0, -1)),
        ("[[[2], []]]", (2,)),
        ("[[4611686018427387904]]", (-1,)),  # 2 ** 62
        ("[[4611686018427387903]]", (2**62 - 1,)),
        ("[3, null, true]", (-1, -1, -1)),
        ("{}", ()),
        ("[[1", ()),
    ],
)
def test_elements_of_each_argument(text: str, counts: tuple[int, ...]) -> None:
    assert _count_elements(text) == counts


SIZES = st.lists(st.lists(st.integers(1, 9), min_size=1, max_size=4), min_size=1, max_size=3)


@given(SIZES)
def test_elements_are_products(shapes: list[list[int]]) -> None:
    assert _count_elements(str(shapes)) == tuple(prod(shape) for shape in shapes)
    assert _count_elements(str([shapes])) == (sum(prod(shape) for shape in shapes),)


@pytest.mark.parametrize("op", ["c10d::_allgather_base_", "c10d::reduce_scatter_base_x"])
def test_operators_that_are_given_output_and_input(op: str) -> None:
    described = [("[[5]]", TYPES), NOTHING, ("[[8, 2], [4]]", TYPES)]
    found = from_shapes("all_gather", op, described)
    assert (found.into, found.out, found.dtype) == (4, 16, "Float")
    empty = from_shapes("all_gather", op, [NOTHING, NOTHING, ("[[0], [0]]", TYPES)])
    assert (empty.into, empty.out) == (0, 0)
    odd = from_shapes("all_gather", op, [("[[5]]", TYPES), NOTHING, ("[[8, 2], []]", TYPES)])
    assert (odd.into, odd.out) == (5, -1), "no tensor: the range tells"
    one = from_shapes("all_gather", op, [NOTHING, NOTHING, ("[[8, 2]]", TYPES)])
    assert (one.into, one.out) == (16, -1)


@pytest.mark.parametrize(("kind", "out"), [("all_reduce", 6), ("broadcast", 6), ("all_gather", -1)])
def test_the_first_that_tells_counts(kind: str, out: int) -> None:
    record, op = ("[[2, 3]]", '["Long"]'), ("[[7]]", TYPES)
    found = from_shapes(kind, "c10d::allreduce_", [NOTHING, record, op])
    assert (found.into, found.out) == (6, out)
    ranged = from_shapes(kind, None, [("[[2, 3], [9]]", TYPES), ("[[5]]", TYPES), op])
    assert (ranged.into, ranged.out, ranged.dtype) == (6, out, "Float")
    unreadable = from_shapes(kind, None, [("[[]]", TYPES), ("[", TYPES), ("[[2, 3]]", TYPES)])
    assert (unreadable.into, unreadable.out) == (6, out)
    nothing = from_shapes(kind, None, [("[[0]]", TYPES), NOTHING, NOTHING])
    assert nothing.into == 0, "an empty tensor is one"
    assert from_shapes(kind, "c10d::_allgather_base_", [NOTHING] * 3) == Shape(-1, -1, None)
