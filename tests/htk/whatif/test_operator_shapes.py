"""Shapes as traces write them, right and wrong ones."""

import pytest

from htk.whatif.operator_shapes import list_matrices, operator_shapes


@pytest.mark.parametrize(
    ("text", "shapes"),
    [
        ("[[2, 3], [3, 4, 5], []]", ((2, 3), (3, 4, 5), ())),
        ("[[[2, 3], [4]], [7]]", ((), (7,))),  # a list of tensors
        ("[[2.5, 3], [1]]", ((), (1,))),
        ('["a", 4, [6]]', ((), (), (6,))),
        ("[]", ()),
        ("", ()),
        (None, ()),
        ("{}", ()),
        ("[[1,", ()),
    ],
)
def test_each_input_in_its_place(text: str | None, shapes: tuple[tuple[int, ...], ...]) -> None:
    assert operator_shapes(text) == shapes
    assert list_matrices(text) == [shape for shape in shapes if len(shape) == 2]
