"""Plain pickles read as Python reads them; what would run or fetch anything is refused."""

import os
import pickle
import random
from typing import Any

import pytest

from htk.parsers.common.safe_pickle import RefusedPickle, is_pickle, load_plain


def plain(rng: random.Random, depth: int) -> Any:
    kind = rng.randrange(8 if depth else 5)
    if kind < 5:
        return rng.choice([None, True, rng.randrange(-(2**63), 2**63), rng.random(), "gemm µ" * 9])
    size = rng.randrange(4)
    if kind == 5:
        return [plain(rng, depth - 1) for _ in range(size)]
    if kind == 6:
        return tuple(plain(rng, depth - 1) for _ in range(size))
    return {f"key {k}": plain(rng, depth - 1) for k in range(size)}


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_random_plain_objects_are_what_pickle_says(protocol: int) -> None:
    rng = random.Random(protocol)
    for _ in range(200):
        value = [plain(rng, 4), plain(rng, 2)]
        data = pickle.dumps(value, protocol)
        assert is_pickle(data) and load_plain(data) == value


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_a_refusal_names_what_was_to_be_imported(protocol: int) -> None:
    with pytest.raises(RefusedPickle, match=f"to import {os.getcwd.__module__}.getcwd$"):
        load_plain(pickle.dumps([os.getcwd], protocol))


def test_a_container_that_holds_itself_and_one_held_twice() -> None:
    shared = [1, 2]
    first, second = load_plain(pickle.dumps([shared, shared]))
    assert first is second


class _Runs:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("false",)


@pytest.mark.parametrize("value", [_Runs(), os.getcwd, {1, 2}, pytest.approx, 3j])
def test_what_is_more_than_data_is_refused(value: Any) -> None:
    data = pickle.dumps([value]) if not isinstance(value, _Runs) else pickle.dumps(value)
    with pytest.raises(RefusedPickle):
        load_plain(data)
