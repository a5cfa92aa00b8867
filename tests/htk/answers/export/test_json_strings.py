"""The strings of JSON text: the compiled core against its twin, and against what nobody means."""

import json
from dataclasses import fields
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from htk.answers.export.json_strings import (
    join_text_pieces,
    json_strings,
    json_strings_pure,
    take_between_cuts,
)
from htk.base.core.engine import load_core

_LETTERS = st.text('ab{}[]",:\\1 \n\té', max_size=60)
_VALUE = st.recursive(
    st.text('ab "\\{}[],:1é\n', max_size=40) | st.integers(-3, 10**6) | st.none(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=30,
)


def _agree(text: bytes) -> None:
    compiled, pure = json_strings(text), json_strings_pure(text)
    for field in fields(pure):
        expected, value = getattr(pure, field.name), getattr(compiled, field.name)
        assert value.tolist() == expected.tolist(), field.name


def _outside_clean(text: str) -> bool:
    """Return whether a text ends outside of strings, and has backslashes only within them."""
    within, escaped = False, False
    for letter in text:
        if letter == "\\" and not within:
            return False
        if letter == '"' and not escaped:
            within = not within
        escaped = within and letter == "\\" and not escaped
    return not within


@pytest.mark.skipif(load_core() is None, reason="without the compiled core there is one engine")
@given(st.lists(_VALUE, max_size=5), st.sampled_from([None, 1]))
def test_engines_agree_on_json(values: list[Any], indent: int | None) -> None:
    _agree(json.dumps(values, indent=indent, ensure_ascii=False).encode())
    _agree(b"".join(json.dumps(value).encode() + b"\n" for value in values))


@pytest.mark.skipif(load_core() is None, reason="without the compiled core there is one engine")
@given(_LETTERS.filter(_outside_clean))
def test_engines_agree_on_what_is_no_json(text: str) -> None:
    _agree(text.encode())


@pytest.mark.skipif(load_core() is None, reason="without the compiled core there is one engine")
def test_engines_agree_where_many_strings_differ() -> None:
    """More than the core's table holds at first, long ones, and ones that end alike."""
    strings = [f"{'x' * (k % 40)}{k}" for k in range(9_000)]
    _agree(json.dumps(strings * 2).encode())
    assert len(json_strings(json.dumps(strings * 2).encode()).firsts) == 9_000


@pytest.mark.skipif(load_core() is None, reason="of the compiled core")
@pytest.mark.parametrize("text", [b'"', b'"a" "b', b'"a\\', b'"a\\"', b'"' * 4097])
def test_a_text_that_ends_within_a_string_is_refused(text: bytes) -> None:
    with pytest.raises(ValueError, match="does not end within a string"):
        json_strings(text)


@given(
    st.binary(max_size=30),
    st.lists(st.integers(0, 30), max_size=6),
    st.lists(st.binary(max_size=5), max_size=4),
    st.randoms(use_true_random=False),
)
def test_pieces_are_put_together_in_any_order(
    text: bytes, inner: list[int], added: list[bytes], dice: Any
) -> None:
    cuts = np.array([0, *sorted(min(cut, len(text)) for cut in inner), len(text)], np.int32)
    pieces = [text[a:b] for a, b in zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True)]
    assert take_between_cuts(text, cuts).to_pylist() == pieces
    every = [*pieces, *added]
    order = [dice.randrange(len(every)) for _ in range(dice.randrange(12))]
    numbers = np.array(order, np.int32)
    whole = pa.array([b"before", *added, b"behind"], pa.binary()).slice(1, len(added))
    assert join_text_pieces(text, cuts, whole, numbers) == b"".join(every[n] for n in order)


@pytest.mark.skipif(load_core() is None, reason="of the compiled core")
@pytest.mark.parametrize(
    ("cuts", "numbers"),
    [([0, 3], [1]), ([0, 3], [-1]), ([0, 4], [0]), ([2, 1], [0]), ([-1, 3], [0]), ([], [])],
)
def test_pieces_that_are_not_there_are_refused(cuts: list[int], numbers: list[int]) -> None:
    with pytest.raises(ValueError, match="numbers of pieces"):
        join_text_pieces(
            b"abc", np.array(cuts, np.int32), pa.array([], pa.binary()), np.array(numbers, np.int32)
        )
