"""Calls of operators as profilers write them: shapes, element types, values as texts."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from htk.physics.op_costs.call import (
    TYPES,
    Cost,
    OperatorCall,
    Tensor,
    broadcast_shapes,
    dtype_of,
    read_call,
)

BF16, FP32, LONG = "c10::BFloat16", "float", "long int"
SIZES = st.lists(st.integers(1, 4), max_size=4)


@given(SIZES, st.lists(st.lists(st.booleans(), max_size=4), min_size=1, max_size=3))
def test_shapes_broadcast_as_numpys_do(whole: list[int], ones: list[list[bool]]) -> None:
    """Each is the end of one shape, with a 1 for some of its sizes."""
    shapes = []
    for flags in ones:
        end = whole[max(len(whole) - len(flags), 0) :]
        shapes.append(tuple(1 if flag else n for n, flag in zip(end, flags, strict=False)))
    assert broadcast_shapes(shapes) == np.broadcast_shapes(*shapes)


def test_nothing_broadcasts_to_nothing() -> None:
    assert broadcast_shapes([]) == ()
    assert broadcast_shapes([(3, 1), (0,)]) == (3, 0)


def test_a_call_is_read_as_it_was_recorded() -> None:
    dims = "[[2,3,4],[],[[5],[6,7]],[3]]"
    call = read_call("aten::x", dims, f'["{BF16}","Scalar","TensorList","nonesuch"]', None, FP32)
    assert call is not None
    first, scalar, several, unknown = call.arguments
    assert first == Tensor((2, 3, 4), BF16) and first.bytes == 2 * 24
    assert scalar is None and unknown is None
    assert several == (Tensor((5,), FP32), Tensor((6, 7), FP32))
    assert call.guessed and call.tensors == [first]
    assert call.tensor(0) == first and call.listed(2) == several
    assert call.maybe(0) == first and call.maybe(1) is None and call.maybe(9) is None
    with pytest.raises(LookupError, match="no tensor at 1"):
        call.tensor(1)
    with pytest.raises(LookupError, match="no tensors at 0"):
        call.listed(0)


@pytest.mark.parametrize("dims", ["", "{}", "[", "7", "[" * 100_000])
def test_what_is_no_list_of_shapes_is_no_call(dims: str) -> None:
    assert read_call("aten::x", dims, None, None, BF16) is None


def test_values_are_texts_of_python() -> None:
    texts = '["True","False","[1, 1]","0.5","0.","","None","mean"," 3 ","[True]",4]'
    call = read_call("aten::x", "[]", None, texts, BF16)
    assert call is not None
    assert call.values == (True, False, [1, 1], 0.5, 0.0, None, None, "mean", 3, [True], 4)
    assert call.value(5, default=7) == 7 and call.value(-1, default=7) == 7
    assert call.value(99) is None


def test_strides_are_repeated_where_there_is_one() -> None:
    call = OperatorCall("aten::conv2d", (), ([2], 3, [1, 2], None, True, []))
    assert [call.numbers(k, 2, 1) for k in range(6)] == [
        (2, 2), (3, 3), (1, 2), (1, 1), (1, 1), (1, 1),
    ]  # fmt: skip


def test_floating_wins_over_integer_and_wide_over_narrow() -> None:
    def result(*tensors: tuple[tuple[int, ...], str]) -> str:
        return dtype_of([Tensor(*tensor) for tensor in tensors])

    assert result(((2,), LONG), ((2,), BF16)) == BF16
    assert result(((2,), BF16), ((2,), FP32)) == FP32
    assert result(((2,), BF16), ((), FP32)) == BF16, "a scalar widens nothing"
    assert result(((), LONG)) == LONG


def test_the_model_asks_for_what_is_computed_unless_said_otherwise() -> None:
    assert Cost(10, 0, "gemm").of_model == 10
    assert Cost(10, 0, "gemm", model_flops=0).of_model == 0


def test_elements_have_the_sizes_of_their_names() -> None:
    for size, label in TYPES.values():
        digits = int("".join(c for c in label if c.isdigit()) or 8)  # a bool takes a byte
        if label in ("fp8", "int8"):
            digits = 8
        assert size == -(-digits // 8), label  # two of fp4 share a byte
    assert {name: label for name, (_, label) in TYPES.items() if "::" not in name} == {
        "float": "fp32", "double": "fp64", "signed char": "int8", "unsigned char": "int8",
        "char": "int8", "bool": "bool", "short": "int16", "short int": "int16", "int": "int32",
        "long": "int64", "long int": "int64",
    }  # fmt: skip
